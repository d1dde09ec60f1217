"""Tables of WordPiece and unigram vocabularies, against `tokenizers` on real text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from pipeline.base.errors import DataError
from pipeline.data.tokenizers.definitions import (
    SPECIALS,
    WORDPIECE,
    unigram_json,
    wordpiece_json,
)
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe

KINDS = ["wordpiece", "wordpiece-uncased", "unigram", "unigram-uncased"]
BERT = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "##s", "##中", "中", "##,", ",", "...", "Cat", "é"]
ALBERT = [(token, 0.0) for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]


def is_punctuation(text: str) -> bool:
    return not any(character.isalnum() for character in text)


@pytest.mark.parametrize("kind", KINDS)
def test_word_starts_match_the_pre_tokenizer(
    kind: str, word_vocabularies: dict[str, Vocabulary], sample_text: list[str]
) -> None:
    """On half a megabyte; in unigram, punctuation starts a word too (ALBERT's rule)."""
    vocabulary = word_vocabularies[kind]
    tokenizer = Tokenizer.from_str(vocabulary.text_json())
    starts = inner = 0
    for text in sample_text:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids, words = np.array(encoding.ids), np.array(encoding.word_ids)
        expected = np.append(True, words[1:] != words[:-1])
        if kind.startswith("unigram"):
            expected |= [is_punctuation(token) for token in encoding.tokens]
            expected |= ids == vocabulary.unk
        after_special = np.append(False, vocabulary.special[ids[:-1]])
        found = vocabulary.word_starts[ids] | after_special
        assert np.array_equal(found, expected | after_special)
        starts, inner = starts + int(expected.sum()), inner + int((~expected).sum())
    assert starts > 80_000 and inner > 30_000


@pytest.mark.parametrize("kind", KINDS)
def test_literal_special_tokens_stay_text(
    kind: str, word_vocabularies: dict[str, Vocabulary]
) -> None:
    vocabulary = word_vocabularies[kind]
    tokenizer = Tokenizer.from_str(vocabulary.text_json())
    text = "a [MASK] is [CLS]text[SEP] and <pad> </s> [PAD]"
    found = tokenizer.encode(text, add_special_tokens=False).ids
    special = {vocabulary.bos, vocabulary.pad, vocabulary.eos, vocabulary.mask}
    assert not special & set(found)


@pytest.mark.parametrize("pretty", [True, False])
@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
def test_limits_of_a_saved_tokenizer_are_cleared(
    kind: str, pretty: bool, tiny_vocabulary: Vocabulary, word_vocabularies: dict[str, Vocabulary]
) -> None:
    """The vocabulary and its sha256 are as before the call with truncation=True."""
    source = tiny_vocabulary if kind == "byte-bpe" else word_vocabularies[kind]
    tokenizer = Tokenizer.from_str(source.tokenizer_json)
    expected = vocabulary(tokenizer.to_str(pretty=pretty), "before")
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    found = vocabulary(tokenizer.to_str(pretty=pretty), "after")
    assert found.tokenizer_json == expected.tokenizer_json and found.sha256 == expected.sha256
    text = "word " * 20
    ids = Tokenizer.from_str(found.text_json()).encode(text).ids
    assert ids == Tokenizer.from_str(source.text_json()).encode(text).ids and len(ids) >= 20


def test_a_limit_is_cleared_wherever_its_key_is(tiny_vocabulary: Vocabulary) -> None:
    content = json.loads(tiny_vocabulary.tokenizer_json)
    limit = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    model = content.pop("model")
    model["vocab"] = {"truncation": len(model["vocab"])} | model["vocab"]
    odd = {"model": model, **content, "truncation": limit}
    found = json.loads(vocabulary(json.dumps(odd), "odd").tokenizer_json)
    assert found == odd | {"truncation": None}


def test_ids_that_no_text_produces_are_special() -> None:
    ids = {token: index for index, token in enumerate(BERT + WORDS)}
    cased = vocabulary(wordpiece_json(ids, lower_case=False), "toy")
    unreachable = {"##中", "##,", "..."}
    assert {token for token in WORDS if cased.special[ids[token]]} == unreachable
    assert cased.special[: len(BERT)].all()
    uncased = vocabulary(wordpiece_json(ids, lower_case=True), "toy")
    assert {t for t in WORDS if uncased.special[ids[t]]} == unreachable | {"Cat", "é"}
    assert (cased.lower_case, uncased.lower_case) == (False, True)


def test_ids_of_the_special_tokens() -> None:
    ids = {token: index for index, token in enumerate(BERT + WORDS)}
    found = vocabulary(wordpiece_json(ids, lower_case=True), "toy").describe()
    assert [found[role] for role in ("pad", "unk", "bos", "eos", "mask")] == [0, 3, 4, 5, 6]
    pieces = [*ALBERT, ("▁", -1.0), ("▁the", -2.0), (",", -2.0), ("s", -3.0), ("▁The", -3.0)]
    unigram = vocabulary(unigram_json(pieces, lower_case=True), "toy")
    assert unigram.word_starts.tolist() == [True] * 8 + [False, True]
    assert unigram.special.tolist() == [True] * 5 + [False] * 4 + [True]


BROKEN: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "BertNormalizer": ("wordpiece", lambda c: c.update(normalizer={"type": "NFC"})),
    "marks continuations": (
        "wordpiece",
        lambda c: c["model"].update(continuing_subword_prefix="@@"),
    ),
    r"lacks \[MASK\]": ("wordpiece", lambda c: c["added_tokens"].pop()),
    "two tokens one id": ("unigram", lambda c: c["model"]["vocab"].append(["e", -9.0])),
    r"tokens and an id 4,000,000,000": (
        "wordpiece",
        lambda c: c["model"]["vocab"].update(zzz=4_000_000_000),
    ),
    "Metaspace": ("unigram", lambda c: c["pre_tokenizer"]["pretokenizers"].reverse()),
    "prepend_scheme": (
        "unigram",
        lambda c: c["pre_tokenizer"]["pretokenizers"][1].update(prepend_scheme="never"),
    ),
    r"no \[UNK\] in its model": ("wordpiece", lambda c: c["model"]["vocab"].pop("[UNK]")),
    "byte_fallback": ("unigram", lambda c: c["model"].update(byte_fallback=True)),
    "unknown id": ("unigram", lambda c: c["model"].update(unk_id=2)),
}


