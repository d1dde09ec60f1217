"""Compiled code that draws one duplicate of the masks of rows: positions, actions, random ids.

A row's random stream is seeded by its key and the duplicate. From it are drawn, in an order that is
part of `masks.GENERATOR_VERSION`:

1. the positions (see `mask_positions`);
2. an action for each position, or for each span;
3. an id for each position whose action asks for a random one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.rows.mask_positions import choose_ngrams, choose_spans, choose_tokens, scale
from pipeline.kernels.addresses import part, store_uint64
from pipeline.kernels.bits import GOLDEN, mix, popcount, trailing_zeros

_U = np.uint64  # an unsigned index skips numba's test for negative ones
TOKENS, NGRAMS, SPANS = range(3)
"""Ways to choose positions."""


class MaskLaw(NamedTuple):
    """The parameters of a masking scheme as integers, for compiled code."""

    choice: int
    """TOKENS, NGRAMS or SPANS."""
    sixteenths: int
    """The rate in sixteenths, rounded down, for `choose_tokens`."""
    thresholds: npt.NDArray[np.uint64]
    """A uniform 32-bit draw below thresholds[k - 1] gives a length of at most k words."""
    mask_threshold: int
    """A uniform 16-bit draw below this gives [MASK], ..."""
    random_threshold: int
    """... one below this a random id, and any other keeps the token."""
    pool: npt.NDArray[Any]
    """The ids that random ids are drawn from."""
    limits: npt.NDArray[np.uint64]
    """Below this, a 32-bit draw takes the id of `pool`, ...; empty if all ids are as likely."""
    aliases: npt.NDArray[Any]
    """... and else this one."""


@numba.njit(cache=True, nogil=True)
def draw_masks(  # type: ignore[no-untyped-def]
    tokens,
    text,
    words,
    law,
    keys,
    duplicate,
    positions,
    position_offsets,
    actions,
    action_offsets,
    random_ids,
    random_offsets,
    counts,
):
    """Fill the ragged columns of one duplicate, see `Masks`.

    tokens: int64 [n]; keys: uint64 [n]; counts: int64 [n], filled; offsets: [n + 1], of actions and
    random ids filled.
    """
    width, budgets, choice = text.bits.shape[1], text.budgets, law.choice
    mask_threshold, random_threshold = law.mask_threshold, law.random_threshold
    bits, edge_bits, ranks = text.bits, words.bits, words.ranks
    edges, edge_offsets = words.edges, words.offsets
    # views without owners: numba counts references to owned arrays with locked instructions
    thresholds = part(law.thresholds, 0, len(law.thresholds))
    pool = part(law.pool, 0, len(law.pool))
    limits, aliases = part(law.limits, 0, len(law.limits)), part(law.aliases, 0, len(law.aliases))
    chosen, order = np.zeros(width, np.uint64), np.empty(64 * width, np.uint16)
    drawn = 0
    for row in range(len(counts)):
        stream = mix(keys[row] + (duplicate + np.uint64(1)) * GOLDEN)
        count = budgets[row]
        begin = row * width
        end = begin + ((tokens[row] + 63) >> 6) + 1  # and a spare word: windows of bits read two
        # 1. positions
        ordinary, found = part(bits, begin, end), part(chosen, 0, end - begin)
        if choice == TOKENS:
            stream = choose_tokens(found, ordinary, tokens[row], count, law.sixteenths, stream)
        else:
            here = part(edges, edge_offsets[row], edge_offsets[row + 1])
            if choice == NGRAMS:
                stream, count = choose_ngrams(
                    found, ordinary, here, count, thresholds, part(order, 0, len(order)), stream
                )
            else:
                stream = choose_spans(
                    found, ordinary, part(edge_bits, begin, end), part(ranks, begin, end), here,
                    count, thresholds, stream,
                )  # fmt: skip
        counts[row] = count
        # rows are written in order, so the next one overwrites the excess bytes
        _copy_bits(found, positions, position_offsets[row], (tokens[row] + 63) >> 6)
        # 2. actions: each row starts at a whole byte, so it can be read without its neighbours
        start = action_offsets[row]
        size = (count + 3) >> 2
        action_offsets[row + 1] = start + size
        packed = part(actions, start, start + size)
        if choice == SPANS:
            stream, randoms = _act_by_span(
                packed, found, (tokens[row] + 63) >> 6, mask_threshold, random_threshold, stream
            )
        else:
            stream, randoms = _act_by_token(packed, count, mask_threshold, random_threshold, stream)
        # 3. random ids
        if len(limits) > 0:
            _draw_by_frequency(random_ids, drawn, randoms, pool, limits, aliases, stream)
            drawn += randoms
            random_offsets[row + 1] = drawn
            continue
        for index in range(max(2, randoms)):  # short rows have 0 to 2: avoids mispredictions
            stream += GOLDEN
            drawn_id = pool[scale(mix(stream) >> np.uint64(32), len(pool))]
            random_ids[_U(drawn + index)] = drawn_id
        drawn += randoms
        random_offsets[row + 1] = drawn


@numba.njit(cache=True, nogil=True)
def _draw_by_frequency(random_ids, begin, count, pool, limits, aliases, stream):  # type: ignore[no-untyped-def]
    """Draw `count` random ids from position `begin` on; one random word decides each."""
    for index in range(begin, begin + count):
        stream += GOLDEN
        word = mix(stream)
        # the high half picks an item, the low half decides between it and its alias
        item = scale(word >> np.uint64(32), len(pool))
        stays = (word & np.uint64(0xFFFFFFFF)) < limits[item]  # a limit of 2^32 always holds
        random_ids[_U(index)] = pool[item] if stays else aliases[item]


@numba.njit(cache=True, nogil=True)
def _copy_bits(chosen, positions, start, words):  # type: ignore[no-untyped-def]
    """Write a row's bitmap, uint64 [words], at byte `start`; up to seven bytes after it change."""
    for word in range(words):
        store_uint64(positions.ctypes.data + start + 8 * word, chosen[word])


