"""Scripts written without spaces between words, and where lines break, as tables of code points.

Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar and Tibetan. Ranges are those of the blocks in
Unicode 16.0 (Blocks.txt and Scripts.txt); within the smaller blocks the category of this Python's
`unicodedata` separates letters from marks, digits and punctuation.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import numpy.typing as npt

CODE_POINTS = 0x110000
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),  # extension A
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),  # compatibility
    (0x20000, 0x3FFFD),  # planes 2 and 3, which Unicode reserves for ideographs
)
"""First and last code points of blocks that hold nothing but ideographs, now or later."""
_BLOCKS = {
    # iteration marks, the closing mark, zero and the Hangzhou numerals; of the Tangut block one
    "Han": ((0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x16FE3, 0x16FE3)),
    "Hiragana": ((0x3031, 0x3035), (0x303C, 0x303C), (0x3041, 0x309F)),
    "Katakana": ((0x30A0, 0x30FF), (0x31F0, 0x31FF), (0xFF65, 0xFF9F)),
    "kana supplements": ((0x1AFF0, 0x1AFFF), (0x1B000, 0x1B16F)),
    "Thai": ((0x0E00, 0x0E7F),),
    "Lao": ((0x0E80, 0x0EFF),),
    "Tibetan": ((0x0F00, 0x0FFF),),
    "Myanmar": ((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0x116D0, 0x116FF)),
    "Khmer": ((0x1780, 0x17FF),),
}
"""Blocks, or parts of blocks, that hold letters among other characters."""


def _members(categories: str) -> npt.NDArray[np.bool_]:
    """[0x110000] ideographs, and characters of the other blocks that have one of `categories`."""
    table = np.zeros(CODE_POINTS, np.bool_)
    for first, last in _IDEOGRAPHS:
        table[first : last + 1] = True
    for blocks in _BLOCKS.values():
        for first, last in blocks:
            for code in range(first, last + 1):
                table[code] = unicodedata.category(chr(code)) in categories.split()
    table.setflags(write=False)
    return table


SPACELESS = _members("Lo Lm Nl")
"""[0x110000] True for letters of scripts without spaces; marks, digits and punctuation are False.
A mark such as a Thai vowel sign belongs to the letter before it."""
_WITH_MARKS_AND_DIGITS = _members("Lo Lm Nl Mn Mc Nd No")


def begins_spaceless(token: bytes) -> bool:
    """True if the first byte of a token begins a letter of SPACELESS.

    token: UTF-8 that may be cut anywhere, as the tokens of byte-level BPE are. If its first
    character is cut off, the script decides: every letter, mark or digit that these bytes can begin
    must belong to a script without spaces. False if they can begin others, too, and if the token
    starts in the middle of a character.
    """
    if not token or token[0] < 0xC0:
        return False
    width = 1 + sum(token[0] >= lead for lead in (0xC0, 0xE0, 0xF0))
    head, missing = token[:width], max(0, width - len(token))
    # the bits of a lead byte that belong to the code point
    bits = head[0] & (0x7F >> width)
    for byte in head[1:]:
        bits = bits << 6 | byte & 0x3F
    shortest = (0, 0, 0x80, 0x800, 0x10000)[width]  # no character has a longer form than it needs
    # all characters that the missing bytes could complete
    first = max(bits << 6 * missing, shortest)
    last = min((bits + 1) << 6 * missing, CODE_POINTS)
    if not missing:
        return bool(SPACELESS[first:last].any())
    return bool(SPACELESS[first:last].any()) and all(
        _WITH_MARKS_AND_DIGITS[code] or unicodedata.category(chr(code))[0] not in "LMN"
        for code in range(first, last)
    )


# Traits of a character. Two characters need no space between them if the sum of the pull of the
# first to what follows and of the second to what precedes is TOUCH.
# A mask of the columns, the shifts of both pulls, a flag of narrow scripts.
COLUMNS_MASK, PULL_AFTER, PULL_BEFORE, NARROW_FLAG = 3, 2, 4, 64
AS_BEFORE = 3  # as many columns as the character before it has
_AMBIGUOUS, PULL_OF_LETTER, _PUNCTUATION, TOUCH = 1, 2, 3, 3
_WIDE_BLOCKS = (
    (0x1100, 0x115F),
    (0x2E80, 0x303E),
    (0x3041, 0xA4CF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE10, 0xFE19),
    (0xFE30, 0xFE6F),
    (0xFF01, 0xFF60),
    (0xFFE0, 0xFFE6),
)
_NARROW_BLOCKS = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),
)
_INSIDE_WORDS = "\u0f0b\u0f0c၌၍၎၏"
"""Punctuation of Tibetan and Burmese that no space follows."""
_WIDE_MARKS = ((0x3000, 0x303F), (0x30A0, 0x30FF), (0xFE30, 0xFE6F), (0xFF01, 0xFF64))


def _line_traits() -> npt.NDArray[np.uint8]:
    """Columns and pulls of each code point below 65,536."""
    table = np.ones(1 << 16, np.uint8)
    for first, last in _WIDE_BLOCKS:
        table[first : last + 1] = 2
    categories = [unicodedata.category(chr(code)) for code in range(0xAC00)]
    table[np.flatnonzero(np.isin(categories, ["Mn", "Me", "Cf"]))] = 0
    table[0x1160:0x1200] = table[0xFE00:0xFE10] = table[0xFE20:0xFE30] = 0  # joined to others
    both = 1 << PULL_AFTER | 1 << PULL_BEFORE
    letter, punctuation = both * PULL_OF_LETTER, both * _PUNCTUATION
    for first, last in _WIDE_MARKS:
        for code in range(first, last + 1):
            is_letter = unicodedata.category(chr(code))[0] in "LMN"
            table[code] |= letter if is_letter else punctuation
    table[SPACELESS[: len(table)]] |= np.uint8(letter)
    for first, last in _NARROW_BLOCKS:
        for code in range(first, last + 1):
            if categories[code][0] in "LMN" or chr(code) in _INSIDE_WORDS:
                table[code] |= letter | NARROW_FLAG
            elif categories[code] == "Po":  # a stop, which a space follows
                table[code] |= PULL_OF_LETTER << PULL_BEFORE
    for character in "“”‘’—…·":
        table[ord(character)] = AS_BEFORE | both * _AMBIGUOUS
    return table


LINE_TRAITS = _line_traits()
"""[0x10000] columns and pulls."""
