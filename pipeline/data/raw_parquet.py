"""Texts from Parquet files, row groups at a time; a damaged file is a DataError with its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError

ROWS = 256  # decoded at once
EXTRACTION_MARK = b"tenfold_extraction"
"""Metadata of files that `extraction` wrote: the fingerprint of what they were made from."""
NOT_UTF8 = b""  # stands for a value that is not UTF-8


def text_column(path: str, wanted: tuple[str, ...]) -> str:
    """The first wanted column there is; DataError if there is none or it holds no strings."""
    with _open(path) as file:
        schema = file.schema_arrow
    found = next((name for name in wanted if name in schema.names), None)
    if found is None:
        raise DataError(
            f"{path} has no column {' or '.join(wanted)}, only {', '.join(schema.names)}; "
            "name one with --text-field"
        )
    kind = schema.field(found).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind not in (pa.string(), pa.large_string(), pa.string_view()):
        raise DataError(f"{path}: column {found} holds {kind}, not strings; name another column")
    return found


def extraction_mark(path: str) -> str:
    """What a file of `extraction` was made from; empty when it is another Parquet file."""
    with _open(path) as file:
        return str((file.schema_arrow.metadata or {}).get(EXTRACTION_MARK, b"").decode())


def group_bytes(path: str) -> list[int]:
    """Uncompressed bytes of each row group."""
    with _open(path) as file:
        groups = range(file.metadata.num_row_groups)
        return [file.metadata.row_group(group).total_byte_size for group in groups]


def read_rows(
    path: str, groups: range, column: str, others: tuple[str, ...]
) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
    """Yield each row of the groups: its number in the file, `column`, and those `others` there are.

    A value is a string, None or NOT_UTF8.
    """
    with _open(path) as file:
        row = sum(file.metadata.row_group(group).num_rows for group in range(groups.start))
        names = [column, *(name for name in others if name in file.schema_arrow.names)]
        # Each column once, though a text column may be one of the others, too.
        for batch in file.iter_batches(ROWS, list(groups), list(dict.fromkeys(names))):
            columns = [_values(batch.column(name)) for name in names]
            for value, *more in zip(*columns, strict=True):
                yield row, value, tuple(more)
                row += 1


@contextmanager
def _open(path: str) -> Iterator[pq.ParquetFile]:
    # Read as a stream: pre-buffering would hold whole row groups in memory.
    try:
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); fetch it again") from error


def _values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = []
        for value in column:
            try:
                values.append(value.as_py())
            except UnicodeDecodeError:
                values.append(NOT_UTF8)
    return values
