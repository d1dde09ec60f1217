"""Compiled code that chooses the predicted positions of rows, one function per scheme.

A row is given as the address of its ids, so rows of a memory-mapped file are read in place. What
the masks of a row share is computed once: a bitmap of its text tokens, the number of predictions
(`find_text`), and for whole-word schemes the word boundaries (`find_words`). Then each `choose_*`
fills a bitmap from a random stream and returns the advanced stream.

Legend: n rows, S tokens of the longest row, a bitmap has position i at bit i mod 64 of word i / 64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from pipeline.kernels.addresses import fetch, part, uint16_pointer, uint32_pointer
from pipeline.kernels.bits import (
    GOLDEN,
    add_range,
    all_in,
    any_in,
    between,
    mix,
    popcount,
    set_range,
    trailing_zeros,
)

_AHEAD = 2
"""Number of rows by which the prefetch of bytes is ahead."""
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ONE, _ZERO, _EVERY = np.uint64(1), np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
_U = np.uint64  # an unsigned index skips numba's test for negative ones


class Memory(NamedTuple):
    """The memory of n rows of ids."""

    addresses: npt.NDArray[np.int64]
    """[n] address of the first id of each row."""
    tokens: npt.NDArray[np.int64]
    """[n] number of ids of each row, special tokens included."""
    wide: bool
    """True if ids are uint32 instead of uint16."""


class Flags(NamedTuple):
    """The flags of every id."""

    special: npt.NDArray[np.bool_]
    """[ids] whether an id is special, so never predicted."""
    word_starts: npt.NDArray[np.bool_]
    """[ids] whether an id starts a word."""
    first: np.uint32
    """If `first` <= `last`: exactly the ids from `first` to `last` are text."""
    last: np.uint32


class Text(NamedTuple):
    """The text tokens of n rows."""

    bits: npt.NDArray[np.uint64]
    """[n, S / 64 + 1] set for text, clear for special tokens and after the row."""
    budgets: npt.NDArray[np.int64]
    """[n] number of positions to predict, exactly or at most."""


class Words(NamedTuple):
    """Word boundaries of n rows: before each word and before each special token."""

    edges: npt.NDArray[np.uint16]
    """Boundaries of all rows in order, those of a row followed by its number of tokens."""
    offsets: npt.NDArray[np.int64]
    """[n + 1] positions in `edges`."""
    bits: npt.NDArray[np.uint64]
    """[n, S / 64] set at the boundaries."""
    ranks: npt.NDArray[np.uint16]
    """[n, S / 64] boundaries of the row before each word of `bits`."""


def find_text(memory: Memory, flags: Flags, rate_ppm: int, upwards: bool) -> Text:
    """Text tokens, and the budget: rate x text tokens, rounded to nearest or up, at least 1."""
    longest = int(memory.tokens.max(initial=0))
    bits = np.zeros((len(memory.tokens), (longest + 63) // 64 + 1), np.uint64)
    budgets = np.zeros(len(memory.tokens), np.int64)
    _find_text(memory, flags, rate_ppm, 999_999 if upwards else 500_000, bits, budgets)
    return Text(bits, budgets)


def find_words(memory: Memory, flags: Flags, text: Text) -> Words:
    """Word boundaries: a word starts at a flagged id, and after a special token."""
    rows = len(memory.tokens)
    words = Words(
        np.empty(int(memory.tokens.sum()) + rows, np.uint16),
        np.zeros(rows + 1, np.int64),
        np.zeros_like(text.bits),
        np.zeros(text.bits.shape, np.uint16),
    )
    _find_words(memory, flags, text.bits, words)
    return words


def no_words() -> Words:
    """Empty `Words`, for schemes that choose single tokens."""
    none = np.empty(0, np.uint16)
    return Words(
        none, np.zeros(0, np.int64), np.empty((0, 0), np.uint64), np.empty((0, 0), np.uint16)
    )


@numba.njit(cache=True, nogil=True)
def scale(draw: np.uint64, limit: Any) -> np.uint64:
    """A 32-bit draw scaled to [0, limit)."""
    return (draw * np.uint64(limit)) >> np.uint64(32)  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def draw_length(draw: np.uint64, thresholds: npt.NDArray[np.uint64]) -> int:
    """A length in words, from 1 on, by a 32-bit draw; thresholds: as in `MaskLaw`."""
    length = 1
    for index in range(len(thresholds) - 1):
        length += draw >= thresholds[_U(index)]
    return length


@numba.njit(cache=True, nogil=True)
def _find_text(memory, flags, rate_ppm, rounding, bits, budgets):  # type: ignore[no-untyped-def]
    """Fill the arrays of `Text`: bits, uint64 [n, S / 64 + 1], and budgets, int64 [n]."""
    size = 4 if memory.wide else 2
    for row in range(len(budgets)):
        if row + _AHEAD < len(budgets):
            # one prefetch per cache line of 64 bytes
            for byte in range(0, memory.tokens[row + _AHEAD] * size, 64):
                fetch(memory.addresses[row + _AHEAD] + byte)
        tokens = memory.tokens[row]
        found = part(bits, row * bits.shape[1], (row + 1) * bits.shape[1])
        if memory.wide:
            ids = carray(uint32_pointer(memory.addresses[row]), tokens)
            text = _text_of(ids, flags.special, flags.first, flags.last, found)
        else:
            narrow = carray(uint16_pointer(memory.addresses[row]), tokens)
            first, last = np.uint16(flags.first), np.uint16(flags.last)
            text = _text_of(narrow, flags.special, first, last, found)
        if text > 0:  # a takedown of 0.2.0 may have left a row without any
            budgets[row] = max(1, (text * rate_ppm + rounding) // 1_000_000)


@numba.njit(cache=True, nogil=True)
def _text_of(ids, special, first, last, bits):  # type: ignore[no-untyped-def]
    """Fill a row's bitmap of text, uint64; ids: [tokens]. Returns the number of text tokens."""
    text = np.uint64(0)
    for word in range((len(ids) + 63) >> 6):
        part = ids[word << 6 : min(len(ids), (word << 6) + 64)]
        found = _ZERO
        if first > last:  # special ids lie between text ids: look up each
            for bit in range(_U(len(part))):
                known = min(_U(part[bit]), _U(len(special) - 1))  # a damaged file holds any id
                found |= np.uint64(not special[known]) << bit
        elif len(part) == 64 and _all_between(part, first, last):  # most words are all text
            found = _EVERY
        else:
            for bit in range(_U(len(part))):
                found |= np.uint64((part[bit] >= first) & (part[bit] <= last)) << bit
        bits[word] = found
        text += popcount(found)
    return np.int64(text)


