"""Labels, and files that are divided."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.downstream.reading.examples import (
    Example,
    check_labels,
    check_not_empty,
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
