"""Rows of record batches -> where each row and its mask are in memory, as records for `decode`.

A row is found in the Arrow buffers of its record batch. The values there are checked: a damaged or
hostile file raises an error, and neither causes a wild read nor is trained on. Predictions are
counted. No buffer is copied, and no row passes through Python.

Legend: n rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import carray  # type: ignore[attr-defined]

from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.kernels.addresses import (
    fetch,
    load_int8,
    load_int32,
    load_uint8,
    load_uint16,
    load_uint64,
    load_word,
    uint16_pointer,
    uint32_pointer,
)
from pipeline.kernels.bits import LOW_BITS, U, popcount

IntArray = npt.NDArray[np.int64]
StructArray = npt.NDArray[np.void]
"""An array of one of the structured types below; compiled code reads `array[i].field`."""
Struct = Any
"""One item of such an array; no static type knows its fields."""


def struct(*names: str, kind: Any = np.int64) -> np.dtype[np.void]:
    """A structured type with fields of one kind."""
    return np.dtype([(name, kind) for name in names])


COLUMN = struct("offsets", "data", "items")
"""A column of a record batch: address of its offsets (0 if it has none), address of its data, and
the number of items there."""
ROW_COLUMNS = struct(
    "input_ids", "document_starts", "second_segment", "pair_label", "sequence", kind=COLUMN
)
"""The columns of a record batch of rows."""
MASK_COLUMNS = struct("positions", "actions", "random_ids", "swapped", kind=COLUMN)
"""The columns of a record batch of masks; `swapped` is all 0 if masks swap no segments."""

RECORD = struct(
    *("ids", "tokens"),  # address, number
    *("bitmap", "actions", "random_ids"),  # addresses
    "predictions",  # number
    "sequence",  # number of the sequence in its corpus; only where masks are drawn
    *("starts", "documents"),  # address of the starts of documents, their number
    *("second", "label"),  # start of segment B or 0, label of the pair
    "swapped",  # 1: show B before A
)
"""Addresses and sizes of a row and its mask. All zeros: a row that is skipped."""
_RECORD_BYTES = np.dtype((np.void, RECORD.itemsize))

AHEAD = 2
"""Rows between prefetching a row's bytes and using them."""


def put_records(records: StructArray, places: IntArray | slice, found: StructArray) -> None:
    """records[places] = found, copied as bytes: numpy copies structs field by field, 20x slower."""
    records.view(_RECORD_BYTES)[places] = found.view(_RECORD_BYTES)


@numba.njit(cache=True, nogil=True)
def _item_range(column: Struct, row: int) -> tuple[int, int]:
    """First item and number of items of a list or binary value; -1 items if they are impossible."""
    first = np.int64(load_int32(column.offsets + 4 * row))
    stop = np.int64(load_int32(column.offsets + 4 * row + 4))
    if first < 0 or stop < first or stop > column.items:
        return 0, -1
    return first, stop - first


@numba.njit(cache=True, nogil=True)
def _ids_below(address: int, count: int, id_bytes: int, vocabulary: int) -> bool:
    """True if `count` ids at `address` are below `vocabulary`; id_bytes: 2 or 4."""
    # A maximum of the ids' own type compiles to one vector instruction per 16 ids or more.
    if id_bytes == 4:
        wide_ids, widest = carray(uint32_pointer(address), count), np.uint32(0)
        for index in range(count):
            widest = max(widest, wide_ids[index])
        return bool(widest < vocabulary)
    ids, largest = carray(uint16_pointer(address), count), np.uint16(0)
    for index in range(count):
        largest = max(largest, ids[index])
    return bool(largest < vocabulary)


@numba.njit(cache=True, nogil=True)
def resolve_rows(
    blocks: IntArray,
    rows: IntArray,
    columns: StructArray,
    checked: npt.NDArray[np.uint64],
    id_bytes: int,
    vocabulary: int,
    length: int,
    details: bool,
    records: StructArray,
) -> int:
    """Find the ids of rows `rows` [n] of record batches `blocks` [n]; -1, or the first bad row.

    columns: ROW_COLUMNS of every record batch of the split, filled in for those in `blocks`;
    checked: bits [record batches, words], 1 for rows whose ids were checked, updated; id_bytes: 2
    or 4; vocabulary: number of ids; length: most tokens of a row; details: also find documents and
    segments. records: RECORD [n], zeros; its fields of rows are filled in.
    """
    for item in range(blocks.size):
        if item + AHEAD < blocks.size:
            ahead, row = columns[blocks[item + AHEAD]], rows[item + AHEAD]
            # A shuffled row's offsets are in no cache; its bytes are fetched in `decode`.
            fetch(ahead.input_ids.offsets + 4 * row)
            if details:
                fetch(ahead.document_starts.offsets + 4 * row)
        block, row, record = columns[blocks[item]], rows[item], records[item]
        first, tokens = _item_range(block.input_ids, row)
        if tokens < 2 or tokens > length:  # at least bos and eos
            return item
        record.ids = block.input_ids.data + first * id_bytes
        record.tokens = tokens
        # Ids are read once more by `decode`: checking them in every pass would cost 7 % of it.
        word, bit = row >> 6, U(1) << U(row & 63)
        if checked[blocks[item], word] & bit == 0:
            if not _ids_below(record.ids, tokens, id_bytes, vocabulary):
                return item
            checked[blocks[item], word] |= bit
        if details and not _resolve_details(block, row, record):
            return item
    return -1


