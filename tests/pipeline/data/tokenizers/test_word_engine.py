"""Ids and sentence starts of the word engine against `tokenizers`, on all sorts of text."""

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.text.cleaning import clean
from pipeline.data.tokenizers import word_engine as module
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.tokenizers.conftest import (
    AWKWARD,
    WORD_KINDS,
    buffers,
    columns,
    random_texts,
)


@pytest.fixture(params=WORD_KINDS)
def encoder(
    request: pytest.FixtureRequest, word_vocabularies: dict[str, Vocabulary]
) -> TextEncoder:
    return TextEncoder.create(word_vocabularies[request.param])


def same(encoder: TextEncoder, texts: list[str]) -> Tokens:
    """Assert that both give the same ids, also for known words; returns them."""
    given = buffers(texts)
    expected, unknown = encoder.reference.encode(*given)
    unchecked = np.zeros(len(texts), np.bool_)
    for _ in range(2):
        tokens, found = encoder.encode(*given, unchecked)
        assert columns(tokens) == columns(expected)
        assert found.tolist() == unknown.tolist()
    return expected


def test_real_awkward_and_random_text(encoder: TextEncoder, sample_text: list[str]) -> None:
    """Most of the real documents are not left to the reference."""
    assert len(same(encoder, sample_text).ids) > 100_000
    _, _, unsure = encoder.fast.encode(*buffers(sample_text))
    assert unsure.mean() < 0.05
    same(encoder, AWKWARD)
    same(encoder, clean(AWKWARD).texts())
    for highest in (0x80, 0x600, 0x3200, 0x110000):
        same(encoder, random_texts(300, highest))


def test_a_known_word_has_the_ids_it_has_when_new(
    encoder: TextEncoder, sample_text: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is emptied before every batch, and a batch exceeds the table."""
    expected = [columns(same(encoder, [text])) for text in sample_text[:20]]
    monkeypatch.setattr(module, "MOST_WORDS", 10)
    engine = encoder.fast
    for text, wanted in zip(sample_text[:20], expected):
        tokens, _, unsure = engine.encode(*buffers([text]))
        assert unsure[0] or columns(tokens) == wanted
        assert engine.table.words <= len(text)


@pytest.mark.parametrize(
    ("kind", "text", "tokens", "characters"),
    [
        ("wordpiece", "one two", 0, 0),
        ("wordpiece", "one " + "ລາວ" * 40 + " two " + "x" * 101, 2, 221),  # each is one token
        ("wordpiece", "中文 and 中", 3, 3),
        ("wordpiece", "a☃b, ☃", 2, 4),
        ("wordpiece-uncased", "x☃e\u0301q", 1, 5),  # the accent has no token of its own
        ("unigram", "a☃☃b ☃", 2, 3),
        ("unigram", "☂☃ one中文two", 2, 4),
        ("unigram-uncased", "㍿a ½", 2, 2),  # each becomes several characters
    ],
)
def test_unknown_tokens_and_the_characters_behind_them(
    kind: str, text: str, tokens: int, characters: int, word_vocabularies: dict[str, Vocabulary]
) -> None:
    """With both engines, and whether a word is new or known."""
    texts = ["before", text, "after"]
    for fast in (True, False):
        encoder = TextEncoder.create(word_vocabularies[kind], fast=fast)
        for _ in range(2):
            _, found = encoder.encode(*buffers(texts), np.ones(len(texts), np.bool_))
            assert found.tolist() == [[0, 0], [tokens, characters], [0, 0]]


def test_steps_of_other_converters(word_vocabularies: dict[str, Vocabulary]) -> None:
    """Only a space separates words, so a newline belongs to one; a file lacks its normalizer, or a
    step its type: `tokenizers` knows it by its entries, and gets the compositions around it."""
    content = json.loads(word_vocabularies["unigram"].tokenizer_json)

    def changed(**changes: object) -> TextEncoder:
        return TextEncoder.create(vocabulary(json.dumps(content | changes), "here"))

    metaspace = content["pre_tokenizer"]["pretokenizers"][1]
    texts = clean(["one two\nthree. Four", *AWKWARD]).texts()
    same(changed(pre_tokenizer=metaspace), texts)
    step = {"pattern": {"String": "q"}, "content": "k"}
    sequence = {"type": "Sequence", "normalizers": [step]}
    same(changed(normalizer=sequence), ["quite quick", "e\u0301q"])
    texts = ["Some text.", "more  TEXT"]
    expected = columns(same(changed(normalizer=None), texts))
    del content["normalizer"]
    assert columns(same(changed(), texts)) == expected
    assert columns(same(changed(normalizer=[[]]), texts)) == expected  # a sequence without steps


def test_a_limit_of_a_word_that_no_word_reaches(word_vocabularies: dict[str, Vocabulary]) -> None:
    """`tokenizers` takes any of 64 bits, compiled code none above 63."""
    content = json.loads(word_vocabularies["wordpiece"].tokenizer_json)
    content["model"]["max_input_chars_per_word"] = 2**64 - 1
    same(TextEncoder.create(vocabulary(json.dumps(content), "here")), ["one " + "on" * 200])


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_bert_on_real_text(case: str, real_data: Path) -> None:
    source = real_data / "tokenizers" / "bert" / f"bert-base-{case}-vocab.txt"
    encoder = TextEncoder.create(read_vocabulary(source))
    wiki = (real_data / "wikipedia" / "extracted" / "wiki_00").read_text().splitlines()
    wiki = wiki[case == "cased" :: 2]  # half of the articles each
    same(encoder, clean([json.loads(line)["text"] for line in wiki]).texts())
