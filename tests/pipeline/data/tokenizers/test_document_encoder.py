"""The encoder: the fast engine, `tokenizers` for unsure documents, and the checks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline.base.errors import DataError
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.document_encoder import Engine, TextEncoder
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.token_ids import Tokens, Unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe

TEXTS = ["One text. Two sentences.", "a", "Naïve 日本。 More of it! And more.", "The end. Over."]


def columns(tokens: Tokens) -> list[list[int]]:
    return [
        tokens.ids.tolist(), tokens.document_offsets.tolist(), tokens.sentence_starts.tolist()
    ]  # fmt: skip


def encode(encoder: TextEncoder, checked: list[int]) -> list[list[int]]:
    encoded = [text.encode() + b"\0" for text in TEXTS]
    buffer = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    flags = np.isin(np.arange(len(TEXTS)), checked)
    tokens, _ = encoder.encode(buffer, offsets, sentence_starts(buffer, offsets), flags)
    return columns(tokens)


@dataclass
class Spoilt:
    """An engine that encodes document 2 wrongly and may be unsure of it; `place`: what is wrong."""

    engine: Engine
    place: str
    unsure: list[int]
    added: None = None

    def encode(self, *given: np.ndarray) -> tuple[Tokens, Unknown, np.ndarray]:
        tokens, unknown, unsure = self.engine.encode(*given)
        unsure[self.unsure] = True
        if self.place == "ids":
            tokens.ids[tokens.document_offsets[2]] += 1
        elif self.place == "sentences":
            tokens.sentence_starts[4] += 1
        return tokens, unknown, unsure


@pytest.fixture
def encoder(tiny_vocabulary: Vocabulary) -> TextEncoder:
    return TextEncoder.create(tiny_vocabulary)


@pytest.mark.parametrize("unsure", [[], [0], [2], [0, 1, 2, 3], [1, 3]])
def test_documents_are_spliced(unsure: list[int], encoder: TextEncoder) -> None:
    assert encoder.fast is not None
    expected = encode(replace(encoder, fast=None), [])
    spoilt = Spoilt(encoder.fast, "ids" if 2 in unsure else "", unsure)
    assert encode(replace(encoder, fast=spoilt), [0, 1, 2, 3]) == expected


@pytest.mark.parametrize("place", ["ids", "sentences"])
def test_a_difference_in_a_checked_document_is_an_error(place: str, encoder: TextEncoder) -> None:
    assert encoder.fast is not None
    spoilt = replace(encoder, fast=Spoilt(encoder.fast, place, []))
    encode(spoilt, [0, 1, 3])
    with pytest.raises(EngineMismatch, match=r"document 2 .*Naïve"):
        encode(spoilt, [2])


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("direction", ["left", "right"])
def test_ids_cover_the_text_of_checked_documents(
    kind: str, fast: bool, direction: str, tiny_vocabulary: Vocabulary,
    word_vocabularies: dict[str, Vocabulary],
) -> None:  # fmt: skip
    """With either engine; a truncation at either end is an error."""
    vocabulary = tiny_vocabulary if kind == "byte-bpe" else word_vocabularies[kind]
    encoder = TextEncoder.create(vocabulary, fast=fast)
    encode(encoder, [0, 1, 2, 3])
    if fast:  # documents that `tokenizers` encodes for the fast engine are checked as well
        assert encoder.fast is not None
        encoder.fast = Spoilt(encoder.fast, "", [0, 1, 2, 3])
    for tokenizer in (encoder.reference.tokenizer, encoder.reference.normalized):
        tokenizer.enable_truncation(3, direction=direction)
    encode(encoder, [1])
    with pytest.raises(DataError, match=r"loses text: .* starts with 'Naïve"):
        encode(encoder, [2])
    encoder.reference.normalized.no_truncation()
    with pytest.raises(DataError, match=r"loses text: .* starts with 'Naïve"):
        encode(encoder, [2])


def test_an_engine_that_fails_the_probe_is_refused(
    tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*given: object) -> Tokens:
        raise EngineMismatch("made up")

    monkeypatch.setattr(TextEncoder, "encode", differs)
    with pytest.raises(DataError, match=r"made up.*--engine tokenizers"):
        TextEncoder.create(tiny_vocabulary)


def test_what_the_fast_engine_refuses_is_said(
    tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*given: object) -> None:
        raise RuntimeError("no entry\nLocation:\n    src/mod.rs:88:24")

    monkeypatch.setattr("pipeline.data.tokenizers.document_encoder.GigatokenEngine", refuses)
    with pytest.raises(DataError, match=r"vocabulary \(no entry\); run with --engine tokenizers"):
        TextEncoder.create(tiny_vocabulary)


TORTURE = [
    "The cat's 2024 mats aren't 12,345.67; IT'S naïve café 日本 한국어 العربية",
    "emoji 👩‍🔬🏳️‍🌈 math ∑∞ ½ ② ʰ zero\u200dwidth ﬁ ＡＢＣ",
    "one\n\ntwo\nthree x'x 'LL 've's --- ....... $5.00 [MASK] <s> a_b_c 0x1F",
    "1234567890 " * 20 + "a" * 300 + "é" * 50,
]


@pytest.mark.parametrize("split", SPLITS)
def test_byte_bpe_with_words_of_its_own_has_the_ids_of_tokenizers(split: str) -> None:
    """GPT-2's expression by the fast engine, others by `tokenizers` alone."""
    content = byte_bpe(SPLITS[split], nfc=split == "gpt-2")
    reference = Tokenizer.from_str(json.dumps(json.loads(content) | {"added_tokens": []}))
    encoder = TextEncoder.create(vocabulary(content, "x"))
    assert (encoder.fast is not None) == (split == "gpt-2") == encoder.vocabulary.has_fast_engine
    for text in TORTURE:
        encoded = text.encode() + b"\0"
        document = (np.frombuffer(encoded, np.uint8), np.array([0, len(encoded)]))
        tokens, _ = encoder.encode(*document, np.zeros(1, np.int64), np.ones(1, np.bool_))
        assert tokens.ids.tolist() == reference.encode(text).ids, text
        assert not encoder.vocabulary.special[tokens.ids].any()
