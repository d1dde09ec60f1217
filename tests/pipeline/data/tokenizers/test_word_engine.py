"""Ids and sentence starts of the word engine against `tokenizers`, on all sorts of text."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, normalizers

from pipeline.data.text.cleaning import clean
from pipeline.data.tokenizers import word_engine as module
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from pipeline.data.tokenizers.word_engine import WordEngine
from tests.pipeline.data.tokenizers.conftest import WORD_KINDS, buffers, columns

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


def random_texts(count: int, highest: int, seed: int) -> list[str]:
    """Words of 1 to 8 characters below `highest`, not cleaned."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        codes = rng.integers(33, highest, 40)
        codes = np.where(rng.random(40) < 0.2, 32, codes)
        texts.append("x" + "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF))
    return texts


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
    assert encoder.fast is not None
    _, _, unsure = encoder.fast.encode(*buffers(sample_text))
    assert unsure.mean() < 0.05
    same(encoder, AWKWARD)
    same(encoder, clean(AWKWARD).texts())
    for highest in (0x80, 0x600, 0x3200, 0x110000):
        same(encoder, random_texts(150, highest, seed=highest))


def test_a_known_word_has_the_ids_it_has_when_new(
    encoder: TextEncoder, sample_text: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is emptied before every batch, and a batch exceeds the table."""
    expected = [columns(same(encoder, [text])) for text in sample_text[:20]]
    monkeypatch.setattr(module, "MOST_WORDS", 10)
    engine = encoder.fast
    assert isinstance(engine, WordEngine)
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


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_bert_on_real_text(case: str, real_data: Path) -> None:
    source = real_data / "tokenizers" / "bert" / f"bert-base-{case}-vocab.txt"
    encoder = TextEncoder.create(read_vocabulary(source))
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
        longer = [k.encode() for k in becomes if k.encode().startswith(key) and k.encode() != key]
        for byte in sorted({k[len(key)] for k in longer}):
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
