"""Texts from Parquet files, row groups at a time. A damaged file raises a DataError with its name.

A corpus has its texts in known columns, see `read_rows`. Evaluation files have them in any
column, at any depth, and may be Arrow files or streams, see `read_strings`; of those with labels
whole rows are read, see `read_table_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.base.errors import DataError
from pipeline.ingest.documents.arrow_tables import (
    ARROW_FILE,
    ARROW_STREAM,
    BATCH_BYTES,
    ROWS,
    find_text_columns,
    naming_tables,
    record_texts,
    require_distinct,
    values,
)

_MANY_BYTES = 1 << 27  # in a large row group, rows may differ much in size
_FEW_ROWS = 64
EXTRACTION_MARK = b"tenfold_extraction"
"""Metadata key of files that `extraction` wrote: the fingerprint of their source."""
EXTRACTION_COLUMNS = [
    "id", "url", "title", "text", "dropped", "revised", "language", "domain", "noted", "file",
    "at", "cut", "bad",
]  # fmt: skip
"""Columns of such files, see `extraction`."""
CONTENT_MARK = b"tenfold_content"
"""Metadata key of such files: hashes of the files that were extracted, with spaces between."""

PARQUET_VERSION = 1
"""Part of a file's identity: increase it when the same file gives different records."""
STRING_TYPES = (pa.string(), pa.large_string(), pa.string_view())


def text_columns(path: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The `find_text_columns` of a file."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
    return find_text_columns(schema, wanted, path)


def extraction_mark(path: str) -> str:
    """The fingerprint of an extracted file's source; empty for any other Parquet file.

    Raises DataError for a file that another version extracted, to other columns.
    """
    with open_parquet(path) as file:
        schema = file.schema_arrow
    mark = str((schema.metadata or {}).get(EXTRACTION_MARK, b"").decode())
    if mark and schema.names != EXTRACTION_COLUMNS:
        raise DataError(
            f"{path} was extracted by another version of Tenfold; remove it, and give its source"
        )
    return mark


def extraction_content(path: str) -> list[str]:
    """Hashes of the files that were extracted to this one."""
    with open_parquet(path) as file:
        hashes = str(file.schema_arrow.metadata[CONTENT_MARK].decode())
    return hashes.split()


def extracted_hash(path: str) -> str:
    """The hash, in the spans of an extracted file, of all that it was extracted from."""
    joined = "".join(hashes := extraction_content(path))
    # For a single file it is that file's own hash.
    return joined if len(hashes) < 2 else xxhash.xxh3_64_hexdigest(joined.encode())


def group_span(path: str, groups: range) -> tuple[int, int]:
    """The first byte of the row groups in the file, and the end of the last one's."""
    with open_parquet(path) as file:
        about = file.metadata
        chunks = [
            about.row_group(group).column(column)
            for group in groups
            for column in range(about.num_columns)
        ]
    # The dictionary page comes before the pages of data.
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    stops = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks)]
    return min(starts, default=0), max(stops, default=0)


def group_bytes(path: str) -> list[int]:
    """Uncompressed bytes of each row group."""
    with open_parquet(path) as file:
        groups = range(file.metadata.num_row_groups)
        return [file.metadata.row_group(group).total_byte_size for group in groups]


def group_rows(path: str) -> list[int]:
    """Rows of each row group."""
    with open_parquet(path) as file:
        groups = range(file.metadata.num_row_groups)
        return [file.metadata.row_group(group).num_rows for group in groups]


