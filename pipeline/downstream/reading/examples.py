"""One example of a task, whatever file it was read from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import xxhash

from pipeline.errors import DataError


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a paragraph."""

    text: str
    start: int
    """Character of the paragraph at which it starts."""


Gold = str | float | tuple[str, ...] | tuple[Answer, ...] | None
"""A label, a number, a tag per word, the accepted answers (none if there is no answer), or None if
the file does not say."""


@dataclass(frozen=True, slots=True)
class Example:
    """Texts and what is to be predicted of them."""

    id: str
    texts: tuple[str, ...]
    """One or two texts; for spans the question and the paragraph; for tags the words; for choices
    the common text, then each choice."""
    gold: Gold
    """For choices the index of the right one, as text."""
    group: str = ""
    """Examples of one group stay on one side when a file is divided: an article, a passage."""


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


def check_gold(examples: Sequence[Example], path: Path) -> None:
    """Raises DataError if no example says what is to be predicted."""
    if all(example.gold is None for example in examples):
        raise DataError(f"{path} has no label or answer; give a file with some")


def content_hash(examples: Iterable[Example]) -> str:
    """xxh3_64 of ids, texts and golds in their order, 16 hex digits: equal for files of other names
    or formats that hold the same examples."""
    digest = xxhash.xxh3_64()
    for example in examples:
        content = (example.id, example.texts, example.gold)
        digest.update(json.dumps(content, default=astuple).encode())
    return digest.hexdigest()


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
            side, remedy = "training", "give several"
        raise DataError(f"{path}: every {side} example has {kind} {name!r}; {remedy}")


def check_not_empty(examples: Sequence[Example], path: Path) -> None:
    """Raises DataError for a file without examples."""
    if not examples:
        raise DataError(f"{path} has no examples; give a file with some")


def _names(example: Example) -> tuple[str, ...]:
    if isinstance(example.gold, str):
        return (example.gold,)
    if isinstance(example.gold, tuple):
        return tuple(tag for tag in example.gold if isinstance(tag, str))
    return ()
