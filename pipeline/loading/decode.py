"""Addresses of rows and masks in memory -> the arrays of a batch, one pass over the bytes of a row.

`resolve` finds each row in the Arrow buffers of its record batch, checks that what it finds is
possible (a damaged file gives an error, not a wild read) and counts its predictions; `decode`
widens the ids and writes what the masks say. Neither copies a buffer or calls Python for a row.

Legend: n rows, R rows of a batch, L lines that they lie in, S tokens of a line, K slots.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from pipeline.data.kernels.addresses import (
    fetch,
    load_int8,
    load_int32,
    load_uint8,
    load_uint16,
    load_uint32,
    load_uint64,
    uint16_pointer,
    uint32_pointer,
)
from pipeline.data.kernels.bits import popcount, trailing_zeros

IntArray = npt.NDArray[np.int64]

COLUMNS = (
    *("input_ids", "document_starts", "second_segment", "pair_label", "sequence"),
    *("positions", "actions", "random_ids", "swapped"),
)
"""The columns of rows and of masks that `resolve` reads, in this order."""
COLUMN_FIELDS = 3
"""Of each column of a record batch: address of its offsets or 0, of its data, number of items."""

# What `resolve` says of a row. A row of zeros stands for no row: two special tokens of weight 0.
IDS, TOKENS, BITMAP, ACTIONS, RANDOM_IDS, PREDICTIONS, SEQUENCE = range(7)
STARTS, DOCUMENTS, SECOND, LABEL, SWAPPED = range(7, 12)
RECORD_FIELDS = 12

AHEAD = 2
"""Rows between asking for a row's bytes and their use."""

WHOLE, BAD_ROW, BAD_MASK = 0, 1, 2
"""Verdicts of `resolve`."""

_INPUT_IDS, _DOCUMENT_STARTS, _SECOND_SEGMENT, _PAIR_LABEL, _SEQUENCE = 0, 3, 6, 9, 12
_POSITIONS, _ACTIONS, _RANDOM_IDS, _SWAPPED = 0, 3, 6, 9
_ONE = np.uint64(1)
_LOW_BITS = np.uint64(0x5555555555555555)


@numba.njit(cache=True, nogil=True)
def _item_range(columns: IntArray, column: int, row: int) -> tuple[int, int]:
    """First item and number of items of a list or binary value; -1 when they cannot be right."""
    first = np.int64(load_int32(columns[column] + 4 * row))
    stop = np.int64(load_int32(columns[column] + 4 * row + 4))
    if first < 0 or stop < first or stop > columns[column + 2]:
        return 0, -1
    return first, stop - first


@numba.njit(cache=True, nogil=True)
def _word(address: int, size: int) -> np.uint64:
    """The next 8 bytes, or fewer when only `size` are left, as a little-endian word."""
    word: np.uint64 = np.uint64(0)
    if size >= 8:
        word = load_uint64(address)
        return word
    for byte in range(size):
        word |= np.uint64(load_uint8(address + byte)) << np.uint64(8 * byte)
    return word


@numba.njit(cache=True, nogil=True)
def _resolve_row(
    columns: IntArray, row: int, id_bytes: int, length: int, details: bool, record: IntArray
) -> bool:
    first, tokens = _item_range(columns, _INPUT_IDS, row)
    if tokens < 2 or tokens > length:
        return False
    record[IDS] = columns[_INPUT_IDS + 1] + first * id_bytes
    record[TOKENS] = tokens
    record[STARTS:] = 0
    if not details:
        return True
    first, documents = _item_range(columns, _DOCUMENT_STARTS, row)
    record[STARTS] = columns[_DOCUMENT_STARTS + 1] + first * 2
    record[DOCUMENTS] = documents
    record[SECOND] = load_uint16(columns[_SECOND_SEGMENT + 1] + 2 * row)
    record[LABEL] = load_int8(columns[_PAIR_LABEL + 1] + row)
    parted = record[SECOND] == 0 or (record[SECOND] >= 3 and record[SECOND] < tokens - 1)
    return documents >= 0 and documents <= tokens and parted


