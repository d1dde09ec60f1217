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
AWKWARD = [
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " " + "é" * 101,
    "``quotes'' and '''three''' don't `tick` e.g. U.S.A. $1,000.00 a_b-c/d",
    "他去。我来！好。 mixed中文and日本語カタカナ half ｶﾞ 한국어 각 x≠y ﷺ ½ ① ﬁne …",
    "हिन्दी में। ไทยน้ำ עברית العربية Ελληνικά Σας ΣΑΣ İstanbul ǅ ß ẞ",
    "emoji 👩\u200d🔬 🏳️\u200d🌈 é e\u0301 \u0301 ▁under ▁ x▁y ~^~^ \ufffd a\ufffdb",
    "[MASK] [CLS]x[SEP] <pad> <unk> <s> ##ing [unused1]",
    "\ufffd",
    "\u0301 a \u0301",
    "The cat's 2024 mats aren't 12,345.67; IT'S naïve café — “quoted” … €5 ½ ² ② ＡＢＣ",
    "math ∑∞ ʰ zero\u200dwidth Ａ\u0301 ǆ ŉ ı \u0300alone ㎏ 1.000 1/2 a.b.c Русский العربية",
    "one\n\ntwo\nthree x'x 'LL 've's ''s 're --- ....... $5.00 <mask> </s> 0x1F",
    "1234567890 " * 20 + "a" * 300 + "é" * 50 + "=" * 300,
]
"""Texts that every fast engine must treat as the reference does."""


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
