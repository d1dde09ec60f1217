"""tokenizer.json of each kind: what it does to a text, by hand."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from pipeline.data.tokenizers.definitions import (
    BYTE_BPE,
    SPECIALS,
    UNIGRAM,
    WORDPIECE,
    byte_bpe_json,
    unigram_json,
    unigram_normalizer,
    wordpiece_json,
)


def tokenizer(kind: str, lower_case: bool = False) -> Tokenizer:
    specials = list(SPECIALS[kind].values())
    if kind == UNIGRAM:
        pieces = [*specials, "▁", "▁a", "b", "▁ab"]
        text = unigram_json(
            [(piece, -float(number)) for number, piece in enumerate(pieces)], lower_case=lower_case
        )
    elif kind == WORDPIECE:
        names = [*specials, "a", "##b", "##a", ",", "中"]
        text = wordpiece_json({n: i for i, n in enumerate(names)}, lower_case=lower_case)
    else:
        names = [*specials, "a", "b", "ab", "Ġ", "Ġa"]
        ids = {name: number for number, name in enumerate(names)}
        text = byte_bpe_json(ids, [("a", "b"), ("Ġ", "a")])
    return Tokenizer.from_str(text)


@pytest.mark.parametrize("kind", SPECIALS)
def test_special_tokens_have_the_first_ids_and_enclose_a_text(kind: str) -> None:
    found = tokenizer(kind)
    assert [found.token_to_id(token) for token in SPECIALS[kind].values()] == [0, 1, 2, 3, 4]
    tokens = found.encode("ab").tokens
    assert (tokens[0], tokens[-1]) == (SPECIALS[kind]["bos"], SPECIALS[kind]["eos"])


@pytest.mark.parametrize(
    ("kind", "lower_case", "text", "expected"),
    [
        (BYTE_BPE, False, "ab a", ["ab", "Ġa"]),
        (WORDPIECE, False, "aba, a", ["a", "##b", "##a", ",", "a"]),
        (WORDPIECE, False, "A", ["[UNK]"]),
        (WORDPIECE, True, "ÁB", ["a", "##b"]),
        (WORDPIECE, False, "a中a", ["a", "中", "a"]),
        (WORDPIECE, False, "a" * 101, ["[UNK]"]),
        (UNIGRAM, False, "a ab", ["▁a", "▁ab"]),
        (UNIGRAM, True, "Áb", ["▁ab"]),
    ],
)
def test_text_to_tokens(kind: str, lower_case: bool, text: str, expected: list[str]) -> None:
    found = tokenizer(kind, lower_case).encode(text, add_special_tokens=False).tokens
    assert found == expected


@pytest.mark.parametrize("kind", [WORDPIECE, UNIGRAM])
def test_the_second_segment_and_its_end_are_of_type_1(kind: str) -> None:
    assert tokenizer(kind).encode("a", "a").type_ids == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "spaced"), [(BYTE_BPE, True), (WORDPIECE, False), (UNIGRAM, True)]
)
def test_whether_the_mask_takes_the_space_before_it(kind: str, spaced: bool) -> None:
    found = tokenizer(kind)
    mask = SPECIALS[kind]["mask"]
    tokens = found.encode(f"a {mask}", add_special_tokens=False).tokens
    assert tokens[-1] == (f" {mask}" if spaced else mask)


def test_the_unigram_normalizer_is_that_of_albert() -> None:
    assert unigram_normalizer(False).normalize_str("``Éﬁ''") == '"Éfi"'
    assert unigram_normalizer(True).normalize_str("``Éﬁ''") == '"efi"'
