"""Words, runs of words (shingles), and MinHash signatures that estimate the overlap of documents.

A word is a run of letters and digits, with ASCII in lower case. Every other character of ASCII, of
U+0080-00BF, U+2000-2E7F and U+3000-303F separates words. In scripts written without spaces (Thai,
Lao, Burmese, Khmer, Han, kana and beyond U+F000) each character is a word.

The similarity of two documents is the Jaccard index of their sets of `SHINGLE_WORDS` consecutive
words (resemblance in Broder 1997). A signature has one byte for each of 256 random orders of all
shingles: a byte of the document's first shingle in that order (MinHash, Broder 1997; b-bit, Li and
König 2010). Two signatures agree in a byte with probability J + (1 - J) / 256, so the share of
equal bytes estimates J with a standard deviation of 0.025 at 0.8. Shingles of five words and the
comparison of candidates follow Lee et al. 2022 ("Deduplicating training data makes language models
better", app. A; their 9,000 orders cost 36 times as much).
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.kernels.bits import GOLDEN, Bytes, U, mix, popcount
from pipeline.data.text.clean import Offsets

Words = npt.NDArray[np.uint64]

SHINGLES_VERSION = 1
"""Increased when the same text gives different words or signatures."""
SHINGLE_WORDS = 5
ORDERS = 256
"""MinHash permutations, one byte of a signature each."""
_BASE = U(0x9FB21C651E98DF25)
"""Base of the polynomial over word hashes that hashes a run of words."""
_BLOCK = 1024  # shingles whose minima are taken at once


def _keys() -> npt.NDArray[np.uint32]:
    """[2, ORDERS] odd factors and summands of the orders h -> a h + b modulo 2^32."""
    words = np.arange(1, 2 * ORDERS + 1, dtype=np.uint64) * GOLDEN
    drawn = np.array([mix.py_func(word) >> U(32) for word in words], np.uint32)
    keys = drawn.reshape(2, ORDERS)
    keys[0] |= 1
    return keys


with np.errstate(over="ignore"):
    _KEYS = _keys()


def signatures(buffer: Bytes, offsets: Offsets) -> Words:
    """[documents, ORDERS / 8] MinHash signatures; documents as in `CleanText`.

    A document of fewer than `SHINGLE_WORDS` words has a single shingle of all its words.
    """
    made = np.empty((len(offsets) - 1, ORDERS // 8), np.uint64)
    _signatures(buffer, offsets, _KEYS[0], _KEYS[1], made)
    return made


def word_hashes(buffer: Bytes, offsets: Offsets) -> Words:
    """[documents, 1] hashes of all words in order; documents with equal hashes are exact copies.

    Among 100 M documents the probability of any collision is 0.0003.
    """
    made = np.empty((len(offsets) - 1, 1), np.uint64)
    _word_hashes(buffer, offsets, made)
    return made


def runs(buffer: Bytes, offsets: Offsets, words: int) -> Words:
    """Hashes of all runs of `words` consecutive words within each document."""
    made = np.empty(len(buffer), np.uint64)
    count = int(_runs(buffer, offsets, words, made))
    return np.array(made[:count])


def have_run(buffer: Bytes, offsets: Offsets, words: int, table: Words) -> npt.NDArray[np.bool_]:
    """[documents] whether each has a run of `words` words that is in `table`, see `run_table`."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    _have_run(buffer, offsets, words, table, found)
    return found


def run_table(hashes: Words) -> Words:
    """Distinct hashes as an open-addressed table of 2^k slots, in which 0 is an empty slot."""
    table = np.zeros(max(2, 1 << (2 * len(hashes) - 1).bit_length()), np.uint64)
    _fill_table(hashes, table)
    return table


def find_runs(hashes: Words, table: Words) -> npt.NDArray[np.int64]:
    """[n] the slot of each hash in `table`, see `run_table`; -1: it is not there."""
    slots = np.empty(len(hashes), np.int64)
    _find_runs(hashes, table, slots)
    return slots


def count_words(buffer: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]:
    """[documents, 2] number of words, and of words with a letter."""
    counts = np.zeros((len(offsets) - 1, 2), np.int64)
    _count_words(buffer, offsets, counts)
    return counts


@numba.njit(cache=True, nogil=True)
def equal_parts(one, other):  # type: ignore[no-untyped-def]
    """Number of equal bytes of two signatures, uint64 [words] each."""
    low = U(0x7F7F7F7F7F7F7F7F)
    unequal = U(0)
    for index in range(len(one)):
        differ = one[index] ^ other[index]
        unequal += popcount((((differ & low) + low) | differ) & ~low)
    return 8 * len(one) - np.int64(unequal)


