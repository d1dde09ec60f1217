"""Corpora whose pairs are predictable: sentences that count, and documents with one topic."""

from pathlib import Path

import numpy as np

from tests.pipeline.preparing import write_jsonl

NUMBERS = ("one", "two", "three", "four", "five", "six")
WORDS = ("river", "stone", "light", "garden", "window", "letter", "music", "winter", "summer")
TOPICS = 24
"""A random segment has the same topic by chance: 2 % of the pairs are not predictable."""


def numbered(path: Path, documents: int) -> None:
    """For sentence order: six numbered sentences per document, about three of which fit a row."""
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(documents):
        words = rng.choice(WORDS, (len(NUMBERS), 4))
        sentences = zip(NUMBERS, words, strict=True)
        texts.append(" ".join(f"The {number} is {' '.join(own)}." for number, own in sentences))
    write_jsonl(path, texts)


def topical(path: Path, documents: int) -> None:
    """For next sentence: every sentence of a document contains the same one of TOPICS nouns."""
    rng = np.random.default_rng(0)
    ends = ("ako", "eti", "olu", "una", "iri", "esa")
    names = [start + end for start in ("bar", "del", "fon", "gim") for end in ends]
    texts = []
    for number in range(documents):
        name = names[number % TOPICS]
        words = rng.choice(WORDS, (18, 2))
        texts.append(" ".join(f"The {name} {' '.join(w)} {name}." for w in words))
    write_jsonl(path, texts)
