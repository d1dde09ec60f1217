"""Rows and masks in memory -> the arrays of a micro-batch, in one pass over the bytes of a row.

`decode` widens the ids and applies the masks, `pieces` says which tokens attend to each other, and
`segments` adds what only pairs need. A row's record says where its bytes are, see `resolve`.
Legend: T tokens of a micro-batch, R rows, one after another, K slots, P pieces.

`decode` goes over a row's bytes once:

1. Widen its ids.
2. Show [MASK] at every predicted position; the ids there become labels.
3. Correct the few positions that show a random id, or the original one.
4. If the pair is shown swapped, move segment B before A, and the slots with it.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from pipeline.kernels.addresses import (
    fetch,
    load_uint16,
    load_uint32,
    load_word,
    uint16_pointer,
    uint32_pointer,
)
from pipeline.kernels.bits import LOW_BITS, U, trailing_zeros
from pipeline.loading.resolve import AHEAD, IntArray, Struct, StructArray, struct

FloatArray = npt.NDArray[np.float32]

SPECIAL_IDS = struct("bos", "pad", "eos", "mask", "separators", "wide")
"""Ids of the special tokens, the number of eos between two segments, and 1 where ids are uint32."""


@numba.njit(cache=True, nogil=True)
def _widen(address: int, count: int, wide: bool, out: IntArray) -> None:
    """Copy `count` ids at `address`, uint32 if `wide` else uint16, to the head of `out`."""
    if wide:
        wide_ids = carray(uint32_pointer(address), count)
        for index in range(count):
            out[index] = wide_ids[index]
    else:
        ids = carray(uint16_pointer(address), count)
        for index in range(count):
            out[index] = ids[index]


@numba.njit(cache=True, nogil=True)
def _fetch_row(record: Struct, wide: bool) -> None:
    """Prefetch the bytes of a row: rows lie far apart."""
    size = record.tokens * (4 if wide else 2)
    # One cache line at a time; at 512 tokens the other three take about a line each.
    for byte in range(0, size, 64):
        fetch(record.ids + byte)
    fetch(record.bitmap)
    fetch(record.actions)
    fetch(record.random_ids)


@numba.njit(cache=True, nogil=True)
def decode(
    records: StructArray,
    starts: IntArray,
    special_ids: StructArray,
    input_ids: IntArray,
    positions: IntArray,
    labels: IntArray,
    weights: FloatArray,
) -> None:
    """Write the micro-batch of `records` [R] into the four arrays after `special_ids`.

    starts: [R] where each row starts, one after another. special_ids: SPECIAL_IDS [1]. input_ids:
    [T], the pad id after the last row; positions: [K] predicted tokens, used slots first, then 0;
    labels: [K] as positions; weights: [K] 1 for used slots.
    """
    special, wide = special_ids[0], special_ids[0].wide != 0
    rows, end = records.size, 0
    moved = np.empty(2 * input_ids.size, np.int64)
    slot = 0
    for row in range(rows):
        record = records[row]
        tokens = record.tokens
        if row + AHEAD < rows:
            _fetch_row(records[row + AHEAD], wide)
        start = starts[row]
        end = start + tokens
        out = input_ids[start:end]
        # 1. Before the mask, which takes labels from the widened ids.
        _widen(record.ids, tokens, wide, out)
        first = slot
        slot = _apply_mask(record, wide, special.mask, start, slot, out, positions, labels)
        if record.swapped != 0 and record.second != 0:  # 4.
            _swap(
                record, special.separators, start, out, positions[first:slot],
                labels[first:slot], moved,
            )  # fmt: skip
    input_ids[end:] = special.pad
    # Unused slots point at token 0, which exists; with weight 0 they add nothing.
    weights[:slot] = 1
    weights[slot:] = 0
    positions[slot:] = 0
    labels[slot:] = 0


@numba.njit(cache=True, nogil=True)
def _apply_mask(
    record: Struct,
    wide: bool,
    mask: int,
    start: int,
    slot: int,
    out: IntArray,
    positions: IntArray,
    labels: IntArray,
) -> int:
    """Mask one row: fill its slots from `slot` on and change its ids; returns the next free slot.

    mask: the id of [MASK]; start: the row's first token; out: the row's ids [tokens], the original
    ones before, those shown after; positions, labels: [K].
    """
    size = (record.tokens + 7) // 8
    first = slot
    # 2. A word of the bitmap at a time; the row's end may cut the last one short.
    for byte in range(0, size, 8):
        bits = load_word(record.bitmap + byte, size - byte)
        while bits != 0:
            place = 8 * byte + np.int64(trailing_zeros(bits))
            bits &= bits - U(1)
            positions[slot] = start + place
            labels[slot] = out[place]
            out[place] = mask
            slot += 1
    # 3. Most actions are [MASK]: only the others are visited one by one.
    random_id = record.random_ids
    size = (record.predictions + 3) // 4
    for byte in range(0, size, 8):
        codes = load_word(record.actions + byte, size - byte)
        at = first + 4 * byte  # a byte has four codes
        bits = codes & ~(codes >> U(1)) & LOW_BITS  # code 1: a random id
        while bits != 0:
            place = positions[at + (np.int64(trailing_zeros(bits)) >> 1)] - start
            bits &= bits - U(1)
            out[place] = load_uint32(random_id) if wide else load_uint16(random_id)
            random_id += 4 if wide else 2
        bits = (codes >> U(1)) & ~codes & LOW_BITS  # code 2: kept
        while bits != 0:
            chosen = at + (np.int64(trailing_zeros(bits)) >> 1)
            bits &= bits - U(1)
            out[positions[chosen] - start] = labels[chosen]  # the label is the original id
    return slot


@numba.njit(cache=True, nogil=True)
def _swap(
    record: Struct,
    separators: int,
    start: int,
    out: IntArray,
    positions: IntArray,
    labels: IntArray,
    moved: IntArray,
) -> None:
    """Show segment B before A: move the row's tokens and its slots, which stay ascending.

    separators: number of eos between the segments; start, out: as in `_apply_mask`;
    positions, labels: only the row's slots [predictions]; moved: scratch [2 x tokens or more].
    """
    second = record.second
    # Layout: bos, A, separators, B, eos; `second` is B's first token.
    size_a, size_b = max(0, second - 1 - separators), record.tokens - 1 - second
    moved[:size_a] = out[1 : 1 + size_a]
    separator = out[second - 1]
    for index in range(size_b):  # front to back, so nothing is overwritten before it is read
        out[1 + index] = out[second + index]
    out[1 + size_b : 1 + size_b + separators] = separator
    out[1 + size_b + separators : 1 + size_b + separators + size_a] = moved[:size_a]
    slots = len(positions)
    slots_a = 0
    while slots_a < slots and positions[slots_a] - start < second:
        slots_a += 1
    # B's slots come first now: rotated, they ascend again.
    moved[:slots] = positions
    moved[slots : 2 * slots] = labels
    for slot in range(slots):
        source = slot + slots_a if slot < slots - slots_a else slot - (slots - slots_a)
        # A moves right by B and the separators; B's first token lands on 1.
        shift = size_b + separators if source < slots_a else 1 - second
        positions[slot] = moved[source] + shift
        labels[slot] = moved[slots + source]


@numba.njit(cache=True, nogil=True)
def segments(
    records: StructArray,
    starts: IntArray,
    special_ids: StructArray,
    segment_ids: IntArray,
    pair_labels: IntArray,
) -> None:
    """Write segment_ids [T], 1 in the second segment shown, and pair_labels [R or more].

    Labels: 0 in order, 1 random next or swapped, -1 none, also after the last row. starts and
    special_ids: as in `decode`.
    """
    rows, separators = records.size, special_ids[0].separators
    segment_ids[:] = 0
    pair_labels[rows:] = -1
    for row in range(rows):
        record = records[row]
        tokens, second = record.tokens, record.second
        pair_labels[row] = record.label
        if second == 0:
            second = tokens  # nothing is in the second segment
        elif record.swapped != 0:
            second = tokens - second + separators  # after <s>, B and the separators
            pair_labels[row] = 1
        segment_ids[starts[row] + second : starts[row] + tokens] = 1


@numba.njit(cache=True, nogil=True)
def piece_counts(records: StructArray, documents: bool) -> IntArray:
    """Number of pieces of each row [R], see `pieces`."""
    counts = np.ones(records.size, np.int64)
    for row in range(records.size):
        record = records[row]
        if documents and record.second == 0 and record.documents > 1:
            counts[row] = record.documents
    return counts


@numba.njit(cache=True, nogil=True)
def pieces(
    records: StructArray, starts: IntArray, size: int, longest: int, documents: bool
) -> npt.NDArray[np.int32]:
    """cu_seqlens [P + 1]: where pieces start, then `size`, T.

    A row is a piece, or (documents) each of its documents is. A row without `document_starts` is
    one document, and so is a pair, whose segments see each other. Dead tokens, after the last row,
    are pieces of at most `longest` tokens. starts: as in `decode`.
    """
    counts = piece_counts(records, documents)
    rows, end = records.size, 0
    # Room for the most pieces of dead tokens; what is unused is cut off at the end.
    bounds = np.zeros(counts.sum() + -(-size // longest) + 1, np.int32)
    used = 0
    for row in range(rows):
        record = records[row]
        for document in range(1, counts[row]):  # the first one starts where the row does
            used += 1
            bounds[used] = starts[row] + np.int64(load_uint16(record.starts + 2 * document))
        used += 1
        end = starts[row] + record.tokens
        bounds[used] = end
    while end < size:
        end = min(size, end + longest)
        used += 1
        bounds[used] = end
    return bounds[: used + 1]