NO_WORD = U(0)  # returned by _next_word at the end of a document
_PARTS, _WORD, _CHARACTER = 0, 1, 2


@numba.njit(cache=True, nogil=True, inline="always")
def _kind(buffer, at):  # type: ignore[no-untyped-def]
    """Kind of the non-ASCII character at `at` (_PARTS, _WORD or _CHARACTER), and its bytes."""
    lead, second = buffer[U(at)], buffer[U(at + 1)]
    if lead < 0xE0:
        return (_PARTS if lead == 0xC2 else _WORD), 2
    if lead >= 0xF0:
        return _CHARACTER, 4
    if lead == 0xE2:
        return (_PARTS if second < 0xBA else _CHARACTER), 3
    if lead == 0xE3 and second == 0x80:
        return _PARTS, 3
    if 0xE3 <= lead <= 0xE9 or lead == 0xEF or (lead == 0xE0 and 0xB8 <= second <= 0xBB):
        return _CHARACTER, 3
    if lead == 0xE1 and (second <= 0x81 or 0x9E <= second <= 0x9F):
        return _CHARACTER, 3
    return _WORD, 3


@numba.njit(cache=True, nogil=True)
def _next_word(buffer, at, stop):  # type: ignore[no-untyped-def]
    """Position after the next word, its hash or NO_WORD, and whether it has a letter."""
    word = U(0)
    letters = False
    while at < stop:
        byte = buffer[U(at)]
        length = 1
        if byte < 0x80:
            lower = byte | 0x20
            if 97 <= lower <= 122:
                byte = lower
                letters = True
            elif not 48 <= byte <= 57:
                if word != NO_WORD:
                    break
                at += 1
                continue
        else:
            kind, length = _kind(buffer, at)
            if kind == _PARTS or (kind == _CHARACTER and word != NO_WORD):
                if word != NO_WORD:
                    break
                at += length
                continue
            letters = True
            for index in range(length):
                word = (word ^ U(buffer[U(at + index)]) ^ GOLDEN) * _BASE
            at += length
            if kind == _CHARACTER:
                break
            continue
        word = (word ^ U(byte) ^ GOLDEN) * _BASE
        at += 1
    return at, (mix(word) | U(1) if word != NO_WORD else NO_WORD), letters


@numba.njit(cache=True, nogil=True)
def _raw_hash(buffer, start, stop):  # type: ignore[no-untyped-def]
    """Hash of the bytes of a document without words."""
    value = U(0)
    for at in range(start, stop):
        value = (value ^ U(buffer[at])) * _BASE
    return mix(value)


@numba.njit(cache=True, nogil=True)
def _power(exponent):  # type: ignore[no-untyped-def]
    """_BASE to a power, modulo 2^64."""
    power = U(1)
    for _ in range(exponent):
        power *= _BASE
    return power