@numba.njit(cache=True, nogil=True)
def _resolve_mask(columns: IntArray, row: int, id_bytes: int, slots: int, record: IntArray) -> bool:
    first, size = _item_range(columns, _POSITIONS, row)
    if size != (record[TOKENS] + 7) // 8:
        return False
    record[BITMAP] = columns[_POSITIONS + 1] + first
    predictions = np.uint64(0)
    for byte in range(0, size, 8):
        predictions += popcount(_word(record[BITMAP] + byte, size - byte))
    record[PREDICTIONS] = np.int64(predictions)
    beyond = np.int64(load_uint8(record[BITMAP] + size - 1)) >> (record[TOKENS] - 8 * (size - 1))
    first, size = _item_range(columns, _ACTIONS, row)
    if beyond != 0 or record[PREDICTIONS] > slots or size != (record[PREDICTIONS] + 3) // 4:
        return False
    record[ACTIONS] = columns[_ACTIONS + 1] + first
    if record[PREDICTIONS] & 3 != 0:
        last = np.int64(load_uint8(record[ACTIONS] + size - 1))
        if last >> (2 * (record[PREDICTIONS] & 3)) != 0:
            return False
    randoms = np.uint64(0)
    for byte in range(0, size, 8):
        codes = _word(record[ACTIONS] + byte, size - byte)
        randoms += popcount(codes & ~(codes >> _ONE) & _LOW_BITS)
    first, size = _item_range(columns, _RANDOM_IDS, row)
    record[RANDOM_IDS] = columns[_RANDOM_IDS + 1] + first * id_bytes
    if columns.size > _SWAPPED:
        coins = np.int64(load_uint8(columns[_SWAPPED + 1] + (row >> 3)))
        record[SWAPPED] = (coins >> (row & 7)) & 1
    whole: bool = size == np.int64(randoms)
    return whole


@numba.njit(cache=True, nogil=True)
def _fetch_offsets(columns: IntArray, row: int, every: bool) -> None:
    """Ask for the offsets of a row to come, of `every` column or only of the first."""
    for column in range(0, columns.size if every else COLUMN_FIELDS, COLUMN_FIELDS):
        if columns[column] != 0:
            fetch(columns[column] + 4 * row)


@numba.njit(cache=True, nogil=True)
def resolve(
    blocks: IntArray,
    rows: IntArray,
    row_columns: IntArray,
    mask_columns: IntArray,
    id_bytes: int,
    length: int,
    slots: int,
    details: bool,
    stored: bool,
    records: IntArray,
) -> tuple[int, int]:
    """Fill `records` [n, RECORD_FIELDS] for rows `rows` [n] of record batches `blocks` [n].

    row_columns, mask_columns: [blocks, columns x COLUMN_FIELDS] addresses, those of `blocks` known;
    id_bytes: 2 or 4; length: most tokens of a row; slots: most predictions of a row;
    details: fill in the fields from STARTS on; stored: those of masks, else SEQUENCE, and
    `mask_columns` is not read. Returns a verdict and the first item it holds for.
    """
    for item in range(blocks.size):
        block = blocks[item]
        if item + AHEAD < blocks.size:
            _fetch_offsets(row_columns[blocks[item + AHEAD]], rows[item + AHEAD], details)
            if stored:
                _fetch_offsets(mask_columns[blocks[item + AHEAD]], rows[item + AHEAD], True)
            else:
                fetch(row_columns[blocks[item + AHEAD], _SEQUENCE + 1] + 8 * rows[item + AHEAD])
        found = _resolve_row(
            row_columns[block], rows[item], id_bytes, length, details, records[item]
        )
        if not found:
            return BAD_ROW, item
        if not stored:
            sequence = load_uint64(row_columns[block, _SEQUENCE + 1] + 8 * rows[item])
            records[item, SEQUENCE] = np.int64(sequence)
        elif not _resolve_mask(mask_columns[block], rows[item], id_bytes, slots, records[item]):
            return BAD_MASK, item
    return WHOLE, 0


