"""Runs of words (shingles), and MinHash signatures that estimate the overlap of documents.

The similarity of two documents is the Jaccard index of their sets of `SHINGLE_WORDS` consecutive
words (resemblance in Broder 1997). A signature has one byte for each of 256 random orders of all
shingles: a byte of the document's first shingle in that order (MinHash, Broder 1997; b-bit, Li and
König 2010). Two signatures agree in a byte with probability J + (1 - J) / 256, so the share of
equal bytes estimates J with a standard deviation of 0.025 at 0.8. Shingles of five words and the
comparison of candidates follow Lee et al. 2022 ("Deduplicating training data makes language models
better", app. A; their 9,000 orders cost 36 times as much).

1. A polynomial hash rolls over the words of a document, one hash per shingle.
2. Shingles are gathered in blocks.
3. A block lowers the least place of each order, in a loop that vectorizes.
4. Each least place gives one byte of the signature.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.selection.words import HASH_BASE, NO_WORD, character_kinds, next_word
from pipeline.kernels.bits import GOLDEN, Bytes, Offsets, U, mix, popcount

Words = npt.NDArray[np.uint64]

SHINGLES_VERSION = 2
"""Increased when the same text gives different words or signatures."""
SHINGLE_WORDS = 5
ORDERS = 256
"""MinHash permutations, one byte of a signature each."""
_BLOCK = 1024  # shingles whose minima are taken at once


def _keys() -> npt.NDArray[np.uint32]:
    """[2, ORDERS] odd factors and summands of the orders h -> a h + b modulo 2^32."""
    words = np.arange(1, 2 * ORDERS + 1, dtype=np.uint64) * GOLDEN
    drawn = np.array([mix.py_func(word) >> U(32) for word in words], np.uint32)
    keys = drawn.reshape(2, ORDERS)
    keys[0] |= 1  # an even factor would map two shingles to one place
    return keys


# numpy warns where 64-bit scalars wrap around, as they should here
with np.errstate(over="ignore"):
    _KEYS = _keys()


def signatures(buffer: Bytes, offsets: Offsets) -> Words:
    """[documents, ORDERS / 8] MinHash signatures; documents as in `CleanText`.

    A document of fewer than `SHINGLE_WORDS` words has a single shingle of all its words.
    """
    made = np.empty((len(offsets) - 1, ORDERS // 8), np.uint64)
    _signatures(buffer, offsets, character_kinds(), _KEYS[0], _KEYS[1], made)
    return made


def word_hashes(buffer: Bytes, offsets: Offsets) -> Words:
    """[documents, 1] hashes of all words in order; documents with equal hashes are exact copies.

    Among 100 M documents the probability of any collision is 0.0003.
    """
    made = np.empty((len(offsets) - 1, 1), np.uint64)
    _word_hashes(buffer, offsets, character_kinds(), made)
    return made


def runs(buffer: Bytes, offsets: Offsets, words: int) -> Words:
    """Hashes of all runs of `words` consecutive words within each document."""
    made = np.empty(len(buffer), np.uint64)
    count = int(_runs(buffer, offsets, character_kinds(), words, made))
    return np.array(made[:count])


def have_run(buffer: Bytes, offsets: Offsets, words: int, table: Words) -> npt.NDArray[np.bool_]:
    """[documents] whether each has a run of `words` words that is in `table`, see `run_table`."""
    found = np.zeros(len(offsets) - 1, np.bool_)
    _have_run(buffer, offsets, character_kinds(), words, table, found)
    return found


def run_table(hashes: Words) -> Words:
    """Distinct hashes as an open-addressed table of 2^k slots, in which 0 is an empty slot."""
    # at most half full, so probes are short; a power of two, so a mask finds the slot
    table = np.zeros(max(2, 1 << (2 * len(hashes) - 1).bit_length()), np.uint64)
    _fill_table(hashes, table)
    return table


@numba.njit(cache=True, nogil=True)
def equal_parts(one, other):  # type: ignore[no-untyped-def]
    """Number of equal bytes of two signatures, uint64 [words] each."""
    low = U(0x7F7F7F7F7F7F7F7F)
    unequal = U(0)
    for index in range(len(one)):
        # sets the high bit of each byte that differs, without carries between bytes
        differ = one[index] ^ other[index]
        unequal += popcount((((differ & low) + low) | differ) & ~low)
    return 8 * len(one) - np.int64(unequal)


@numba.njit(cache=True, nogil=True)
def _raw_hash(buffer, start, stop):  # type: ignore[no-untyped-def]
    """Hash of the bytes of a document without words."""
    value = U(0)
    for at in range(start, stop):
        value = (value ^ U(buffer[at])) * HASH_BASE
    return mix(value)


@numba.njit(cache=True, nogil=True)
def _power(exponent):  # type: ignore[no-untyped-def]
    """HASH_BASE to a power, modulo 2^64."""
    power = U(1)
    for _ in range(exponent):
        power *= HASH_BASE
    return power


@numba.njit(cache=True, nogil=True)
def _signatures(buffer, offsets, kinds, factors, summands, made):  # type: ignore[no-untyped-def]
    """Write signatures to made, uint64 [documents, ORDERS / 8].

    buffer: uint8 [bytes]; offsets: [documents + 1]; factors, summands: uint32 [ORDERS].
    """
    ring = np.zeros(SHINGLE_WORDS, np.uint64)
    leaving = _power(SHINGLE_WORDS)  # what a word was multiplied by when it leaves
    block = np.empty(_BLOCK, np.uint32)
    least = np.empty(ORDERS, np.uint32)
    for document in range(len(offsets) - 1):
        at, stop = offsets[document], offsets[document + 1] - 1
        ring[:] = U(0)  # zeros leave a run that is not full without a trace
        least[:] = np.uint32(0xFFFFFFFF)
        run, words, filled = U(0), 0, 0
        while True:
            at, word, _ = next_word(buffer, at, stop, kinds)
            if word == NO_WORD:
                break
            place = words % SHINGLE_WORDS
            # 1. rolling: the cost does not grow with the words of a shingle
            run = run * HASH_BASE + word - ring[place] * leaving
            ring[place] = word
            words += 1
            if words >= SHINGLE_WORDS:
                # 2. mixed, because low bits of a polynomial depend on low bits of the words only
                block[filled] = np.uint32(mix(run) >> U(32))
                filled += 1
                if filled == _BLOCK:
                    # 3. once per block: `least` is read and written once for 1,024 shingles
                    _take_least(block, filled, factors, summands, least)
                    filled = 0
        if words < SHINGLE_WORDS:
            value = mix(run) if words else _raw_hash(buffer, offsets[document], stop)
            block[0] = np.uint32(value >> U(32))
            filled = 1
        _take_least(block, filled, factors, summands, least)
        for index in range(ORDERS // 8):
            packed = U(0)
            for k in range(8):
                # 4. least places are small numbers, whose top bytes are nearly all 0: mix them
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
def _word_hashes(buffer, offsets, kinds, made):  # type: ignore[no-untyped-def]
    """Write hashes of all words to made, uint64 [documents, 1]; offsets: [documents + 1]."""
    for document in range(len(offsets) - 1):
        at, stop = offsets[document], offsets[document + 1] - 1
        value = U(0)
        while True:
            at, word, _ = next_word(buffer, at, stop, kinds)
            if word == NO_WORD:
                break
            value = mix(value * HASH_BASE + word)
        # documents without words differ by their bytes, or all would be copies of each other
        made[document, 0] = value if value else _raw_hash(buffer, offsets[document], stop)


@numba.njit(cache=True, nogil=True)
def _runs(buffer, offsets, kinds, count, made):  # type: ignore[no-untyped-def]
    """Write hashes of all runs of `count` words to made, uint64 [bytes]. Returns their number."""
    ring, leaving = np.zeros(count, np.uint64), _power(count)
    written = 0
    for document in range(len(offsets) - 1):
        ring[:] = U(0)
        run, words = U(0), 0
        at, stop = offsets[document], offsets[document + 1] - 1
        while True:
            at, word, _ = next_word(buffer, at, stop, kinds)
            if word == NO_WORD:
                break
            run = run * HASH_BASE + word - ring[words % count] * leaving
            ring[words % count] = word
            words += 1
            if words >= count:
                made[written] = mix(run)
                written += 1
    return written


@numba.njit(cache=True, nogil=True)
def _have_run(buffer, offsets, kinds, count, table, found):  # type: ignore[no-untyped-def]
    """Set found, bool [documents], where a run of `count` words is in table, uint64 [slots]."""
    ring, leaving = np.zeros(count, np.uint64), _power(count)
    for document in range(len(offsets) - 1):
        ring[:] = U(0)
        run, words = U(0), 0
        at, stop = offsets[document], offsets[document + 1] - 1
        while not found[document]:
            at, word, _ = next_word(buffer, at, stop, kinds)
            if word == NO_WORD:
                break
            run = run * HASH_BASE + word - ring[words % count] * leaving
            ring[words % count] = word
            words += 1
            if words >= count:
                value = mix(run)
                found[document] = table[_slot(table, value)] == value


@numba.njit(cache=True, nogil=True, inline="always")
def _slot(table, value):  # type: ignore[no-untyped-def]
    """Slot of a hash, or the empty slot where it belongs."""
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
