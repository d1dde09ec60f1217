"""Reading and writing of shard files, of rows and of masks, in record batches of 1,024 rows.

The last record batch of each of a shard's pieces has fewer, see `manifest.Shard`.

Arrow IPC *files* open with pyarrow.ipc.open_file and datasets.load_dataset("arrow"), and can be
memory-mapped. Their bytes may change with the Arrow version, but their columns do not: compare
columns.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import whole_file, write_whole
from pipeline.data.rows.masks import Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards.manifest import Shard, check_is_file, hash_file

BATCH_ROWS = 1024

Compression = Literal["none", "zstd"]

_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
"""Set bits of each byte."""


def encode_rows(
    rows: Rows,
    corpus: str,
    corpora: list[str],
    sequences: npt.NDArray[np.uint64],
    compression: Compression,
) -> pa.Buffer:
    """The bytes of a file of rows; corpora: all names in the dictionary."""
    codes = pa.array(np.full(len(rows), corpora.index(corpus), np.int16))
    columns = [
        _list(rows.ids, rows.offsets),
        _list(rows.document_starts, rows.document_offsets),
        pa.array(rows.second_segment),
        pa.array(rows.pair_label),
        # all names in every file, so that a code means the same corpus in each
        pa.DictionaryArray.from_arrays(codes, pa.array(corpora, pa.string())),
        pa.array(sequences),
    ]
    return _encode(pa.Table.from_arrays(columns, schema=rows_schema(rows.ids.dtype)), compression)


def encode_masks(masks: Masks, compression: Compression) -> pa.Buffer:
    """The bytes of a mask file."""
    return _encode(mask_table(masks), compression)


def mask_table(masks: Masks) -> pa.Table:
    """The columns of a mask file."""
    columns = [
        _binary(masks.positions, masks.position_offsets),
        _binary(masks.actions, masks.action_offsets),
        _list(masks.random_ids, masks.random_offsets),
    ]
    if masks.swapped is not None:
        columns.append(pa.array(masks.swapped))
    schema = masks_schema(masks.random_ids.dtype, masks.swapped is not None)
    return pa.Table.from_arrays(columns, schema=schema)


def masks_of(table: pa.Table) -> Masks:
    """The inverse of `mask_table`."""
    positions, actions, random_ids = (
        ragged(table[name]) for name in ("positions", "actions", "random_ids")
    )
    found = np.concatenate([np.zeros(1, np.int64), np.cumsum(_BITS[positions[0]])])
    return Masks(
        positions=positions[0],
        position_offsets=positions[1].astype(np.int32),
        actions=actions[0],
        action_offsets=actions[1].astype(np.int32),
        random_ids=random_ids[0],
        random_offsets=random_ids[1].astype(np.int32),
        counts=np.diff(found[positions[1]]),
        swapped=table["swapped"].to_numpy() if "swapped" in table.column_names else None,
    )


def with_ids(rows: pa.Table, ids: npt.NDArray[Any]) -> pa.Table:
    """The rows with `ids` in place of all their tokens."""
    index = rows.schema.get_field_index("input_ids")
    _, offsets = ragged(rows["input_ids"])
    return rows.set_column(index, rows.schema.field(index), _list(ids, offsets))


def write_shard_file(path: Path, content: pa.Buffer) -> dict[str, Any]:
    """Write a shard file. Returns its name, bytes and hash for the manifest."""
    view = memoryview(content)
    # the folder is synced with the marker that follows, or before the manifest
    write_whole(path, view, lasting=False)
    return {"file": path.name, "bytes": len(view), "xxh3_64": xxhash.xxh3_64_hexdigest(view)}


def write_tables(
    path: Path, schema: pa.Schema, tables: Iterable[pa.Table], compression: Compression
) -> dict[str, Any]:
    """`write_shard_file` for a stream of tables, with one in memory at a time.

    A table is a piece, or of a multiple of 1,024 rows.
    """
    with whole_file(path, lasting=False) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        _write(sink, schema, tables, compression)
    return {"file": path.name, "bytes": path.stat().st_size, "xxh3_64": hash_file(path)}


def write_masks(
    directory: Path, stem: str, duplicates: Iterable[Masks], compression: Compression
) -> list[dict[str, Any]]:
    """Write one mask file per duplicate of a shard. Returns the entries of the manifest."""
    entries = []
    for duplicate, masks in enumerate(duplicates):
        path = directory / f"{stem}.mask-{duplicate}.arrow"
        entry = write_shard_file(path, encode_masks(masks, compression))
        entries.append(entry | {"predictions": masks.predictions})
    return entries


def rows_schema(dtype: np.dtype[Any]) -> pa.Schema:
    """Columns of a file of rows; dtype: of the ids, uint16 or uint32."""
    return pa.schema(
        [
            pa.field("input_ids", _list_type(dtype), nullable=False),
            pa.field("document_starts", _list_type(np.dtype(np.uint16)), nullable=False),
            pa.field("second_segment", pa.uint16(), nullable=False),
            pa.field("pair_label", pa.int8(), nullable=False),
            pa.field("corpus", pa.dictionary(pa.int16(), pa.string()), nullable=False),
            pa.field("sequence", pa.uint64(), nullable=False),
        ]
    )


def masks_schema(dtype: np.dtype[Any], swaps: bool) -> pa.Schema:
    """Columns of a mask file; dtype: of the ids; swaps: whether masks have coins (SOP)."""
    fields = [
        pa.field("positions", pa.binary(), nullable=False),
        pa.field("actions", pa.binary(), nullable=False),
        pa.field("random_ids", _list_type(dtype), nullable=False),
    ]
    if swaps:
        fields.append(pa.field("swapped", pa.bool_(), nullable=False))
    return pa.schema(fields)


@functools.cache
def _schemas() -> list[pa.Schema]:
    """The schemas of all shard files. Comparing them decodes no name, which may be any bytes."""
    kinds: list[np.dtype[Any]] = [np.dtype(np.uint16), np.dtype(np.uint32)]
    masks = [masks_schema(kind, swaps) for kind in kinds for swaps in (False, True)]
    return [*map(rows_schema, kinds), *masks]


def regroup(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows in order, in tables of a multiple of 1,024 rows, and one with the remainder.

    Memory holds only as many tables as fill a record batch.
    """
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) >= BATCH_ROWS:
            rows = pa.concat_tables(held)
            whole = len(rows) // BATCH_ROWS * BATCH_ROWS
            # one chunk, because write_table ends a record batch where a chunk ends
            yield rows.slice(0, whole).combine_chunks()
            held = [rows.slice(whole)]
    if any(map(len, held)):
        yield pa.concat_tables(held).combine_chunks()