@numba.njit(cache=True, nogil=True)
def _signatures(buffer, offsets, factors, summands, made):  # type: ignore[no-untyped-def]
    """Write signatures to made, uint64 [documents, ORDERS / 8].

    buffer: uint8 [bytes]; offsets: [documents + 1]; factors, summands: uint32 [ORDERS].
    """
    ring = np.zeros(SHINGLE_WORDS, np.uint64)
    leaving = _power(SHINGLE_WORDS)
    block = np.empty(_BLOCK, np.uint32)
    least = np.empty(ORDERS, np.uint32)
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1] - 1
        ring[:] = U(0)
        least[:] = np.uint32(0xFFFFFFFF)
        run, words, filled = U(0), 0, 0
        at, word, _ = _next_word(buffer, start, stop)
        while word != NO_WORD:
            place = words % SHINGLE_WORDS
            run = run * _BASE + word - ring[place] * leaving
            ring[place] = word
            words += 1
            if words >= SHINGLE_WORDS:
                block[filled] = np.uint32(mix(run) >> U(32))
                filled += 1
                if filled == _BLOCK:
                    _take_least(block, filled, factors, summands, least)
                    filled = 0
            at, word, _ = _next_word(buffer, at, stop)
        if words < SHINGLE_WORDS:
            value = mix(run) if words else _raw_hash(buffer, start, stop)
            block[0] = np.uint32(value >> U(32))
            filled = 1
        _take_least(block, filled, factors, summands, least)
        for index in range(ORDERS // 8):
            packed = U(0)
            for k in range(8):
                first = np.uint32(least[8 * index + k] * np.uint32(0x9E3779B1))
                packed |= U(first >> 24) << U(8 * k)
            made[document, index] = packed


@numba.njit(cache=True, nogil=True)
def _take_least(block, filled, factors, summands, least):  # type: ignore[no-untyped-def]
    """Lower least, uint32 [ORDERS], by the shingles block[:filled]; the inner loop vectorizes."""
    for order in range(ORDERS):
        factor, summand, value = factors[order], summands[order], least[order]
        for index in range(filled):
            value = min(value, np.uint32(factor * block[index] + summand))
        least[order] = value


@numba.njit(cache=True, nogil=True)
def _word_hashes(buffer, offsets, made):  # type: ignore[no-untyped-def]
    """Write hashes of all words to made, uint64 [documents, 1]; offsets: [documents + 1]."""
    for document in range(len(offsets) - 1):
        start, stop = offsets[document], offsets[document + 1] - 1
        value = U(0)
        at, word, _ = _next_word(buffer, start, stop)
        while word != NO_WORD:
            value = mix(value * _BASE + word)
            at, word, _ = _next_word(buffer, at, stop)
        made[document, 0] = value if value != U(0) else _raw_hash(buffer, start, stop)


@numba.njit(cache=True, nogil=True)
def _runs(buffer, offsets, count, made):  # type: ignore[no-untyped-def]
    """Write hashes of all runs of `count` words to made, uint64 [bytes]. Returns their number."""
    ring, leaving = np.zeros(count, np.uint64), _power(count)
    written = 0
    for document in range(len(offsets) - 1):
        ring[:] = U(0)
        run, words, stop = U(0), 0, offsets[document + 1] - 1
        at, word, _ = _next_word(buffer, offsets[document], stop)
        while word != NO_WORD:
            run = run * _BASE + word - ring[words % count] * leaving
            ring[words % count] = word
            words += 1
            if words >= count:
                made[written] = mix(run)
                written += 1
            at, word, _ = _next_word(buffer, at, stop)
    return written


@numba.njit(cache=True, nogil=True)
def _have_run(buffer, offsets, count, table, found):  # type: ignore[no-untyped-def]
    """Set found, bool [documents], where a run of `count` words is in table, uint64 [slots]."""
    ring, leaving = np.zeros(count, np.uint64), _power(count)
    for document in range(len(offsets) - 1):
        ring[:] = U(0)
        run, words, stop = U(0), 0, offsets[document + 1] - 1
        at, word, _ = _next_word(buffer, offsets[document], stop)
        while word != NO_WORD and not found[document]:
            run = run * _BASE + word - ring[words % count] * leaving
            ring[words % count] = word
            words += 1
            if words >= count:
                value = mix(run)
                found[document] = table[_slot(table, value)] == value
            at, word, _ = _next_word(buffer, at, stop)


@numba.njit(cache=True, nogil=True, inline="always")
def _slot(table, value):  # type: ignore[no-untyped-def]
    """Where a hash is, or would be."""
    last = U(len(table) - 1)
    slot = value & last
    while table[slot] != U(0) and table[slot] != value:
        slot = (slot + U(1)) & last
    return slot


@numba.njit(cache=True, nogil=True)
def _fill_table(hashes, table):  # type: ignore[no-untyped-def]
    """Insert hashes, uint64 [n], into table, uint64 [slots]."""
    for value in hashes:
        table[_slot(table, value)] = value


@numba.njit(cache=True, nogil=True)
def _find_runs(hashes, table, slots):  # type: ignore[no-untyped-def]
    """Write slots to slots, int64 [n]; hashes: uint64 [n], table: uint64 [slots]."""
    for index in range(len(hashes)):
        slot = _slot(table, hashes[index])
        slots[index] = np.int64(slot) if table[slot] == hashes[index] else -1


@numba.njit(cache=True, nogil=True)
def _count_words(buffer, offsets, counts):  # type: ignore[no-untyped-def]
    """Add up words, and those with a letter, in counts, int64 [documents, 2]."""
    for document in range(len(offsets) - 1):
        stop = offsets[document + 1] - 1
        at, word, letters = _next_word(buffer, offsets[document], stop)
        while word != NO_WORD:
            counts[document, 0] += 1
            counts[document, 1] += letters
            at, word, letters = _next_word(buffer, at, stop)
