"""The labels of a task, and examples whose labels cannot be learned or scored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.downstream.reading.examples import Example

SHOWN = 20
"""Most labels that are listed in a line."""


def is_no_label(value: object) -> bool:
    """True for what stands for a missing label: nothing, `-` (MultiNLI), -1 (SNLI) and NaN."""
    text = "" if value is None else str(value).strip()
    number = _number(text)
    return text in ("", "-") or number == -1 or (number is not None and math.isnan(number))


def labels_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """The labels or tags of training examples: numbers by their value, then the others, sorted."""
    # a label's place is its class number in the saved model: it must not depend on the file's order
    return tuple(sorted(count_labels(examples), key=_rank))


def count_labels(examples: Iterable[Example]) -> Counter[str]:
    """Number of examples with each label, or of words with each tag."""
    return Counter(name for example in examples for name in _names(example))


def describe_labels(examples: Iterable[Example], labels: Sequence[str]) -> str:
    """`neg 12, pos 8`; of more than `SHOWN` labels the first, and how many others there are."""
    counts = count_labels(examples)
    # repr() shows an empty label
    shown = ", ".join(f"{label or repr(label)} {counts[label]:,}" for label in labels[:SHOWN])
    more = len(labels) - SHOWN
    return f"{shown} and {more:,} more labels" if more > 0 else shown


def check_meant(examples: Iterable[Example], named: Sequence[str], path: Path) -> None:
    """Raises DataError if examples have labels that usually mean none, see `is_no_label`.

    named: those of --labels, which are meant.
    """
    counts = count_labels(examples)
    doubtful = [label for label in counts if is_no_label(label) and label not in named]
    if doubtful:
        shown = ", ".join(f"{counts[label]:,} with label {label!r}" for label in sorted(doubtful))
        raise DataError(
            f"{path} has {shown}, which usually means none; remove these, or name all labels with "
            "--labels"
        )


def check_labels(
    examples: Iterable[Example], labels: Sequence[str], path: Path, *, are_named: bool = False
) -> None:
    """Raises DataError if examples have another label.

    labels: those of training, or if are_named of --labels.
    """
    known = set(labels)
    for example in examples:
        for name in _names(example):
            if name not in known:
                shown = ", ".join(map(str, labels[:SHOWN]))
                lack = "which no training example has; they have"
                if are_named:
                    lack = "which --labels lacks; it names"
                raise DataError(f"{path}: example {example.id} has label {name!r}, {lack} {shown}")


def check_varied(examples: Sequence[Example], path: Path, *, is_training: bool) -> None:
    """Raises DataError if all examples have one label, tag or number: nothing is learned from them,
    and as a development set they give 0 or 1 to whatever is constant.
    """
    found = {_names(example) or example.gold for example in examples if example.gold is not None}
    names = {name for gold in found for name in (gold if isinstance(gold, tuple) else (gold,))}
    if len(names) == 1:
        (name,) = names
        kind = "label" if isinstance(name, str) else "target"
        side, remedy = "development", "give another --dev FILE or --dev-share"
        if is_training:
            side, remedy = "training", "give several (--train-rows takes the first)"
        raise DataError(f"{path}: every {side} example has {kind} {name!r}; {remedy}")


def _names(example: Example) -> tuple[str, ...]:
    if isinstance(example.gold, str):
        return (example.gold,)
    if isinstance(example.gold, tuple):
        return tuple(tag for tag in example.gold if isinstance(tag, str))
    return ()


def _rank(label: str) -> tuple[float, str]:
    """Numbers before all others, by their value."""
    number = _number(label)
    # NaN has no order: sorted() would leave its neighbours in any order
    return math.inf if number is None or math.isnan(number) else number, label


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
