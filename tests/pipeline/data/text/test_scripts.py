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
        if category == "Cn":  # not assigned
            continue
        named = unicodedata.name(character, "").startswith(NAMES)
        expected = named and (category[0] == "L" or category == "Nl")
        if SPACELESS[code] != expected:
            wrong.append(f"U+{code:04X} {unicodedata.name(character, '')}")
    assert wrong == []


def test_letters_of_all_planes_belong_to_them() -> None:
    """Marks, digits, punctuation and letters of other scripts do not; the table is read-only."""
    for character in "𠀀\U0002ebf0\U000323b0〇々ｱー𛀂ꩠཀកກ":
        assert SPACELESS[ord(character)], character
    for character in "aＡ한。・ั๑༌฿йⴰ":
        assert not SPACELESS[ord(character)], character
    with pytest.raises(ValueError, match="read-only"):
        SPACELESS[0] = np.True_


def test_bytes_of_a_letter_begin_it() -> None:
    """Those of another character do not; a fragment does if its script is decided."""
    for text in ("中", "中国", "中abc", "あ", "カ", "ｱ", "ก", "ກ", "ក", "မ", "བ", "𠀀"):
        assert begins_spaceless(text.encode()), text
    for text in ("a中", *"aéд한ا。、「　・ั๑፩😀฿䷀"):
        assert not begins_spaceless(text.encode()), text
    for cut, begins in (
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
    ):  # fmt: skip
        assert begins_spaceless(bytes.fromhex(cut)) is begins, cut
