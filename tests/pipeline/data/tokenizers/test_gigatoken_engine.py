"""gigatoken's ids against those of `tokenizers`, and the fallback where they differ."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.gigatoken_engine import CACHE_BYTES, DIFFERING, GigatokenEngine
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.token_ids import Tokens, Unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary


def buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [text.encode() + b"\0" for text in texts]
    return (
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0] + [len(text) for text in encoded]),
    )


def encode(encoder: TextEncoder, texts: list[str], *, checked: bool = False) -> list[list[int]]:
    buffer, offsets = buffers(texts)
    sentences = sentence_starts(buffer, offsets)
    tokens, _ = encoder.encode(buffer, offsets, sentences, np.full(len(texts), checked))
    return [tokens.ids[a:b].tolist() for a, b in itertools.pairwise(tokens.document_offsets)]


def reference(encoder: TextEncoder, texts: list[str]) -> list[list[int]]:
    return [
        encoder.reference.tokenizer.encode(text, add_special_tokens=False).ids for text in texts
    ]


def random_texts(count: int, highest: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        codes = rng.integers(1, highest, rng.integers(1, 40))
        codes = codes[(codes < 0xD800) | (codes > 0xDFFF)]
        texts.append("x" + "".join(chr(code) for code in codes))
    return texts


@pytest.mark.parametrize("highest", [0x80, 0x3000, 0x110000])
def test_random_unicode_gives_the_reference_ids(highest: int, tiny_vocabulary: Vocabulary) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    texts = random_texts(1000, highest, seed=highest)
    assert encode(encoder, texts) == reference(encoder, texts)


def test_code_points_with_differing_classes_go_to_the_reference(
    tiny_vocabulary: Vocabulary,
) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    texts = [f"a{chr(code)}b {chr(code)}1" for first, last in DIFFERING for code in (first, last)]
    texts = ["plain text", *texts, "plain again"]
    assert encode(encoder, texts) == reference(encoder, texts)


def test_ids_cover_every_byte(tiny_vocabulary: Vocabulary) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    texts = random_texts(200, 0x110000, seed=1)
    for text, ids in zip(texts, encode(encoder, texts)):
        assert tiny_vocabulary.byte_lengths[ids].sum() == len(text.encode())


def test_a_difference_in_a_checked_document_is_an_error(tiny_vocabulary: Vocabulary) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)

    class Wrong:
        """An engine whose second document comes back with one id changed."""

        def encode(self, *texts: np.ndarray) -> tuple[Tokens, Unknown, np.ndarray]:
            assert encoder.fast is not None
            tokens, unknown, unsure = encoder.fast.encode(*texts)
            tokens.ids[tokens.document_offsets[1]] += 1
            return tokens, unknown, unsure

    wrong = replace(encoder, fast=Wrong())
    assert encode(wrong, ["one text", "two texts"]) != reference(encoder, ["one text", "two texts"])
    with pytest.raises(EngineMismatch, match="two texts"):
        encode(wrong, ["one text", "two texts"], checked=True)


def test_the_cache_is_emptied_when_the_process_has_grown(
    tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = TextEncoder.create(tiny_vocabulary)
    assert isinstance(encoder.fast, GigatokenEngine)
    first = encoder.fast.engine
    expected = encode(encoder, ["one text", "two texts"])
    assert encoder.fast.engine is first
    encoder.fast.resident -= CACHE_BYTES + (1 << 30)
    assert encode(encoder, ["one text", "two texts"]) == expected
    assert encoder.fast.engine is not first


def test_the_reference_alone_gives_the_same(tiny_vocabulary: Vocabulary) -> None:
    texts = ["one text", "naïve 日本", "three"]
    alone = TextEncoder.create(tiny_vocabulary, fast=False)
    assert encode(alone, texts) == encode(TextEncoder.create(tiny_vocabulary), texts)
