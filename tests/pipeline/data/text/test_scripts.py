"""Tests of scripts."""

import sys
import unicodedata

import numpy as np
import pytest

from pipeline.data.text.scripts import CODE_POINTS, SPACELESS

NAMES = (
    "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC ", "VERTICAL IDEOGRAPHIC ",
    "HANGZHOU NUMERAL ", "OLD CHINESE ", "HIRAGANA ", "HENTAIGANA ", "VERTICAL KANA ", "MASU MARK",
    "KATAKANA ", "KATAKANA-HIRAGANA ", "HALFWIDTH KATAKANA", "THAI ", "LAO ", "KHMER ", "MYANMAR ",
    "TIBETAN ",
)  # fmt: skip
"""How the names of their letters begin."""


def test_the_letters_of_scripts_without_spaces_are_those_with_their_names() -> None:
    assert SPACELESS.shape == (CODE_POINTS,) and CODE_POINTS == sys.maxunicode + 1
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
