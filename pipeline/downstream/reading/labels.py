"""The labels of a task, and examples whose labels cannot be learned or scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.downstream.reading.examples import Example
from pipeline.errors import DataError


def labels_of(examples: Iterable[Example]) -> tuple[str, ...]:
    """The labels or tags of training examples, sorted."""
    found: set[str] = set()
    for example in examples:
        found.update(_names(example))
    return tuple(sorted(found))


def check_labels(examples: Iterable[Example], labels: Sequence[str], path: Path) -> None:
    """Raises DataError if examples have a label that training lacks."""
    known = set(labels)
    for example in examples:
        for name in _names(example):
            if name not in known:
                shown = ", ".join(sorted(known)[:20])
                raise DataError(
                    f"{path}: example {example.id} has label {name!r}, which no training example "
                    f"has; they have {shown}"
                )


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