@numba.njit(cache=True, nogil=True)
def _act_by_token(actions, count, mask_threshold, random_threshold, stream):  # type: ignore[no-untyped-def]
    """Draw one 2-bit action per position into actions, uint8. Returns stream and randoms."""
    randoms = 0
    # One random word decides four predicted positions: one byte of actions.
    for byte in range(len(actions)):
        stream += GOLDEN
        word = mix(stream)
        packed = 0
        for slot in range(4):
            draw = np.int64((word >> np.uint64(16 * slot)) & np.uint64(0xFFFF))
            # 0 [MASK], 1 random, 2 kept; a sum, as a branch on a random draw is mispredicted
            action = np.int64(draw >= mask_threshold) + np.int64(draw >= random_threshold)
            packed |= action << (2 * slot)
        # slots after the last prediction stay 0, [MASK]'s code: readers count on it
        if 4 * byte + 4 > count:
            packed &= (1 << (2 * (count & 3))) - 1
        randoms += np.int64(popcount(np.uint64(packed & ~(packed >> 1) & 0x55)))  # counts code 1
        actions[byte] = packed
    return stream, randoms


@numba.njit(cache=True, nogil=True)
def _act_by_span(actions, chosen, words, mask_threshold, random_threshold, stream):  # type: ignore[no-untyped-def]
    """Draw one action per maximal run in chosen, uint64 [words], into actions, zeroed uint8.

    Returns the stream, and the number of random ids.
    """
    action = 0
    slot = 0
    randoms = 0
    continues = False  # the previous word ended inside a run
    for index in range(words):
        bits = chosen[index]
        while bits != 0:
            start = trailing_zeros(bits)
            if not (continues and start == 0):
                stream += GOLDEN
                draw = np.int64(mix(stream) >> np.uint64(48))
                action = np.int64(draw >= mask_threshold) + np.int64(draw >= random_threshold)
            continues = False
            clear = ~(bits >> start)
            # `clear` is 0 if the run fills all 64 bits
            size = np.int64(trailing_zeros(clear)) if clear != 0 else 64
            if action != 0:
                randoms += size * (action & 1)
                for at in range(slot, slot + size):
                    actions[at >> 2] |= action << (2 * (at & 3))
            slot += size
            bits &= bits + (np.uint64(1) << start)  # the carry runs through the run and clears it
        continues = chosen[index] >> np.uint64(63) != 0
    return stream, randoms
