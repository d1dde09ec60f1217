"""Labels, and files that are divided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.downstream.reading.examples import (
    Answer,
    Example,
    check_labels,
    check_not_empty,
    content_hash,
    divide,
    labels_of,
)
from pipeline.errors import DataError


def example(index: int, gold: object = None, group: str = "") -> Example:
    return Example(str(index), ("text",), gold, group)  # type: ignore[arg-type]


def test_labels() -> None:
    examples = [example(0, "b"), example(1, ("O", "a"))]
    assert labels_of(examples) == ("O", "a", "b")
    with pytest.raises(DataError, match="example 2 has label 'c', which no training example has"):
        check_labels([example(2, "c")], ["a"], Path("dev.tsv"))
    with pytest.raises(DataError, match="has no examples"):
        check_not_empty([], Path("x"))


def test_the_hash_is_that_of_what_is_read() -> None:
    answer = Example("0", ("q", "paragraph"), (Answer("para", 0),))
    different = [
        [], [example(0, "a")], [example(1, "a")], [example(0, "b")], [example(0, None)],
        [example(0, "a"), example(1, "a")], [example(1, "a"), example(0, "a")],
        [example(0, 1.0)], [example(0, ("a",))], [answer], [replace(answer, gold=())],
        [replace(answer, gold=(Answer("para", 1),))], [replace(answer, texts=("qp", "aragraph"))],
        [replace(answer, texts=("q\udc80", "\u6771"))],
    ]  # fmt: skip
    hashes = [content_hash(examples) for examples in different]
    assert len(set(hashes)) == len(different) and all(len(value) == 16 for value in hashes)
    assert content_hash([example(0, "a", "group")]) == hashes[1]


def test_groups_stay_together() -> None:
    examples = [example(index, group="abcd"[index // 3]) for index in range(12)]
    first, last = divide(examples, 0.5)
    assert [e.id for e in last] == ["6", "7", "8", "9", "10", "11"]
    first, last = divide(examples, 5 / 12)  # the cut is inside c
    assert len(first) == 9 and {e.group for e in last} == {"d"}
    first, last = divide(examples, 1 / 12)  # inside the last group, which moves as a whole
    assert len(first) == 9 and {e.group for e in last} == {"d"}
    plain = [example(index) for index in range(10)]
    assert [e.id for e in divide(plain, 0.2)[1]] == ["8", "9"]
