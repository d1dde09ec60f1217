"""Tests of scripts."""

import sys
import unicodedata

import numpy as np
import pytest

from pipeline.data.text.scripts import CODE_POINTS, SPACELESS, begins_spaceless

NAMES = (
    "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC ", "VERTICAL IDEOGRAPHIC ",
    "HANGZHOU NUMERAL ", "OLD CHINESE ", "HIRAGANA ", "HENTAIGANA ", "VERTICAL KANA ", "MASU MARK",
    "KATAKANA ", "KATAKANA-HIRAGANA ", "HALFWIDTH KATAKANA", "THAI ", "LAO ", "KHMER ", "MYANMAR ",
    "TIBETAN ",
)  # fmt: skip
"""How the names of their letters begin."""


def test_the_letters_of_scripts_without_spaces_are_those_with_their_names() -> None:
    assert SPACELESS.shape == (CODE_POINTS,) and sys.maxunicode + 1 == CODE_POINTS
    wrong = []
    for code in range(CODE_POINTS):
        character = chr(code)
        category = unicodedata.category(character)
        named = unicodedata.name(character, "").startswith(NAMES)
        expected = named and (category[0] == "L" or category == "Nl")
        if bool(SPACELESS[code]) != expected and category != "Cn":
            wrong.append(f"U+{code:04X} {unicodedata.name(character, '')}")
    assert wrong == []


@pytest.mark.parametrize(
    "character", ["𠀀", "\U0002ebf0", "\U000323b0", "〇", "々", "ｱ", "ー", "𛀂", "ꩠ", "ཀ", "ក", "ກ"]
)
def test_extensions_of_all_planes_belong_to_them(character: str) -> None:
    assert SPACELESS[ord(character)]


@pytest.mark.parametrize("character", ["a", "Ａ", "한", "。", "・", "ั", "๑", "༌", "฿", "й", "ⴰ"])
def test_marks_digits_punctuation_and_other_scripts_do_not(character: str) -> None:
    assert not SPACELESS[ord(character)]


def test_the_table_is_shared_and_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        SPACELESS[0] = np.True_


@pytest.mark.parametrize(
    "text", ["中", "中国", "中abc", "あ", "カ", "ｱ", "ก", "ກ", "ក", "မ", "བ", "𠀀"]
)
def test_bytes_of_a_letter_begin_it(text: str) -> None:
    assert begins_spaceless(text.encode())


@pytest.mark.parametrize(
    "text",
    ["a", "a中", "é", "д", "한", "ا", "。", "、", "「", "　", "・", "ั", "๑", "፩", "😀", "฿", "䷀"],
)
def test_bytes_of_another_character_begin_none(text: str) -> None:
    assert not begins_spaceless(text.encode())


@pytest.mark.parametrize(
    ("cut", "begins"),
    [
        ("E4", True),  # U+4000-4FFF: Han, and 64 hexagrams, which are symbols
        ("E4 B8", True), ("E8", True), ("F0 A0", True), ("F0 A0 80", True),
        ("E3 81", True), ("E3 83", True),  # kana; the middle dot is punctuation
        ("E0 B8", True), ("E0 B9", True),  # Thai; the baht is a symbol
        ("E0 BA", True), ("E0 BD", True), ("E1 80", True), ("E1 9E", True),
        ("E3 80", False),  # the letter 々, and the marks of Hangul's tones
        ("E3", False),  # kana, Han, Bopomofo, Hangul
        ("E0", False), ("E1", False), ("F0", False), ("F4", False),
        ("E1 82", False),  # Myanmar and Georgian
        ("EF BD", False), ("EF BE", False),  # halfwidth katakana beside Latin and Hangul
        ("E2 80", False),  # punctuation alone
        ("B8 AD", False), ("80", False),  # in the middle of a character
        ("AD E4 B8 AD", False),
    ],
)  # fmt: skip
def test_a_fragment_begins_one_if_its_script_is_decided(cut: str, begins: bool) -> None:
    assert begins_spaceless(bytes.fromhex(cut)) is begins