@numba.njit(cache=True, nogil=True)
def _all_between(ids, first, last):  # type: ignore[no-untyped-def]
    """True if all of ids, [64], are from first to last."""
    outside = False
    for index in range(_U(64)):  # no early exit, so that the loop vectorizes
        outside |= (ids[index] < first) | (ids[index] > last)
    return not outside


@numba.njit(cache=True, nogil=True)
def _find_words(memory, flags, text, words):  # type: ignore[no-untyped-def]
    """Fill the arrays of `Words`; text: uint64 [n, S / 64 + 1]."""
    used = 0
    width = text.shape[1]
    for row in range(len(memory.tokens)):
        tokens = memory.tokens[row]
        begin, end = row * width, (row + 1) * width
        bits = part(words.bits, begin, end)
        if memory.wide:
            ids = carray(uint32_pointer(memory.addresses[row]), tokens)
            _flag(ids, flags.word_starts, bits)
        else:
            narrow = carray(uint16_pointer(memory.addresses[row]), tokens)
            _flag(narrow, flags.word_starts, bits)
        used = _list_edges(
            part(text, begin, end), bits, part(words.ranks, begin, end), tokens, words.edges, used
        )
        words.offsets[row + 1] = used


@numba.njit(cache=True, nogil=True)
def _flag(ids, flags, bits):  # type: ignore[no-untyped-def]
    """Fill a row's bitmap with the flags, bool [vocabulary], of its ids, [tokens]."""
    last_known = _U(len(flags) - 1)
    for word in range((len(ids) + 63) >> 6):
        base = word << 6
        found = _ZERO
        for bit in range(min(64, len(ids) - base)):
            known = min(_U(ids[_U(base + bit)]), last_known)
            found |= np.uint64(flags[known]) << np.uint64(bit)
        bits[word] = found


@numba.njit(cache=True, nogil=True)
def _list_edges(text, bits, ranks, tokens, edges, used):  # type: ignore[no-untyped-def]
    """Turn a row's bitmap of word starts into boundaries and list them in edges from `used` on.

    text, bits: uint64, ranks: uint16, of the row. Returns the number of edges so far.
    """
    first = used
    after_special = _ONE  # a row starts as after a special token
    for word in range((tokens + 63) >> 6):
        ordinary = text[word]
        # word starts, special tokens, and what follows a special token
        found = bits[word] | ~ordinary | (~ordinary << _ONE) | after_special
        after_special = ~ordinary >> np.uint64(63)  # carried into the next word
        found &= between(word, 0, tokens)  # ~ordinary is set after the row, too
        bits[word] = found
        ranks[word] = used - first  # lets choose_spans count to an edge instead of searching
        while found != 0:
            edges[_U(used)] = np.uint16((word << 6) + np.int64(trailing_zeros(found)))
            used += 1
            found &= found - _ONE
    edges[_U(used)] = np.uint16(tokens)
    return used + 1


