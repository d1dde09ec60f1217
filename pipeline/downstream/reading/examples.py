"""One example of a task, whatever file it was read from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import xxhash

from pipeline.base.errors import DataError


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


def check_gold(examples: Sequence[Example], path: Path) -> None:
    """Raises DataError if no example says what is to be predicted."""
    if all(example.gold is None for example in examples):
        raise DataError(f"{path} has no label or answer; give a file with some")


def content_hash(examples: Iterable[Example]) -> str:
    """xxh3_64 of ids, texts and golds in their order, 16 hex digits: equal for files of other names
    or formats that hold the same examples."""
    digest = xxhash.xxh3_64()
    for example in examples:
        # without the group, which only decides the division: both of its parts are hashed
        content = (example.id, example.texts, example.gold)
        digest.update(json.dumps(content, default=astuple).encode())  # Answer is a dataclass
    return digest.hexdigest()


def check_not_empty(examples: Sequence[Example], path: Path) -> None:
    """Raises DataError for a file without examples."""
    if not examples:
        raise DataError(f"{path} has no examples; give a file with some")