@pytest.mark.parametrize("message", BROKEN)
def test_tokenizers_with_another_treatment_of_text_are_refused(
    message: str, word_vocabularies: dict[str, Vocabulary]
) -> None:
    kind, damage = BROKEN[message]
    content = json.loads(word_vocabularies[kind].tokenizer_json)
    damage(content)
    with pytest.raises(DataError, match=message):
        vocabulary(json.dumps(content), "broken")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (pre_tokenizers.Split(" ", "removed"), "changes the text"),
        (pre_tokenizers.Whitespace(), "BPE with pre-tokenizer Whitespace; use one of the byte"),
    ],
)
def test_byte_bpe_that_loses_text_is_refused(
    split: pre_tokenizers.PreTokenizer, message: str
) -> None:
    both = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    with pytest.raises(DataError, match=message):
        vocabulary(byte_bpe(both), "broken")
    content = json.loads(byte_bpe(SPLITS["gpt-2"]))
    for changes in (
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": content["pre_tokenizer"] | {"add_prefix_space": True}},
    ):
        with pytest.raises(DataError, match="changes the text"):
            vocabulary(json.dumps(content | changes), "broken")


def test_bpe_of_characters_is_refused_by_name() -> None:
    """Gemma's, which mmBERT has, whose pieces have `▁` for a space and bytes for the unknown."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    pieces = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    ids = {piece: index for index, piece in enumerate(pieces)}
    model = models.BPE(ids, [("▁", "a")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens(specials)
    assert tokenizer.encode("b aé").tokens == ["b", "▁a", "<0xC3>", "<0xA9>"]
    said = r"tokenizer mmBERT spells what it lacks in bytes .* as Gemma's and so mmBERT's, which"
    with pytest.raises(DataError, match=said):
        vocabulary(tokenizer.to_str(), "mmBERT")


def test_byte_bpe_that_the_fast_engine_cannot_hold_is_refused() -> None:
    content = json.loads(byte_bpe(SPLITS["gpt-2"]))
    content["model"]["dropout"] = 0.1
    with pytest.raises(DataError, match=r"model\.dropout=0\.1"):
        vocabulary(json.dumps(content), "broken")
    content = json.loads(byte_bpe(SPLITS["gpt-2"]))
    symbol = "Ŀ"  # of byte 0x9d, here a token of its own and none of the model's
    place = content["model"]["vocab"].pop(symbol)
    content["added_tokens"].append(content["added_tokens"][0] | {"id": place, "content": symbol})
    with pytest.raises(DataError, match="lacks 1 of the 256 byte symbols"):
        vocabulary(json.dumps(content), "broken")


def test_byte_bpe_with_special_tokens_of_bert() -> None:
    found = vocabulary(byte_bpe(SPLITS["cl100k"]), "toy")
    assert found.names == SPECIALS[WORDPIECE]
    assert [found.pad, found.unk, found.bos, found.eos, found.mask] == [0, 1, 2, 3, 4]
    assert found.special[:5].all() and not found.special[5:].any()


def test_letters_of_scripts_without_spaces_start_words_in_wordpiece() -> None:
    words = ["##ん", "ん", "##ab", "##บ", "##ั", "##中国", "中", "##한", "##𠀀"]
    ids = {token: index for index, token in enumerate(BERT + words)}
    found = vocabulary(wordpiece_json(ids, lower_case=False, ideographs_apart=False), "toy")
    starts = {token for token in words if found.word_starts[ids[token]]}
    assert starts == {"##ん", "ん", "##บ", "##中国", "中", "##𠀀"}


def test_letters_of_scripts_without_spaces_start_words_in_unigram() -> None:
    texts = ["▁中", "中", "国中", "a中", "ん", "บ", "ั", "한", "▁"]
    found = vocabulary(
        unigram_json([*ALBERT, *((text, -1.0) for text in texts)], lower_case=False), "toy"
    )
    starts = {text for text, flag in zip(texts, found.word_starts[len(ALBERT) :]) if flag}
    assert starts == {"▁中", "中", "国中", "ん", "บ", "▁"}


def test_words_of_text_without_spaces_are_its_letters_in_gpt2s_vocabulary(real_data: Path) -> None:
    """The first token of every Han letter starts a word; so do words after a space."""
    found = read_vocabulary(real_data / "tokenizers" / "gpt2")
    tokenizer = Tokenizer.from_str(found.text_json())
    for text, words in (
        ("天地玄黄宇宙", ["天", "地", "玄", "黄", "宇", "宙"]),
        ("こんにちは世界。", ["こ", "ん", "に", "ち", "は", "世", "界。"]),
        ("กขคง", ["ก", "ข", "ค", "ง"]),
        ("the cat中文 sat", ["the", " cat", "中", "文", " sat"]),
        ("서울 도시, naïve café", ["서울", " 도시,", " naïve", " café"]),
    ):
        ids = np.array(tokenizer.encode(text).ids)
        edges = np.flatnonzero(np.append(found.word_starts[ids], True))
        edges = np.union1d(edges, [0])
        pieces = [tokenizer.decode(ids[a:b].tolist()) for a, b in itertools.pairwise(edges)]
        assert pieces == words


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["a", "##ん"], True), (["a", "ん", "中"], False), (["a", "##b"], False), (["##中"], False)],
)
def test_letters_that_can_start_a_word_in_the_middle_are_found(
    words: list[str], expected: bool
) -> None:
    """Not `##中`, which no text produces: ideographs are words of their own there."""
    ids = {token: index for index, token in enumerate(BERT + words)}
    found = vocabulary(wordpiece_json(ids, lower_case=False), "toy")
    assert found.has_spaceless_letters is expected
