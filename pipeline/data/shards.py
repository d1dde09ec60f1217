"""What `pipeline.prepare` leaves on disk, written and read: Arrow IPC files and the manifest.

    train-00000.arrow            rows, in record batches of 1,024
    train-00000.mask-K.arrow     duplicate K of the masks of the same rows, in the same order
    validation-00000.arrow ...   the same for validation
    documents.parquet            one row a document
    manifest.json                what all of it is; the last to appear: where it is, all is

Arrow IPC *files* open with pyarrow.ipc.open_file and datasets.load_dataset("arrow"), and map into
memory. An IPC file's bytes may change with the Arrow version; its columns may not: compare those.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import xxhash

from pipeline.data.rows.masks import Masking, Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.errors import DataError
from pipeline.files import whole_file, write_whole

SCHEMA_VERSION = 1
BATCH_ROWS = 1024
MANIFEST = "manifest.json"
TRAIN: Literal["train"] = "train"
VALIDATION: Literal["validation"] = "validation"

Compression = Literal["none", "zstd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFile:
    """One duplicate of one shard's masks."""

    file: str
    predictions: int
    bytes: int
    xxh3_64: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of rows and its mask files, duplicate 0 first."""

    file: str
    split: str
    """train or validation."""
    sequences: int
    tokens: int
    """Positions of all rows, special tokens included."""
    bytes: int
    xxh3_64: str
    masks: tuple[MaskFile, ...]

    def files(self) -> tuple[Shard | MaskFile, ...]:
        """The file of rows, then those of masks."""
        return (self, *self.masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole description of a prepared directory."""

    schema_version: int
    fingerprint: str
    """Of everything that decides the bytes of the columns."""
    data: dict[str, Any]
    """The recipe's data section, as prepared."""
    masking: dict[str, Any]
    """As `Masking.describe` says: scheme, rate, 80/10/10 split, generator version."""
    sequence_length: int
    max_predictions: int
    duplicates: int
    """Masks stored with each train row; 0 when the loader draws them."""
    seed: int
    compression: str
    engine: dict[str, Any]
    """The recipe's name, and versions of what made ids, sentences, rows and masks."""
    tokenizer: dict[str, Any]
    """sha256 of tokenizer.json, kind, size and the five special ids."""
    corpora: dict[str, Any]
    """Per corpus: documents, sequences, tokens, bytes, drop reasons, bad records, licence, and what
    became of text tokens in packing."""
    totals: dict[str, int]
    files: dict[str, dict[str, Any]]
    """Every other file by its path: bytes and xxh3_64."""
    shards: tuple[Shard, ...]

    def of(self, split: str) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def to_json(self) -> bytes:
        """The text of manifest.json."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False).encode()


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a finished directory; DataError when there is none or it is not ours."""
    path = directory / MANIFEST
    if not path.exists():
        why = (
            "pipeline.prepare has not finished there" if directory.is_dir() else "no such directory"
        )
        raise DataError(f"{directory} holds no {MANIFEST}: {why}; run pipeline.prepare")
    try:
        content = json.loads(path.read_bytes())
        version = content["schema_version"]
        if version != SCHEMA_VERSION:
            raise DataError(
                f"{path}: schema version {version}, this version reads {SCHEMA_VERSION}"
            )
        shards = tuple(
            Shard(**(shard | {"masks": tuple(MaskFile(**mask) for mask in shard["masks"])}))
            for shard in content.pop("shards")
        )
        return Manifest(**content, shards=shards)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is damaged ({error}); run pipeline.prepare again") from error


def stored_masks(duplicates: int, split: str) -> int:
    """Mask files of a shard; duplicates: of the recipe.

    Validation rows have one even when the masks of train are drawn as they are read, so that all
    evaluations see the same.
    """
    return max(1, duplicates) if split == VALIDATION else duplicates


def check_size(directory: Path, file: str, size: int) -> Path:
    """The path of a shard file; DataError when it is missing or of another size."""
    path = directory / file
    if not path.exists():
        raise DataError(
            f"{path} is missing; copy it again or run pipeline.prepare into a new directory", path
        )
    actual = path.stat().st_size
    if actual != size:
        raise DataError(
            f"{path} is damaged: {actual:,} bytes, the manifest says {size:,}; copy it again", path
        )
    return path


