"""Labels, and what identifies examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.downstream.reading.examples import (
    Answer,
    Example,
    check_labels,
    check_not_empty,
    check_varied,
    content_hash,
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


@pytest.mark.parametrize(
    ("golds", "found"),
    [
        (("a", "a"), "label 'a'"), ((("O", "O"), ("O",)), "label 'O'"), ((2.5, 2.5), "target 2.5"),
        ((0.0, None, 0.0), "target 0.0"), (("a", "b"), ""), ((("O", "B-X"),), ""), ((1.0, 2.0), ""),
    ],
)  # fmt: skip
def test_one_label_for_all(golds: tuple[object, ...], found: str) -> None:
    examples = [example(index, gold) for index, gold in enumerate(golds)]
    if not found:
        check_varied(examples, Path("dev.tsv"), is_training=False)
        return
    with pytest.raises(DataError) as error:
        check_varied(examples, Path("dev.tsv"), is_training=False)
    said = f"dev.tsv: every development example has {found}; give another --dev FILE or --dev-share"
    assert str(error.value) == said