@numba.njit(cache=True, nogil=True)
def _widen(address: int, count: int, wide: bool, out: IntArray) -> None:
    """Copy `count` ids at `address`, uint32 when `wide` else uint16, to the head of `out`."""
    if wide:
        wide_ids = carray(uint32_pointer(address), count)
        for index in range(count):
            out[index] = wide_ids[index]
    else:
        ids = carray(uint16_pointer(address), count)
        for index in range(count):
            out[index] = ids[index]


@numba.njit(cache=True, nogil=True)
def _fetch_row(record: IntArray, wide: bool) -> None:
    """Ask for the bytes of a row ahead of their use: rows lie far apart."""
    size = record[TOKENS] * (4 if wide else 2)
    for byte in range(0, size, 64):
        fetch(record[IDS] + byte)
    fetch(record[BITMAP])
    fetch(record[ACTIONS])
    fetch(record[RANDOM_IDS])


@numba.njit(cache=True, nogil=True)
def decode(
    records: IntArray,
    starts: IntArray,
    wide: bool,
    specials: IntArray,
    separators: int,
    length: int,
    integers: IntArray,
    weights: npt.NDArray[np.float32],
) -> None:
    """Write the batch of `records` [R, RECORD_FIELDS].

    starts: line x S + place where each row begins [R], ascending, every line at its first place;
    wide: ids are uint32; specials: ids of bos, pad, eos and mask; separators: how many eos part two
    segments; length: S. Outputs, one after the other: in integers input_ids [L, S] padded, lengths
    [L], positions [K] (line x S + place) and labels [K], used slots first, then 0; in weights those
    of slots [K] and of rows [R], 0 for an empty record.
    """
    rows = records.shape[0]
    slots = weights.size - rows
    lines = (integers.size - 2 * slots) // (length + 1)
    input_ids = integers[: lines * length]
    lengths = integers[lines * length : lines * length + lines]
    positions = integers[integers.size - 2 * slots : integers.size - slots]
    labels = integers[integers.size - slots :]
    moved = np.empty(2 * length, np.int64)
    slot = 0
    for row in range(rows):
        record = records[row]
        tokens = record[TOKENS]
        if row + AHEAD < rows:
            _fetch_row(records[row + AHEAD], wide)
        start = starts[row]
        out = input_ids[start : starts[row + 1] if row + 1 < rows else input_ids.size]
        weights[slots + row] = 1 if tokens > 0 else 0
        if tokens > 0:
            _widen(record[IDS], tokens, wide, out)
            first = slot
            slot = _apply_mask(record, wide, specials[3], start, slot, out, positions, labels)
            if record[SWAPPED] != 0 and record[SECOND] != 0:
                _swap(
                    record, separators, start, out, positions[first:slot],
                    labels[first:slot], moved,
                )  # fmt: skip
        else:
            tokens = 2
            out[0] = specials[0]
            out[1] = specials[2]
        out[tokens:] = specials[1]
        lengths[start // length] = start % length + tokens
    weights[:slot] = 1
    weights[slot:slots] = 0
    positions[slot:] = 0
    labels[slot:] = 0


@numba.njit(cache=True, nogil=True)
def _apply_mask(
    record: IntArray,
    wide: bool,
    mask: int,
    base: int,
    slot: int,
    out: IntArray,
    positions: IntArray,
    labels: IntArray,
) -> int:
    """Fill slots from `slot` on for one row, put what its mask shows in `out`; the next slot."""
    size = (record[TOKENS] + 7) // 8
    first = slot
    for byte in range(0, size, 8):
        bits = _word(record[BITMAP] + byte, size - byte)
        while bits != 0:
            place = 8 * byte + np.int64(trailing_zeros(bits))
            bits &= bits - _ONE
            positions[slot] = base + place
            labels[slot] = out[place]
            out[place] = mask
            slot += 1
    # Most actions are [MASK]: only the others are looked at one by one.
    random_id = record[RANDOM_IDS]
    size = (record[PREDICTIONS] + 3) // 4
    for byte in range(0, size, 8):
        codes = _word(record[ACTIONS] + byte, size - byte)
        at = first + 4 * byte
        bits = codes & ~(codes >> _ONE) & _LOW_BITS
        while bits != 0:
            place = positions[at + (np.int64(trailing_zeros(bits)) >> 1)] - base
            bits &= bits - _ONE
            out[place] = load_uint32(random_id) if wide else load_uint16(random_id)
            random_id += 4 if wide else 2
        bits = (codes >> _ONE) & ~codes & _LOW_BITS
        while bits != 0:
            chosen = at + (np.int64(trailing_zeros(bits)) >> 1)
            bits &= bits - _ONE
            out[positions[chosen] - base] = labels[chosen]
    return slot


@numba.njit(cache=True, nogil=True)
def _swap(
    record: IntArray,
    separators: int,
    base: int,
    out: IntArray,
    positions: IntArray,
    labels: IntArray,
    moved: IntArray,
) -> None:
    """Show B before A: move a row's tokens in `out`, and its slots with them, in ascending order.

    moved: scratch, at least two items a token.
    """
    second = record[SECOND]
    size_a, size_b = max(0, second - 1 - separators), record[TOKENS] - 1 - second
    moved[:size_a] = out[1 : 1 + size_a]
    separator = out[second - 1]
    for index in range(size_b):  # towards the front, so nothing is overwritten before it is read
        out[1 + index] = out[second + index]
    out[1 + size_b : 1 + size_b + separators] = separator
    out[1 + size_b + separators : 1 + size_b + separators + size_a] = moved[:size_a]
    slots = len(positions)
    of_a = 0
    while of_a < slots and positions[of_a] - base < second:
        of_a += 1
    moved[:slots] = positions
    moved[slots : 2 * slots] = labels
    for slot in range(slots):
        source = slot + of_a if slot < slots - of_a else slot - (slots - of_a)
        by = size_b + separators if source < of_a else 1 - second
        positions[slot] = moved[source] + by
        labels[slot] = moved[slots + source]


@numba.njit(cache=True, nogil=True)
def segments(
    records: IntArray, starts: IntArray, separators: int, segment_ids: IntArray, labels: IntArray
) -> None:
    """Fill segment_ids [L x S] with 1 in the second segment shown, and pair labels [R].

    Labels are 0 in order, 1 random next or swapped, -1 none or no sequence.
    """
    rows = records.shape[0]
    for row in range(rows):
        tokens, second = records[row, TOKENS], records[row, SECOND]
        labels[row] = records[row, LABEL] if tokens > 0 else -1
        if second == 0:
            second = tokens
        elif records[row, SWAPPED] != 0:
            second = tokens - second + separators  # behind <s>, B and the separators
            labels[row] = 1
        out = segment_ids[starts[row] : starts[row + 1] if row + 1 < rows else segment_ids.size]
        out[:second] = 0
        out[second:tokens] = 1
        out[tokens:] = 0


@numba.njit(cache=True, nogil=True)
def pieces(
    records: IntArray, starts: IntArray, size: int, documents: bool
) -> npt.NDArray[np.int32]:
    """cu_seqlens [pieces + 1]: where the pieces of the flattened lines begin, and `size`, L x S.

    A row is a piece, or (documents) each of its documents is; a row without `document_starts` is
    one document, and so is a pair: its segments see each other. Pads are pieces of their own.
    Empty records count as two tokens, as `decode` fills them.
    """
    rows = records.shape[0]
    ends = np.zeros(2 * rows + records[:, DOCUMENTS].sum() + 1, np.int32)
    used = 0
    for row in range(rows):
        parts = records[row, DOCUMENTS] if documents and records[row, SECOND] == 0 else 1
        for document in range(1, parts):
            used += 1
            ends[used] = starts[row] + np.int64(load_uint16(records[row, STARTS] + 2 * document))
        used += 1
        ends[used] = starts[row] + max(2, records[row, TOKENS])
        stop = starts[row + 1] if row + 1 < rows else size
        if ends[used] < stop:
            used += 1
            ends[used] = stop
    return ends[: used + 1]
