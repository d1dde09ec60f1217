"""Examples of one set that are also in another, as `--dedup exact` compares documents: the same
words in the same order, whatever their case, punctuation and white space."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.data.selection.minhash import word_hashes
from pipeline.data.text.clean import clean
from pipeline.downstream.reading.examples import Example


def count_copies(examples: Sequence[Example], training: Sequence[Example]) -> int:
    """How many examples have the texts of a training example, in order, whatever the label."""
    texts = sorted({text for part in (examples, training) for e in part for text in e.texts})
    cleaned = clean(texts)
    keys = dict(zip(texts, word_hashes(cleaned.buffer, cleaned.offsets)[:, 0].tolist()))

    def key_of(example: Example) -> tuple[int, ...]:
        return tuple(keys[text] for text in example.texts)

    known = set(map(key_of, training))
    return sum(key_of(example) in known for example in examples)