@numba.njit(cache=True, nogil=True)
def choose_tokens(chosen, text, tokens, count, sixteenths, stream):  # type: ignore[no-untyped-def]
    """Set `count` bits of chosen, a uniform subset of text, uint64 bitmaps. Returns the stream."""
    words = (tokens + 63) >> 6
    found = 0
    for index in range(words):
        bits = np.uint64(0)
        if sixteenths > 0:
            # Binary digits of the rate, lowest set one first: OR with a random word turns a bit's
            # probability p into (1 + p) / 2, AND into p / 2. After four digits it is the rate.
            digit = trailing_zeros(np.uint64(sixteenths))
            while digit < np.uint64(4):
                stream += GOLDEN
                if (np.uint64(sixteenths) >> digit) & np.uint64(1):
                    bits |= mix(stream)
                else:
                    bits &= mix(stream)
                digit += np.uint64(1)
        chosen[index] = bits & text[index]
        found += np.int64(popcount(chosen[index]))
    # special or chosen positions are drawn again, so each free one is equally likely
    while found < count:
        stream += GOLDEN
        draw = mix(stream)
        for half in range(2):
            position = scale((draw >> np.uint64(32 * half)) & _LOW_HALF, tokens)
            word = position >> np.uint64(6)
            bit = np.uint64(1) << (position & np.uint64(63))
            if found < count and (text[word] & bit) and not (chosen[word] & bit):
                chosen[word] |= bit
                found += 1
    # the rank-th chosen position leaves, each with equal probability
    while found > count:
        stream += GOLDEN
        rank = scale(mix(stream) >> np.uint64(32), found)
        index = 0
        while rank >= popcount(chosen[index]):
            rank -= popcount(chosen[index])
            index += 1
        bits = chosen[index]
        for _ in range(rank):
            bits &= bits - np.uint64(1)
        chosen[index] &= ~(np.uint64(1) << trailing_zeros(bits))
        found -= 1
    return stream


@numba.njit(cache=True, nogil=True, inline="always")
def choose_ngrams(chosen, text, edges, budget, thresholds, order, stream):  # type: ignore[no-untyped-def]
    """Set at most `budget` bits: n-grams of drawn lengths that start at words in random order.

    An n-gram over the budget is shortened until it fits, and skipped if its first word does not
    fit. One that overlaps a chosen position is skipped. A special token ends an n-gram.
    edges: of the row; order: uint16 scratch, at least as long rounded up to 64. Returns the stream,
    and the number of bits set.
    """
    last = len(edges) - 1
    for edge in range(_U((last + 63) & ~63)):  # rounded up, so that no remainder loop is needed
        order[edge] = np.uint16(edge)
    for word in range(len(text)):  # one bitmap of special and chosen positions until the end
        chosen[word] = ~text[word]
    left = budget
    tried = 0
    while left > 0 and tried < last:
        stream += GOLDEN
        draw = mix(stream)
        # Fisher-Yates, one step per word tried: random order without shuffling the words never
        # reached
        place = _U(tried) + scale(draw >> np.uint64(32), last - tried)
        head = np.int64(order[place])
        order[place] = order[_U(tried)]
        tried += 1
        start = np.int64(edges[_U(head)])
        end = min(last, head + draw_length(draw & _LOW_HALF, thresholds))
        stop = np.int64(edges[_U(end)])
        if stop - start > left or any_in(chosen, start, stop):
            while end > head and (stop - start > left or not all_in(text, start, stop)):
                end -= 1
                stop = np.int64(edges[_U(end)])
            if end == head or any_in(chosen, start, stop):
                continue
        set_range(chosen, start, stop)
        left -= stop - start
    for word in range(len(text)):
        chosen[word] &= text[word]
    return stream, budget - left


@numba.njit(cache=True, nogil=True, inline="always")
def choose_spans(  # type: ignore[no-untyped-def]
    chosen, text, bits, ranks, edges, budget, thresholds, stream
):
    """Set `budget` bits: spans of drawn lengths in words, from the word of a random position on.

    If the position is already chosen, or not text, position and length are drawn again. A special
    token ends a span. The budget ends the last one, within a word if necessary.
    """
    last = len(edges) - 1
    tokens = np.int64(edges[_U(last)])
    chosen[:] = 0
    left = budget
    while left > 0:  # ends: a budget never exceeds the text tokens, see find_text
        stream += GOLDEN
        draw = mix(stream)
        anchor = scale(draw >> np.uint64(32), tokens)
        index = anchor >> np.uint64(6)
        bit = _ONE << (anchor & np.uint64(63))
        if not text[index] & ~chosen[index] & bit:
            continue
        # edges up to the anchor: their number is the rank of its word's edge
        upto = bits[index] & (bit | (bit - _ONE))
        head = np.int64(ranks[index]) + np.int64(popcount(upto)) - 1
        start = np.int64(edges[_U(head)])
        end = min(last, head + draw_length(draw & _LOW_HALF, thresholds))
        stop = np.int64(edges[_U(end)])
        # ends: edges enclose special tokens, so the anchor's own word has none
        while not all_in(text, start, stop):
            end -= 1
            stop = np.int64(edges[_U(end)])
        left -= add_range(chosen, start, stop, left)
    return stream