def read_rows(
    path: str, groups: range, columns: tuple[str, ...], others: tuple[str, ...]
) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
    """Yield each row of the groups: its number in the file, its text, and the existing `others`.

    columns: of the text, see `record_texts`. A value is a string, None or bytes that are not UTF-8.
    """
    with open_parquet(path) as file:
        # Counted from the start of the file: ids must not depend on where it is cut.
        row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
        names = [name for name in others if name in file.schema_arrow.names]
        # A text column may be one of the others.
        wanted = list(dict.fromkeys([*columns, *names])) if columns else None
        for group in groups:
            rows = _rows_at_once(file.metadata.row_group(group))
            for batch in file.iter_batches(rows, [group], wanted):
                found = [record_texts(batch, columns)]
                found += [values(batch.column(name)) for name in names]
                for value, *more in zip(*found, strict=True):
                    yield row, value, tuple(more)
                    row += 1


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """Number of rows of a group to decode at once: few if their texts are large."""
    average = max(1, group.total_byte_size // max(1, group.num_rows))
    most = _FEW_ROWS if group.total_byte_size > _MANY_BYTES else ROWS
    rows: int = max(1, min(most, BATCH_BYTES // average))
    return rows


def table_format(head: bytes) -> Literal["", "Parquet", "Arrow"]:
    """The format of a table that starts with `head`; empty if the file is not a table."""
    if head.startswith(b"PAR1"):
        return "Parquet"
    return "Arrow" if head.startswith((ARROW_FILE, ARROW_STREAM)) else ""


def read_strings(path: str, content: bytes | None = None) -> Iterator[str]:
    """Yield every string of a Parquet or Arrow file, in any column and at any depth.

    content: the decompressed file if the whole file is compressed.
    """
    for batch in _batches(path, content, _string_columns):
        for column in batch.columns:
            for array in _string_arrays(column):
                yield from (value for value in array.to_pylist() if value is not None)


def read_table_rows(path: str, content: bytes | None = None) -> Iterator[dict[str, Any]]:
    """Yield every row of a Parquet or Arrow file: its values by the names of the columns.

    content: as for `read_strings`.
    """
    for batch in _batches(path, content, lambda schema: [*range(len(schema))]):
        require_distinct(path, batch.schema.names, batch.schema.names)  # a row is a dict
        with naming_tables(path):
            rows: list[dict[str, Any]] = batch.to_pylist()
        yield from rows


def _batches(
    path: str, content: bytes | None, choose: Callable[[pa.Schema], list[int]]
) -> Iterator[pa.RecordBatch]:
    """Valid record batches of the columns whose indices `choose` gives."""
    with naming_tables(path):
        file = pa.OSFile(path) if content is None else pa.BufferReader(content)
        head = file.read(len(ARROW_FILE))
        file.seek(0)
        if table_format(head) == "Parquet":
            batches = _parquet_batches(file, choose)
        else:
            batches = _arrow_batches(file, is_stream=head != ARROW_FILE)
        for batch in batches:
            chosen = batch.select(choose(batch.schema))
            _require_valid(chosen, path)
            yield chosen


def _parquet_batches(
    file: pa.NativeFile, choose: Callable[[pa.Schema], list[int]]
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
        schema = table.schema_arrow
        names = [schema.names[index] for index in choose(schema)]
        # pyarrow cannot read a nested dictionary in a batch that spans row groups.
        for group in range(table.num_row_groups if names else 0):
            yield from table.iter_batches(ROWS, [group], names)


def _arrow_batches(file: pa.NativeFile, is_stream: bool) -> Iterator[pa.RecordBatch]:
    if is_stream:
        yield from pa.ipc.open_stream(file)
        return
    batches = pa.ipc.open_file(file)
    for number in range(batches.num_record_batches):
        yield batches.get_batch(number)


def _require_valid(batch: pa.RecordBatch, path: str) -> None:
    """Raises DataError if strings are not UTF-8, or offsets are outside their buffer."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{path} holds invalid values ({error}); convert it again, with strings in UTF-8"
        ) from error


def _string_columns(schema: pa.Schema) -> list[int]:
    """Indices of the columns that can hold strings."""
    empty = [pa.nulls(0, field.type) for field in schema]  # no rows, but all children
    return [
        index for index, column in enumerate(empty) if any(True for _ in _string_arrays(column))
    ]


def _string_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """The string arrays inside an array; list offsets and structure are lost."""
    kind = array.type
    children: list[pa.Array] = []
    if kind in STRING_TYPES:
        yield array
    elif isinstance(kind, pa.BaseExtensionType):
        children = [array.storage]
    elif pa.types.is_dictionary(kind):
        children = [array.dictionary_decode()]
    elif pa.types.is_run_end_encoded(kind):
        children = [array.values]
    elif pa.types.is_union(kind):
        children = [array.field(index) for index in range(kind.num_fields)]
    elif pa.types.is_struct(kind):
        children = array.flatten()
    elif pa.types.is_map(kind):  # a slice still has the whole array's keys and items
        start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        children = [part.slice(start, stop - start) for part in (array.keys, array.items)]
    elif pa.types.is_nested(kind):  # lists of all kinds
        children = [array.flatten()]
    for child in children:
        yield from _string_arrays(child)


@contextmanager
def open_parquet(path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file; errors while it is read become a DataError with its name."""
    # Read as a stream: pre-buffering would hold whole row groups in memory.
    with naming_tables(path), pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        yield file