def hash_file(path: Path) -> str:
    """xxh3_64 of a file's bytes, 16 hex digits."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


def encode_rows(
    rows: Rows,
    corpus: str,
    corpora: list[str],
    sequences: npt.NDArray[np.uint64],
    compression: Compression,
) -> pa.Buffer:
    """The bytes of a file of rows; corpora: every name that the dictionary holds."""
    codes = pa.array(np.full(len(rows), corpora.index(corpus), np.int16))
    columns = [
        _list(rows.ids, rows.offsets),
        _list(rows.document_starts, rows.document_offsets),
        pa.array(rows.second_segment),
        pa.array(rows.pair_label),
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


def write_file(path: Path, content: pa.Buffer) -> dict[str, Any]:
    """Write a shard file; returns its name, bytes and hash for the manifest."""
    view = memoryview(content)
    write_whole(path, view, lasting=False)
    return {"file": path.name, "bytes": len(view), "xxh3_64": xxhash.xxh3_64_hexdigest(view)}


def write_tables(
    path: Path, schema: pa.Schema, tables: Iterable[pa.Table], compression: Compression
) -> dict[str, Any]:
    """`write_file` of the rows of tables as they come: no more than one is in memory.

    All but the last have a multiple of 1,024 rows.
    """
    with whole_file(path, lasting=False) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        _write(sink, schema, tables, compression)
    return {"file": path.name, "bytes": path.stat().st_size, "xxh3_64": hash_file(path)}


def write_masks(
    directory: Path,
    stem: str,
    masking: Masking,
    duplicates: range,
    ids: npt.NDArray[Any],
    offsets: npt.NDArray[np.int64],
    corpus: str,
    sequences: npt.NDArray[np.uint64],
    compression: Compression,
) -> list[dict[str, Any]]:
    """Draw and write the mask files of a shard of one corpus; returns the manifest's entries."""
    entries = []
    for duplicate, masks in enumerate(
        masking.draw_duplicates(ids, offsets, corpus, sequences, duplicates)
    ):
        path = directory / f"{stem}.mask-{duplicate}.arrow"
        entry = write_file(path, encode_masks(masks, compression))
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
    """Columns of a mask file; dtype: of the ids; swaps: sentence order is learned."""
    fields = [
        pa.field("positions", pa.binary(), nullable=False),
        pa.field("actions", pa.binary(), nullable=False),
        pa.field("random_ids", _list_type(dtype), nullable=False),
    ]
    return pa.schema([*fields, pa.field("swapped", pa.bool_(), nullable=False)][: 3 + swaps])


def cut_anew(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Their rows in order, in tables of a multiple of 1,024 rows and one of what is left.

    As few of the tables are held as fill a record batch.
    """
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) >= BATCH_ROWS:
            rows = pa.concat_tables(held)
            whole = len(rows) // BATCH_ROWS * BATCH_ROWS
            yield rows.slice(0, whole).combine_chunks()
            held = [rows.slice(whole)]
    if any(map(len, held)):
        yield pa.concat_tables(held).combine_chunks()


def read_table(path: Path) -> pa.Table:
    """A whole shard file, mapped into memory; DataError when it is not a whole Arrow file."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{path} is damaged: {error}; copy it again") from error


def corpus_of(path: Path) -> str:
    """The corpus of a file of rows, which holds one: its first row's."""
    try:
        return str(pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0).column("corpus")[0])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise DataError(f"{path} is damaged: {error}; copy it again", path) from error


def ragged(column: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """A list or binary column as flat values and [rows + 1] offsets that begin with 0."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # what combine_chunks gives for a column without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    if pa.types.is_binary(array.type):
        data = array.buffers()[2]
        values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    else:
        values = array.values.to_numpy(zero_copy_only=True)
    return values[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0]


def _encode(table: pa.Table, compression: Compression) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(sink, table.schema, [table], compression)
    return sink.getvalue()


def _write(
    sink: pa.NativeFile, schema: pa.Schema, tables: Iterable[pa.Table], compression: Compression
) -> None:
    # level 1: higher ones are slower and, on masks, no smaller
    codec = pa.Codec("zstd", compression_level=1) if compression == "zstd" else None
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for table in tables:
            writer.write_table(table, BATCH_ROWS)


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
