"""Label sets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.downstream.reading.examples import Example
from pipeline.downstream.reading.labels import check_labels, check_varied, labels_of
from pipeline.errors import DataError


def example(index: int, gold: object) -> Example:
    return Example(str(index), ("text",), gold)  # type: ignore[arg-type]


def test_labels() -> None:
    examples = [example(0, "b"), example(1, ("O", "a"))]
    assert labels_of(examples) == ("O", "a", "b")
    with pytest.raises(DataError, match="example 2 has label 'c', which no training example has"):
        check_labels([example(2, "c")], ["a"], Path("dev.tsv"))


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
