"""Ids and sentence starts of the word engine against `tokenizers`, on all sorts of text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, normalizers

from pipeline.data.text.cleaning import clean
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers import word_engine as module
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from pipeline.data.tokenizers.word_engine import WordEngine

KINDS = ["wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"]
AWKWARD = [
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " " + "é" * 101,
    "``quotes'' and '''three''' don't `tick` e.g. U.S.A. $1,000.00 a_b-c/d",
    "他去。我来！好。 mixed中文and日本語カタカナ half ｶﾞ 한국어 각 x≠y ﷺ ½ ① ﬁne …",
    "हिन्दी में। ไทยน้ำ עברית العربية Ελληνικά Σας ΣΑΣ İstanbul ǅ ß ẞ",
    "emoji 👩\u200d🔬 🏳️\u200d🌈 é e\u0301 \u0301 ▁under ▁ x▁y ~^~^ \ufffd a\ufffdb",
    "[MASK] [CLS]x[SEP] <pad> <unk> <s> ##ing [unused1]",
    "\ufffd",
    "\u0301 a \u0301",
]
Buffers = tuple[np.ndarray, np.ndarray, np.ndarray]


def buffers(texts: list[str]) -> Buffers:
    encoded = [text.encode() + b"\0" for text in texts]
    buffer = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0] + [len(text) for text in encoded])
    return buffer, offsets, sentence_starts(buffer, offsets)


def columns(tokens: Tokens) -> list[list[int]]:
    return [
        tokens.ids.tolist(), tokens.document_offsets.tolist(), tokens.sentence_starts.tolist()
    ]  # fmt: skip


def random_texts(count: int, highest: int, seed: int) -> list[str]:
    """Words of 1 to 8 characters below `highest`, not cleaned."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        codes = rng.integers(33, highest, 40)
        codes = np.where(rng.random(40) < 0.2, 32, codes)
        texts.append("x" + "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF))
    return texts


@pytest.fixture(params=KINDS)
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


def test_real_text(encoder: TextEncoder, sample_text: list[str]) -> None:
    assert len(same(encoder, sample_text).ids) > 100_000


def test_awkward_text(encoder: TextEncoder) -> None:
    same(encoder, AWKWARD)
    same(encoder, clean(AWKWARD).texts())


@pytest.mark.parametrize("highest", [0x80, 0x600, 0x3200, 0x110000])
def test_random_text(highest: int, encoder: TextEncoder) -> None:
    same(encoder, random_texts(150, highest, seed=highest))


def test_most_documents_are_not_left_to_the_reference(
    encoder: TextEncoder, sample_text: list[str]
) -> None:
    assert encoder.fast is not None
    _, _, unsure = encoder.fast.encode(*buffers(sample_text))
    assert unsure.mean() < 0.05


def test_a_known_word_has_the_ids_it_has_when_new(
    encoder: TextEncoder, sample_text: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is emptied before every batch, and a batch exceeds the table."""
    expected = [columns(same(encoder, [text])) for text in sample_text[:20]]
    monkeypatch.setattr(module, "MOST_WORDS", 10)
    for text, wanted in zip(sample_text[:20], expected):
        engine = encoder.fast
        assert isinstance(engine, WordEngine)
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


def test_unigram_without_white_space_split(word_vocabularies: dict[str, Vocabulary]) -> None:
    """As other converters write it: only a space separates words, a newline belongs to one."""
    content = json.loads(word_vocabularies["unigram"].tokenizer_json)
    content["pre_tokenizer"] = content["pre_tokenizer"]["pretokenizers"][1]
    encoder = TextEncoder.create(vocabulary(json.dumps(content), "Metaspace"))
    same(encoder, clean(["one two\nthree. Four", *AWKWARD]).texts())


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_bert_on_real_and_golden_text(case: str, real_data: Path, tmp_path: Path) -> None:
    source = real_data / "tokenizers" / "bert" / f"bert-base-{case}-vocab.txt"
    shutil.copy(source, tmp_path / "vocab.txt")
    encoder = TextEncoder.create(read_vocabulary(tmp_path))
    lines = (real_data / "golden" / "golden_tokenization.jsonl").read_text().splitlines()
    same(encoder, [text for text in (json.loads(line)["text"] for line in lines) if text])
    wiki = (real_data / "wikipedia" / "extracted" / "wiki_00").read_text().splitlines()
    same(encoder, clean([json.loads(line)["text"] for line in wiki]).texts())


def precompiled(becomes: dict[str, str]) -> bytes:
    """A character map as SentencePiece writes it: a double-array trie, then the replacements.

    normalizer.cc and darts.h: a node's children begin at a block of their own here, child `label`
    at block ^ label, and what the node stands for at block ^ 0.
    """
    units, texts, blocks = {0: 0}, b"", 256
    where = {b"": 0}
    for key in sorted({k.encode()[:n] for k in becomes for n in range(len(k.encode()) + 1)}):
        block = units[where[key]] = where[key] ^ blocks  # where its children are, for now
        blocks += 256
        for byte in sorted({k.encode()[len(key)] for k in becomes if _inside(key, k.encode())}):
            where[key + bytes([byte])] = (block ^ where[key]) + byte
            units[where[key + bytes([byte])]] = 0
    array = np.zeros(blocks, np.uint32)
    for key, place in where.items():
        array[place] = units[place] << 10 | (key[-1] if key else 0)
        if key.decode("utf-8", "ignore") in becomes and key:
            array[place] |= 1 << 8
            array[place ^ units[place]] = 1 << 31 | len(texts)
            texts += becomes[key.decode()].encode() + b"\0"
    return np.uint32(array.nbytes).tobytes() + array.tobytes() + texts


def _inside(start: bytes, whole: bytes) -> bool:
    return whole.startswith(start) and len(whole) > len(start)


def test_a_precompiled_normalizer(
    word_vocabularies: dict[str, Vocabulary], sample_text: list[str]
) -> None:
    """As the tokenizer.json of ALBERT has it, which transformers makes of a SentencePiece model."""
    tokenizer = Tokenizer.from_str(word_vocabularies["unigram-uncased"].tokenizer_json)
    chars = precompiled(
        {"ß": "ss", "œ": "oe", "–": " - ", "\u3000": " ", "\ufeff": "", "e\u0301": "E"}
    )
    steps = [
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(chars),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]  # fmt: skip
    tokenizer.normalizer = normalizers.Sequence(steps)
    encoder = TextEncoder.create(vocabulary(tokenizer.to_str(), "given"))
    pairs = ["Straße strasse", "œuvre oeuvre", "a\u3000b – c  ``d''", "ﬁne ½ e\u0301té ①"]
    same(encoder, [*sample_text[:30], *AWKWARD, *pairs])
    found = [column.tolist() for column in (same(encoder, [word]).ids for word in pairs[0].split())]
    assert found[0] == found[1]


def test_a_file_may_lack_its_normalizer(word_vocabularies: dict[str, Vocabulary]) -> None:
    values = json.loads(word_vocabularies["unigram"].tokenizer_json)
    found = []
    for change in ({"normalizer": None}, {}):
        del values["normalizer"]
        values |= change
        found.append(TextEncoder.create(vocabulary(json.dumps(values), "here")))
        values.setdefault("normalizer", None)
    texts = ["Some text.", "more  TEXT"]
    assert columns(same(found[0], texts)) == columns(same(found[1], texts))


def test_a_step_may_lack_its_type(word_vocabularies: dict[str, Vocabulary]) -> None:
    """`tokenizers` knows it by its entries; we leave the compositions around it to `tokenizers`."""
    values = json.loads(word_vocabularies["unigram"].tokenizer_json)
    step = {"pattern": {"String": "q"}, "content": "k"}
    values["normalizer"] = {"type": "Sequence", "normalizers": [step]}
    same(TextEncoder.create(vocabulary(json.dumps(values), "here")), ["quite quick", "e\u0301q"])
