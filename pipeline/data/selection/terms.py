"""Terms of text, as the rule sets of papers count them: words and symbols.

Tokenizers of words set punctuation apart, so a document's share of words with a letter depends on
it. The rules here give about the terms of spaCy's English tokenizer, without its word lists:

1. A run of letters, marks and numbers is a term; so is each letter of a script without spaces.
2. Inside a run, what usually belongs to it joins its halves: `_`, `@` and `&`; `. , : /` between
   digits; a hyphen between a digit and a letter; a period between letters, unless a sentence ends
   there ("end.Next"); a joiner. The period after a single capital letter belongs to it ("J.").
3. An apostrophe between letters starts a term: "don't" is don and 't.
4. From "://" on a term goes up to the next white space.
5. Any other character is a term; so is a run of periods or of hyphens.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.selection.words import ALONE, HASH_BASE, LETTER, MARK, NUMBER, character_kinds
from pipeline.kernels.bits import GOLDEN, Bytes, Offsets, U, mix
from pipeline.kernels.characters import decode_character

HAS_LETTER, IS_SYMBOL = 1, 2
"""Flags of terms: has a letter; is punctuation, of which ASCII's other signs are some."""
TERMS_VERSION = 1
"""Increased when the same text gives other terms."""

_SYMBOL, _JOINER = 5, 6
"""Kinds of characters besides those of `words`: punctuation, and joiners (ZWJ, ZWNJ)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of documents, in order."""

    spans: npt.NDArray[np.int64]
    """[terms, 2] where each starts and stops in the buffer."""
    hashes: npt.NDArray[np.uint64]
    """[terms] of its characters; case counts."""
    lengths: npt.NDArray[np.int32]
    """[terms] in characters."""
    flags: npt.NDArray[np.uint8]
    """[terms] HAS_LETTER, IS_SYMBOL."""
    bounds: Offsets
    """[documents + 1] document i has the terms `bounds[i]` to `bounds[i + 1]`."""

    def add_up(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        """[documents] sums of integers [terms]."""
        sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        return np.asarray(np.diff(sums[self.bounds]))


def find_terms(buffer: Bytes, offsets: Offsets) -> Terms:
    """The terms of documents as in `CleanText`."""
    most = len(buffer)  # untouched memory of these arrays costs nothing
    spans, hashes = np.empty((most, 2), np.int64), np.empty(most, np.uint64)
    lengths, flags = np.empty(most, np.int32), np.empty(most, np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    count = _find_terms(buffer, offsets, _kinds(), spans, hashes, lengths, flags, bounds)
    return Terms(spans[:count], hashes[:count], lengths[:count], flags[:count], bounds)


def hash_term(text: str) -> int:
    """The hash of a term."""
    word = U(0)
    with np.errstate(over="ignore"):
        for character in text:
            word = (word ^ U(ord(character)) ^ GOLDEN) * HASH_BASE
        return int(mix.py_func(word))


@lru_cache(maxsize=1)
def _kinds() -> Bytes:
    """[0x110000] the kind of each character, as in `words`, with punctuation and joiners."""
    kinds: Bytes = character_kinds().copy()
    for code in range(0x20000):  # later planes hold no punctuation
        if unicodedata.category(chr(code))[0] == "P" or chr(code) in "$+<=>^`|~":
            kinds[code] = _SYMBOL
    kinds[[0x200C, 0x200D]] = _JOINER
    return kinds


@numba.njit(cache=True, nogil=True, inline="always")
def _character(buffer, at):  # type: ignore[no-untyped-def]
    """The character at `at` and its length in bytes."""
    if buffer[U(at)] < 0x80:
        return np.int64(buffer[U(at)]), 1
    return decode_character(buffer, at)


@numba.njit(cache=True, nogil=True)
def _joins(code, before, last, after, kinds):  # type: ignore[no-untyped-def]
    """1 if a character joins what is around it, 2 if it starts a term, 0 if it ends one.

    before, last, after: the two characters before it and the one after it; 0 for none.
    """
    kind, ahead = kinds[U(last)], kinds[U(after)]
    if code == 46 and 65 <= last <= 90 and not 65 <= before <= 90 and ahead != NUMBER:
        return 1  # J. or U.S.
    if kind not in (LETTER, NUMBER, MARK) or ahead not in (LETTER, NUMBER):
        return 0
    digits = (kind == NUMBER) + (ahead == NUMBER)
    if code in (95, 64, 38):  # _ @ &
        return 1
    if code == 45:  # -
        return 1 if digits == 1 else 0
    if code in (44, 58, 47):  # , : /
        return 1 if digits == 2 else 0
    if code == 46:  # .
        return 0 if 97 <= last <= 122 and 65 <= after <= 90 else 1
    if code in (39, 0x2019):
        return 2 if digits == 0 else 0
    return 0


@numba.njit(cache=True, nogil=True)
def _find_terms(  # type: ignore[no-untyped-def]
    buffer, offsets, kinds, spans, hashes, lengths, flags, bounds
):
    """Fill the arrays of `Terms`; returns the number of terms."""
    count = 0
    for document in range(len(offsets) - 1):
        at, stop = offsets[document], offsets[document + 1] - 1
        while at < stop:
            code, width = _character(buffer, at)
            if code <= 32:
                at += 1
                continue
            start, word, length, flag = at, U(0), 0, 0
            kind = kinds[U(code)]
            in_word, is_alone, apostrophe = MARK <= kind <= LETTER, kind == ALONE, False
            before, last = np.int64(0), np.int64(0)
            while True:
                # 1. take the character
                word = (word ^ U(code) ^ GOLDEN) * HASH_BASE
                length += 1
                if kind in (LETTER, ALONE):
                    flag = HAS_LETTER
                before, last = last, code
                at += width
                if at >= stop:
                    break
                # 2. does the next one belong to the term?
                code, width = _character(buffer, at)
                kind = kinds[U(code)]
                if code <= 32:
                    break
                if not in_word:
                    # runs of hyphens or of periods are one term
                    if (is_alone and kind == MARK) or (code == last and 45 <= code <= 46):
                        continue
                    break
                if MARK <= kind <= LETTER or kind == _JOINER:
                    continue
                after = np.int64(0)
                if at + width < stop:
                    after, _ = _character(buffer, at + width)
                joins = _joins(code, before, last, after, kinds)
                if joins == 1:
                    continue
                # the term ends here, and the apostrophe opens the next one (3.)
                if joins == 2:
                    apostrophe = True
                    break
                if (
                    code == 58 and at + 2 < stop
                    and buffer[U(at + 1)] == 47 and buffer[U(at + 2)] == 47
                ):  # fmt: skip
                    while at < stop and buffer[U(at)] > 32:
                        code, width = _character(buffer, at)
                        word = (word ^ U(code) ^ GOLDEN) * HASH_BASE
                        length += 1
                        at += width
                break
            if not in_word and kinds[U(last)] == _SYMBOL:
                flag = IS_SYMBOL
            spans[count, 0], spans[count, 1] = start, at
            hashes[count], lengths[count], flags[count] = mix(word), length, flag
            count += 1
            if apostrophe:
                # 3. the apostrophe and the letters after it
                start, word, length = at, U(0), 0
                while at < stop:
                    code, width = _character(buffer, at)
                    if length and not MARK <= kinds[U(code)] <= LETTER:
                        break
                    word = (word ^ U(code) ^ GOLDEN) * HASH_BASE
                    length += 1
                    at += width
                spans[count, 0], spans[count, 1] = start, at
                hashes[count], lengths[count], flags[count] = mix(word), length, HAS_LETTER
                count += 1
        bounds[document + 1] = count
    return count
