"""Vocabularies by kind, texts as encoders are given them, and what encoders return."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.definitions import wordpiece_json
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary

WORD_KINDS = ["wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"]


@pytest.fixture(scope="session")
def vocabularies(
    tiny_vocabulary: Vocabulary, word_vocabularies: dict[str, Vocabulary]
) -> dict[str, Vocabulary]:
    return {"byte-bpe": tiny_vocabulary} | word_vocabularies


@pytest.fixture(scope="session")
def gpt2(real_data: Path) -> Vocabulary:
    return read_vocabulary(real_data / "tokenizers" / "gpt2")


def toy(tokens: list[str], **options: bool) -> Vocabulary:
    """WordPiece with these tokens, by default cased."""
    ids = {token: index for index, token in enumerate(tokens)}
    return vocabulary(wordpiece_json(ids, **{"lower_case": False} | options), "toy")


def random_texts(count: int, highest: int, lowest: int = 33) -> list[str]:
    """Words of characters from `lowest` to below `highest`, not cleaned."""
    rng = np.random.default_rng(highest)
    texts = []
    for _ in range(count):
        codes = rng.integers(lowest, highest, rng.integers(1, 41))
        codes = np.where(rng.random(len(codes)) < 0.2, 32, codes)
        texts.append("x" + "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF))
    return texts


def buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes with a NUL after each document, where documents start, and where sentences do."""
    encoded = [text.encode() + b"\0" for text in texts]
    buffer = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    return buffer, offsets, sentence_starts(buffer, offsets)


def encode(encoder: TextEncoder, texts: list[str], *, checked: bool = True) -> Tokens:
    return encoder.encode(*buffers(texts), np.full(len(texts), checked))[0]


def documents(tokens: Tokens) -> list[list[int]]:
    """The ids of each document."""
    bounds = itertools.pairwise(tokens.document_offsets.tolist())
    return [tokens.ids[start:stop].tolist() for start, stop in bounds]


def columns(tokens: Tokens) -> list[list[int]]:
    return [tokens.ids.tolist(), tokens.document_offsets.tolist(), tokens.sentence_starts.tolist()]
