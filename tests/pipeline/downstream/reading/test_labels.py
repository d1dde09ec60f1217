"""Label sets, and what is refused."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading import labels
from pipeline.downstream.reading.labels import check_labels, check_meant, describe_labels, labels_of
from tests.pipeline.downstream.small_work import example


def test_labels_are_sorted_numbers_first_and_listed_with_their_counts() -> None:
    examples = [example(0, "b"), example(1, ("O", "a"))]
    assert labels_of(examples) == ("O", "a", "b")
    with pytest.raises(DataError, match="example 2 has label 'c'"):
        check_labels([example(2, "c")], ["a"], Path("dev.tsv"))
    with pytest.raises(DataError, match=r"'c'.* --labels .* b, a"):
        check_labels([example(2, "c")], ["b", "a"], Path("dev.tsv"), are_named=True)
    golds = ["10", "b", "9", "-1", "1.5", "a", "nan", "1"]
    found = labels_of(example(index, gold) for index, gold in enumerate(golds))
    assert found == ("-1", "1", "1.5", "9", "10", "a", "b", "nan")
    examples = [example(index, gold) for index, gold in enumerate(["b", "a", "b", ""])]
    assert describe_labels(examples, ("", "a", "b", "c")) == "'' 1, a 1, b 2, c 0"
    many = tuple(map(str, range(25)))
    assert describe_labels(examples, many).endswith("18 0, 19 0 and 5 more labels")


def test_labels_that_mean_none_are_refused_unless_they_are_named() -> None:
    """SNLI's -1 and MultiNLI's - became a class."""
    none = ("", "-", "-1", "-1.0", "nan", "NaN")
    for label, gold in [(each, gold) for each in none for gold in (each, (each, "O"))]:
        examples = [example(0, "yes"), example(1, gold), example(2, label)]
        with pytest.raises(DataError, match=f"^a.tsv has 2 with label {label!r},"):
            check_meant(examples, (), Path("a.tsv"))
        check_meant(examples, ("yes", label), Path("a.tsv"))
    assert not any(map(labels.is_no_label, ["0", "1", "none", "O", "inf", "--", 0, 1.0, False]))


def test_one_label_for_all() -> None:
    cases: dict[tuple[object, ...], str] = {
        ("a", "a"): "label 'a'", (("O", "O"), ("O",)): "label 'O'", (2.5, 2.5): "target 2.5",
        (0.0, None, 0.0): "target 0.0", ("a", "b"): "", (("O", "B-X"),): "", (1.0, 2.0): "",
    }  # fmt: skip
    for golds, found in cases.items():
        examples = [example(index, gold) for index, gold in enumerate(golds)]
        said = f"^dev.tsv: every development example has {found};"
        with pytest.raises(DataError, match=said) if found else nullcontext():
            labels.check_varied(examples, Path("dev.tsv"), is_training=False)
