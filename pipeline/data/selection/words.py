"""The words of text, for filters and for runs of words.

A word is a run of letters, marks and numbers by their Unicode categories, with ASCII in lower case;
it starts with a letter or number. In scripts written without spaces each letter, with the marks
after it, is a word. Every other character separates words.
"""

from __future__ import annotations

import string
import unicodedata
from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.text.scripts import CODE_POINTS, SPACELESS
from pipeline.kernels.bits import GOLDEN, Bytes, Offsets, U, mix
from pipeline.kernels.characters import decode_character

NO_WORD = U(0)
"""Returned by `next_word` at the end of a document."""
HASH_BASE = U(0x9FB21C651E98DF25)
"""Base of the polynomials that hash the code points of words, and the words of runs."""
SEPARATOR, MARK, NUMBER, LETTER, ALONE = range(5)
"""Kinds of characters; ALONE: a letter that is a word."""


def count_words(buffer: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]:
    """[documents, 2] number of words, and of words with a letter; documents as in `CleanText`."""
    counts = np.zeros((len(offsets) - 1, 2), np.int64)
    _count_words(buffer, offsets, character_kinds(), counts)
    return counts


@lru_cache(maxsize=1)
def character_kinds() -> Bytes:
    """[0x110000] the kind of each character.

    A character that this Python's Unicode does not know is a letter: new scripts are added each
    year, and a document in one of them must not be without words.
    """
    kinds = np.full(CODE_POINTS, LETTER, np.uint8)
    by_category = {"L": LETTER, "M": MARK, "N": NUMBER}
    # planes 2 and 3 hold ideographs, 4 to 13 nothing, 14 variation selectors, then private use
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        category = unicodedata.category(chr(code))
        if category != "Cn":
            kinds[code] = by_category.get(category[0], SEPARATOR)
    kinds[0xF0000:] = SEPARATOR
    # after the categories, by which these are ordinary letters
    kinds[SPACELESS] = ALONE
    return kinds


_LOWER = np.zeros(256, np.uint8)
"""ASCII letters and digits in lower case, 0 for other characters."""
for _character in string.ascii_letters + string.digits:
    _LOWER[ord(_character)] = ord(_character.lower())


# inline: passing `kinds` to a function at every word would cost a fourth of the speed
@numba.njit(cache=True, nogil=True, inline="always")
def next_word(buffer, at, stop, kinds):  # type: ignore[no-untyped-def]
    """Position after the next word, its hash or NO_WORD, and whether it has a letter.

    buffer: uint8, valid UTF-8; kinds: as `character_kinds` returns them.
    """
    word = U(0)
    letters = False
    while at < stop:
        byte = buffer[U(at)]
        if byte < 0x80:
            at += 1
            lower = _LOWER[byte]
            if lower:
                letters |= lower >= 97
                word = (word ^ U(lower) ^ GOLDEN) * HASH_BASE
            elif word != NO_WORD:
                break
            continue
        code, length = decode_character(buffer, at)
        kind = kinds[U(code)]
        if word != NO_WORD:
            if kind in (SEPARATOR, ALONE):
                break
        elif kind <= MARK:  # a mark starts no word
            at += length
            continue
        letters |= kind >= LETTER
        word = (word ^ U(code) ^ GOLDEN) * HASH_BASE
        at += length
        if kind == ALONE:
            # there are no marks in U+4000-9FFF, where most ideographs are
            while at < stop and not 0xE4 <= buffer[U(at)] <= 0xE9 and buffer[U(at)] >= 0x80:
                code, length = decode_character(buffer, at)
                if kinds[U(code)] != MARK:
                    break
                word = (word ^ U(code) ^ GOLDEN) * HASH_BASE
                at += length
            break
    return at, (mix(word) | U(1) if word != NO_WORD else NO_WORD), letters  # odd: not NO_WORD


@numba.njit(cache=True, nogil=True)
def _count_words(buffer, offsets, kinds, counts):  # type: ignore[no-untyped-def]
    """Add up words, and those with a letter, in counts, int64 [documents, 2]."""
    for document in range(len(offsets) - 1):
        at, stop = offsets[document], offsets[document + 1] - 1
        while True:
            at, word, letters = next_word(buffer, at, stop, kinds)
            if word == NO_WORD:
                break
            counts[document, 0] += 1
            counts[document, 1] += letters