@numba.njit(cache=True, nogil=True)
def _resolve_details(columns: Struct, row: int, record: Struct) -> bool:
    """Find the documents and segments of one row; False if they are impossible; columns: an item of
    ROW_COLUMNS; record: an item of RECORD."""
    first, documents = _item_range(columns.document_starts, row)
    record.starts = columns.document_starts.data + first * 2
    record.documents = documents
    record.second = load_uint16(columns.second_segment.data + 2 * row)
    record.label = load_int8(columns.pair_label.data + row)
    if documents < 0 or documents > record.tokens:
        return False
    if documents > 0 and load_uint16(record.starts) != 0:
        return False
    previous = np.int64(0)
    for document in range(1, documents):
        start = np.int64(load_uint16(record.starts + 2 * document))
        if start <= previous or start >= record.tokens - 1:  # the last token is eos
            return False
        previous = start
    if record.second == 0:
        one_segment: bool = record.label == UNLABELLED
        return one_segment
    labelled = record.label == IN_ORDER or record.label == RANDOM_NEXT
    possible: bool = labelled or record.label == UNLABELLED
    # At least bos, a token and a separator before B; a token and eos from B on.
    return possible and record.second >= 3 and record.second < record.tokens - 1


@numba.njit(cache=True, nogil=True)
def read_sequences(
    blocks: IntArray, rows: IntArray, columns: StructArray, records: StructArray
) -> None:
    """Fill in `sequence` of `records` [n]; the other arguments as in `resolve_rows`."""
    for item in range(blocks.size):
        if item + AHEAD < blocks.size:
            fetch(columns[blocks[item + AHEAD]].sequence.data + 8 * rows[item + AHEAD])
        sequence = load_uint64(columns[blocks[item]].sequence.data + 8 * rows[item])
        records[item].sequence = np.int64(sequence)


@numba.njit(cache=True, nogil=True)
def resolve_masks(
    blocks: IntArray,
    rows: IntArray,
    columns: StructArray,
    id_bytes: int,
    vocabulary: int,
    slots: int,
    records: StructArray,
) -> int:
    """Find the masks of rows whose ids `resolve_rows` found; -1, or the first bad mask.

    columns: MASK_COLUMNS of every record batch of the split, filled in for those in `blocks`;
    id_bytes, vocabulary: as in `resolve_rows`; slots: most predictions of a row; records: [n]; its
    fields of masks are filled in.
    """
    for item in range(blocks.size):
        if item + AHEAD < blocks.size:
            ahead, row = columns[blocks[item + AHEAD]], rows[item + AHEAD]
            fetch(ahead.positions.offsets + 4 * row)
            fetch(ahead.actions.offsets + 4 * row)
            fetch(ahead.random_ids.offsets + 4 * row)
        block, record = columns[blocks[item]], records[item]
        if not _resolve_mask(block, rows[item], id_bytes, vocabulary, slots, record):
            return item
    return -1


@numba.njit(cache=True, nogil=True)
def _resolve_mask(
    columns: Struct, row: int, id_bytes: int, vocabulary: int, slots: int, record: Struct
) -> bool:
    """Find the mask of one row and count its predictions; False if it is impossible; columns: an
    item of MASK_COLUMNS; record: an item of RECORD."""
    first, size = _item_range(columns.positions, row)
    if size != (record.tokens + 7) // 8:
        return False
    record.bitmap = columns.positions.data + first
    predictions = np.uint64(0)
    for byte in range(0, size, 8):
        predictions += popcount(load_word(record.bitmap + byte, size - byte))
    record.predictions = np.int64(predictions)
    # Bits after the last token must be 0, or `decode` would write outside the row.
    beyond = np.int64(load_uint8(record.bitmap + size - 1)) >> (record.tokens - 8 * (size - 1))
    first, size = _item_range(columns.actions, row)
    if beyond != 0 or record.predictions > slots or size != (record.predictions + 3) // 4:
        return False
    record.actions = columns.actions.data + first
    # So must the rest of the last byte of actions, which `decode` would take for actions.
    if record.predictions & 3 != 0:
        last = np.int64(load_uint8(record.actions + size - 1))
        if last >> (2 * (record.predictions & 3)) != 0:
            return False
    randoms = np.uint64(0)
    for byte in range(0, size, 8):
        codes = load_word(record.actions + byte, size - byte)
        randoms += popcount(codes & ~(codes >> U(1)) & LOW_BITS)
    first, size = _item_range(columns.random_ids, row)
    record.random_ids = columns.random_ids.data + first * id_bytes
    if columns.swapped.data != 0:
        coins = np.int64(load_uint8(columns.swapped.data + (row >> 3)))  # LSB first
        record.swapped = (coins >> (row & 7)) & 1
    if size != np.int64(randoms):  # `decode` takes one for each action 1
        return False
    return _ids_below(record.random_ids, size, id_bytes, vocabulary)
