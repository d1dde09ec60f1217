"""The table of words: kinds of characters, and words distinguished by their bytes."""

import numpy as np

from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.reference_engine import Reference
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.data.tokenizers.word_engine import WordEngine
from pipeline.data.tokenizers.word_table import APART, PART, SPACE, UNSURE
from tests.pipeline.data.tokenizers.conftest import buffers, columns


def test_bytes_of_long_words_are_compared(word_vocabularies: dict[str, Vocabulary]) -> None:
    """Two words with the same tag are distinguished by their bytes."""
    encoder = TextEncoder.create(word_vocabularies["unigram"])
    engine = encoder.fast
    given = buffers(["extraordinary", "distinguished"])
    expected = columns(encoder.reference.encode(*given)[0])
    engine.encode(*buffers(["extraordinary"]))
    table = engine.table
    slot = np.flatnonzero(table.numbers == table.words - 1)
    engine.encode(*given)
    other = np.flatnonzero(table.numbers == table.words - 1)
    assert len(slot) == len(other) == 1
    # spell the known word otherwise: the tag still matches, the bytes do not
    table.text[table.starts[table.words - 1]] ^= 1
    assert columns(engine.encode(*given)[0]) == expected


def test_kinds_of_characters(word_vocabularies: dict[str, Vocabulary]) -> None:
    for kind, character, expected in (
        ("wordpiece", "a", PART), ("wordpiece", ",", APART), ("wordpiece", "中", APART),
        ("wordpiece", "\n", SPACE), ("wordpiece", "é", PART), ("wordpiece", "\ufffd", PART),
        ("unigram", ",", PART), ("unigram", "中", PART), ("unigram", "\n", SPACE),
        ("unigram", "▁", UNSURE), ("unigram-uncased", "¨", SPACE), ("unigram", "ﷺ", UNSURE),
    ):  # fmt: skip
        found = word_vocabularies[kind]
        engine = WordEngine(found, Reference(found))
        engine.encode(*buffers([f"x{character}y"]))
        assert engine.kinds[ord(character)] == expected, (kind, character)