def read_table(path: Path) -> pa.Table:
    """A shard file, memory-mapped. Raises DataError if it is not a complete, valid Arrow file."""
    check_is_file(path)
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if not any(reader.schema.equals(known) for known in _schemas()):
            raise DataError(f"{path} is damaged: its columns are not a shard's; copy it again")
        table = reader.read_all()
        table.validate(full=True)  # offsets, and the codes of corpora
        return table
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {error}; copy it again") from error


def batch_rows(pieces: Sequence[int]) -> npt.NDArray[np.int64]:
    """Rows of each record batch of a shard; pieces: rows of each of its pieces."""
    rows = np.array([count for count in pieces if count], np.int64)
    batches = -(-rows // BATCH_ROWS)
    found = np.full(batches.sum(), BATCH_ROWS)
    found[np.cumsum(batches) - 1] = rows - BATCH_ROWS * (batches - 1)  # a piece's last is short
    return found


def read_pieces(path: Path, shard: Shard) -> list[pa.Table]:
    """The pieces of a file of a shard, memory-mapped. Raises DataError as `read_table` does, or if
    its record batches are not those of the pieces."""
    return split_into_pieces(read_table(path), shard, path)


def split_into_pieces(table: pa.Table, shard: Shard, path: Path) -> list[pa.Table]:
    """The pieces of `table`, which `read_table` has read from a file of a shard."""
    found = [len(batch) for batch in table.to_batches()]
    if not np.array_equal(found, batch_rows(shard.piece_rows)):
        raise DataError(
            f"{path} is not cut into the record batches that the manifest's pieces have; copy it "
            "again, or run pipeline.prepare again"
        )
    starts = itertools.accumulate(shard.piece_rows, initial=0)
    return [table.slice(start, rows) for start, rows in zip(starts, shard.piece_rows)]


def corpus_in(batch: pa.RecordBatch, path: Path) -> str:
    """The corpus of a record batch of rows; path: its file, which has one corpus."""
    try:
        corpora = batch.column("corpus")
        corpora.validate(full=True)
        return str(corpora[0])
    except (pa.ArrowException, KeyError, IndexError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}; copy it again", path) from error


def ragged(column: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """A list or binary column as flat values and [rows + 1] offsets that start at 0."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of a column without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    if pa.types.is_binary(array.type):
        data = array.buffers()[2]
        # Arrow may omit the buffer where all values are empty
        values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    else:
        values = array.values.to_numpy(zero_copy_only=True)
    # a slice of a table shares the buffers of the whole; only its offsets say what is its own
    return values[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0]


def _encode(table: pa.Table, compression: Compression) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(sink, table.schema, [table], compression)
    return sink.getvalue()


def _write(
    sink: pa.NativeFile, schema: pa.Schema, tables: Iterable[pa.Table], compression: Compression
) -> None:
    # level 1: higher levels are slower and do not compress masks better
    codec = pa.Codec("zstd", compression_level=1) if compression == "zstd" else None
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for table in tables:
            writer.write_table(table, BATCH_ROWS)  # a short last batch ends each table


@functools.cache
def _list_type(dtype: np.dtype[Any]) -> pa.ListType:
    return pa.list_(pa.field("item", pa.from_numpy_dtype(dtype), nullable=False))


def _list(values: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> pa.Array:
    kind = _list_type(values.dtype)
    items = pa.Array.from_buffers(kind.value_type, len(values), [None, pa.py_buffer(values)])
    ends = pa.py_buffer(offsets.astype(np.int32, copy=False))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, ends], children=[items])


def _binary(values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
