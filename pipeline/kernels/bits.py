"""64-bit words in compiled code: bit counts, eight bytes at a time, a mixing hash, bit ranges.

A bitmap is an array of words; position i is bit i mod 64 of word i / 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

U = np.uint64  # an unsigned index skips numba's wraparound test, which doubles the speed
EVERY_ONE = U(0x0101010101010101)
EVERY_HIGH_BIT = U(0x8080808080808080)
EVERY_BIT = U(0xFFFFFFFFFFFFFFFF)
LOW_BITS = U(0x5555555555555555)
"""The lower bit of each of 32 pairs."""
GOLDEN = U(0x9E3779B97F4A7C15)  # odd, near 2^64 / golden ratio: counter step before `mix`


def _popcount(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # True leaves 0 undefined, so that no test for it is compiled.
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


popcount = cast(Callable[[np.uint64], np.uint64], intrinsic(_popcount))
"""Number of set bits; for use in compiled code."""
trailing_zeros = cast(Callable[[np.uint64], np.uint64], intrinsic(_trailing_zeros))
"""Index of the lowest set bit, undefined for 0; for use in compiled code."""


@numba.njit(cache=True, nogil=True, inline="always")
def mix(word: np.uint64) -> np.uint64:
    """splitmix64's finalizer (Steele et al. 2014): a bijection that looks random."""
    word = (word ^ (word >> U(30))) * U(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> U(27))) * U(0x94D049BB133111EB)
    mixed: np.uint64 = word ^ (word >> U(31))
    return mixed


@numba.njit(cache=True, nogil=True)
def word_at(array: Bytes, at: int) -> np.uint64:
    """Eight bytes as one little-endian number; compiles to a single load."""
    word: np.uint64 = U(0)
    for k in range(U(8)):
        word |= U(array[U(at) + k]) << (k * U(8))
    return word


@numba.njit(cache=True, nogil=True)
def put_word(array: Bytes, at: int, word: np.uint64) -> None:
    """Store what `word_at` loads; compiles to a single store, unlike a loop over two arrays."""
    for k in range(U(8)):
        array[U(at) + k] = np.uint8(word >> (k * U(8)))


@numba.njit(cache=True, nogil=True)
def move_bytes(buffer: Bytes, start: int, end: int, write: int) -> int:
    """Move the bytes from `start` to `end` to `write`, which is not after them; returns the end."""
    size = end - start
    if write == start:
        return end
    if size < 8:
        for k in range(U(size)):
            buffer[U(write) + k] = buffer[U(start) + k]
    else:
        last = word_at(buffer, end - 8)
        for k in range(0, size - 8, 8):
            put_word(buffer, write + k, word_at(buffer, start + k))
        put_word(buffer, write + size - 8, last)
    return write + size


@numba.njit(cache=True, nogil=True)
def equal_bytes(word: np.uint64, pattern: np.uint64) -> np.uint64:
    """High bit of each byte that is equal in both. A byte that differs by 1 may also be flagged,
    but only above an equal byte."""
    differ = word ^ pattern
    # The subtraction sets the high bit of bytes that are 0, and of those above 0x80, which ~differ
    # clears again.
    equal: np.uint64 = (differ - EVERY_ONE) & ~differ & EVERY_HIGH_BIT
    return equal


@numba.njit(cache=True, nogil=True)
def between(index, start, stop):  # type: ignore[no-untyped-def]
    """The bits of word `index` that are in [start, stop), which must overlap the word; integers."""
    low = max(0, start - (index << 6))
    high = min(64, stop - (index << 6))
    # The overlap keeps both shifts below 64: LLVM does not define longer ones.
    return (EVERY_BIT << U(low)) & (EVERY_BIT >> U(64 - high))


@numba.njit(cache=True, nogil=True)
def count_characters(text: Bytes) -> int:
    """Characters of UTF-8 text."""
    count = 0
    for index in range(U(len(text))):
        count += (text[index] & 0xC0) != 0x80  # not a continuation byte
    return count


@numba.njit(cache=True, nogil=True)
def count_spaced_words(text, offsets):  # type: ignore[no-untyped-def]
    """[documents] words between white space, int64, of text as in `CleanText`."""
    counts = np.zeros(len(offsets) - 1, np.int64)
    for document in range(len(counts)):
        start, stop = offsets[document], offsets[document + 1]
        while start < stop:
            end = min(stop, start + 255)  # counted in bytes, which is thrice as fast
            count = np.uint8(0)
            for index in range(U(start), U(end)):
                # clean text has one byte after each word: a space, LF or NUL
                count = np.uint8(count + np.uint8(text[index] <= 0x20))
            counts[document] += count
            start = end
    return counts


@numba.njit(cache=True, nogil=True)
def _window(start, stop):  # type: ignore[no-untyped-def]
    """The bits of [start, stop), at most 64, in the word of `start` and in the next; integers."""
    shift = U(start & 63)
    bits = EVERY_BIT >> U(64 - (stop - start))
    return bits << shift, (bits >> U(1)) >> (U(63) - shift)  # in two: a shift by 64 is undefined


@numba.njit(cache=True, nogil=True)
def any_in(bitmap, start, stop):  # type: ignore[no-untyped-def]
    """True if a bit of [start, stop) is set; bitmap: uint64 [words], one more than needed."""
    if stop - start <= 64:  # nearly always; avoids a loop, whose end is mispredicted
        low, high = _window(start, stop)
        index = U(start >> 6)
        return (bitmap[index] & low) | (bitmap[index + U(1)] & high) != 0
    for index in range(start >> 6, ((stop - 1) >> 6) + 1):
        if bitmap[U(index)] & between(index, start, stop):
            return True
    return False


@numba.njit(cache=True, nogil=True)
def all_in(bitmap, start, stop):  # type: ignore[no-untyped-def]
    """True if every bit of [start, stop) is set; bitmap: uint64 [words], one more than needed."""
    if stop - start <= 64:
        low, high = _window(start, stop)
        index = U(start >> 6)
        return (~bitmap[index] & low) | (~bitmap[index + U(1)] & high) == 0
    for index in range(start >> 6, ((stop - 1) >> 6) + 1):
        if ~bitmap[U(index)] & between(index, start, stop):
            return False
    return True


@numba.njit(cache=True, nogil=True)
def set_range(chosen, start, stop):  # type: ignore[no-untyped-def]
    """Set the bits of [start, stop); chosen: uint64 [words], one more than needed."""
    if stop - start <= 64:
        low, high = _window(start, stop)
        index = U(start >> 6)
        chosen[index] |= low
        chosen[index + U(1)] |= high
    else:
        _add_slowly(chosen, start, stop, stop - start)


@numba.njit(cache=True, nogil=True)
def add_range(chosen, start, stop, most):  # type: ignore[no-untyped-def]
    """Set the first `most` clear bits of [start, stop); returns how many were set."""
    if stop - start <= 64:
        low, high = _window(start, stop)
        index = U(start >> 6)
        clear = popcount(low & ~chosen[index]) + popcount(high & ~chosen[index + U(1)])
        if np.int64(clear) <= most:  # else only some bits fit the budget
            chosen[index] |= low
            chosen[index + U(1)] |= high
            return np.int64(clear)
    return _add_slowly(chosen, start, stop, most)


@numba.njit(cache=True, nogil=True)
def _add_slowly(chosen, start, stop, most):  # type: ignore[no-untyped-def]
    added = 0
    for position in range(start, stop):
        bit = U(1) << U(position & 63)
        if added < most and not chosen[U(position >> 6)] & bit:
            chosen[U(position >> 6)] |= bit
            added += 1
    return added
