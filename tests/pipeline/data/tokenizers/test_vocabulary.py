"""Tables of WordPiece and unigram vocabularies, against `tokenizers` on real text."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from pipeline.base.errors import DataError
from pipeline.data.tokenizers.definitions import unigram_json
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.byte_bpe import SPLITS, byte_bpe
from tests.pipeline.data.tokenizers.conftest import WORD_KINDS, toy

BERT = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "##s", "##中", "中", "##,", ",", "...", "Cat", "é"]
ALBERT = [(token, 0.0) for token in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]


@pytest.mark.parametrize("kind", WORD_KINDS)
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
            expected |= [not any(map(str.isalnum, token)) for token in encoding.tokens]
            expected |= ids == vocabulary.unk
        after_special = np.append(False, vocabulary.special[ids[:-1]])
        found = vocabulary.word_starts[ids] | after_special
        assert np.array_equal(found, expected | after_special)
        starts, inner = starts + int(expected.sum()), inner + int((~expected).sum())
    assert starts > 80_000 and inner > 30_000


def test_literal_special_tokens_stay_text(vocabularies: dict[str, Vocabulary]) -> None:
    text = "a [MASK] is [CLS]text[SEP] and <pad> </s> [PAD] <s> <mask>"
    for kind, found in vocabularies.items():
        ids = Tokenizer.from_str(found.text_json()).encode(text, add_special_tokens=False).ids
        assert not {found.bos, found.pad, found.eos, found.mask} & set(ids), kind
        assert kind != "byte-bpe" or found.byte_lengths[ids].sum() == len(text)


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
def test_limits_of_a_saved_tokenizer_are_cleared(
    kind: str, vocabularies: dict[str, Vocabulary]
) -> None:
    """The vocabulary and its sha256 are as before the call with truncation=True."""
    source = vocabularies[kind]
    wanted = Tokenizer.from_str(source.text_json()).encode("word " * 20).ids
    for pretty in (True, False):
        tokenizer = Tokenizer.from_str(source.tokenizer_json)
        expected = vocabulary(tokenizer.to_str(pretty=pretty), "before")
        tokenizer.enable_truncation(8)
        tokenizer.enable_padding(length=16)
        found = vocabulary(tokenizer.to_str(pretty=pretty), "after")
        assert found.tokenizer_json == expected.tokenizer_json and found.sha256 == expected.sha256
        ids = Tokenizer.from_str(found.text_json()).encode("word " * 20).ids
        assert ids == wanted and len(ids) >= 20


def test_a_limit_is_cleared_wherever_its_key_is(tiny_vocabulary: Vocabulary) -> None:
    content = json.loads(tiny_vocabulary.tokenizer_json)
    limit = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    model = content.pop("model")
    model["vocab"] = {"truncation": len(model["vocab"])} | model["vocab"]
    odd = {"model": model, **content, "truncation": limit}
    found = json.loads(vocabulary(json.dumps(odd), "odd").tokenizer_json)
    assert found == odd | {"truncation": None}


def test_ids_that_no_text_produces_are_special() -> None:
    tokens = BERT + WORDS
    cased, uncased = toy(tokens), toy(tokens, lower_case=True)
    unreachable = {"##中", "##,", "..."}
    assert {t for t in WORDS if cased.special[tokens.index(t)]} == unreachable
    assert {t for t in WORDS if uncased.special[tokens.index(t)]} == unreachable | {"Cat", "é"}
    assert cased.special[: len(BERT)].all()
    assert (cased.lower_case, uncased.lower_case) == (False, True)
    found = uncased.describe()
    assert [found[role] for role in ("pad", "unk", "bos", "eos", "mask")] == [0, 3, 4, 5, 6]
    pieces = [*ALBERT, ("▁", -1.0), ("▁the", -2.0), (",", -2.0), ("s", -3.0), ("▁The", -3.0)]
    unigram = vocabulary(unigram_json(pieces, lower_case=True), "toy")
    assert unigram.word_starts.tolist() == [True] * 8 + [False, True]
    assert unigram.special.tolist() == [True] * 5 + [False] * 4 + [True]


@pytest.mark.parametrize(
    ("kind", "said", "damage"),
    [
        ("wordpiece", "BertNormalizer", lambda c: c.update(normalizer={"type": "NFC"})),
        ("wordpiece", "marks continuations",
         lambda c: c["model"].update(continuing_subword_prefix="@@")),
        ("wordpiece", r"lacks \[MASK\]", lambda c: c["added_tokens"].pop()),
        ("wordpiece", "an id 4,000,000,000",
         lambda c: c["model"]["vocab"].update(zzz=4_000_000_000)),
        ("wordpiece", r"no \[UNK\] in its model", lambda c: c["model"]["vocab"].pop("[UNK]")),
        ("unigram", "two tokens one id", lambda c: c["model"]["vocab"].append(["e", -9.0])),
        ("unigram", "Metaspace", lambda c: c["pre_tokenizer"]["pretokenizers"].reverse()),
        ("unigram", "prepend_scheme",
         lambda c: c["pre_tokenizer"]["pretokenizers"][1].update(prepend_scheme="never")),
        ("unigram", "byte_fallback", lambda c: c["model"].update(byte_fallback=True)),
        ("unigram", "unknown id", lambda c: c["model"].update(unk_id=2)),
        ("byte-bpe", "lacks 1 of the 256 byte symbols", lambda c: c["model"]["vocab"].pop("Ã")),
        ("byte-bpe", r"model\.dropout=0\.1", lambda c: c["model"].update(dropout=0.1)),
        ("byte-bpe", "two tokens one id", lambda c: c["model"]["vocab"].update({"!": 40})),
        ("byte-bpe", "lacks <mask>", lambda c: c["added_tokens"].pop()),
        ("byte-bpe", "changes the text", lambda c: c.update(normalizer={"type": "NFKC"})),
        ("byte-bpe", "changes the text",
         lambda c: c["pre_tokenizer"].update(add_prefix_space=True)),
        ("byte-bpe", "byte-level kind", lambda c: c["pre_tokenizer"].update(type="Whitespace")),
        ("byte-bpe", "can be prepared", lambda c: c["model"].update(type="WordLevel")),
    ],
)  # fmt: skip
def test_tokenizers_with_another_treatment_of_text_are_refused(
    kind: str, said: str, damage: Callable[[Any], object], vocabularies: dict[str, Vocabulary]
) -> None:
    content = json.loads(vocabularies[kind].tokenizer_json)
    damage(content)
    with pytest.raises(DataError, match=said):
        vocabulary(json.dumps(content), "broken")


def test_byte_bpe_that_loses_text_is_refused() -> None:
    for split, message in (
        (pre_tokenizers.Split(" ", "removed"), "changes the text"),
        (pre_tokenizers.Whitespace(), "BPE with pre-tokenizer Whitespace"),
    ):
        both = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
        with pytest.raises(DataError, match=message):
            vocabulary(byte_bpe(both), "broken")
    content = json.loads(byte_bpe(SPLITS["gpt-2"]))
    symbol = "Ŀ"  # of byte 0x9d, here a token of its own and none of the model's
    place = content["model"]["vocab"].pop(symbol)
    content["added_tokens"].append(content["added_tokens"][0] | {"id": place, "content": symbol})
    with pytest.raises(DataError, match="lacks 1 of the 256 byte symbols"):
        vocabulary(json.dumps(content), "broken")


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
    with pytest.raises(DataError, match="tokenizer mmBERT spells what it lacks in bytes"):
        vocabulary(tokenizer.to_str(), "mmBERT")


def test_letters_of_scripts_without_spaces_start_words() -> None:
    """Also in the middle; not `##中`, which no text of BERT's produces: ideographs are words of
    their own there."""
    words = ["##ん", "ん", "##ab", "##บ", "##ั", "##中国", "中", "##한", "##𠀀"]
    found = toy(BERT + words, ideographs_apart=False)
    starts = {word for word, flag in zip(words, found.word_starts[len(BERT) :]) if flag}
    assert starts == {"##ん", "ん", "##บ", "##中国", "中", "##𠀀"}
    texts = ["▁中", "中", "国中", "a中", "ん", "บ", "ั", "한", "▁"]
    pieces = [*ALBERT, *((text, -1.0) for text in texts)]
    found = vocabulary(unigram_json(pieces, lower_case=False), "toy")
    starts = {text for text, flag in zip(texts, found.word_starts[len(ALBERT) :]) if flag}
    assert starts == {"▁中", "中", "国中", "ん", "บ", "▁"}
    assert toy([*BERT, "a", "##ん"]).has_spaceless_letters
    for others in (["a", "ん", "中"], ["a", "##b"], ["##中"]):
        assert not toy(BERT + others).has_spaceless_letters, others


def test_words_of_text_without_spaces_are_its_letters_in_gpt2s(gpt2: Vocabulary) -> None:
    """The first token of every Han letter starts a word; so do words after a space."""
    tokenizer = Tokenizer.from_str(gpt2.text_json())
    for text, words in (
        ("天地玄黄宇宙", ["天", "地", "玄", "黄", "宇", "宙"]),
        ("こんにちは世界。", ["こ", "ん", "に", "ち", "は", "世", "界。"]),
        ("กขคง", ["ก", "ข", "ค", "ง"]),
        ("the cat中文 sat", ["the", " cat", "中", "文", " sat"]),
        ("서울 도시, naïve café", ["서울", " 도시,", " naïve", " café"]),
    ):
        ids = np.array(tokenizer.encode(text).ids)
        edges = np.flatnonzero(np.append(gpt2.word_starts[ids], True))
        edges = np.union1d(edges, [0])
        pieces = [tokenizer.decode(ids[a:b].tolist()) for a, b in itertools.pairwise(edges)]
        assert pieces == words
