"""Documents as Arrow tables, to be written as Parquet: a table becomes a row group.

What is unknown or empty is null, but not the empty text of a document. Most columns of most files
are null throughout, so they are built from the few rows that have a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.ingest.documents.json_lines import stored_text
from pipeline.ingest.documents.parquet import EXTRACTION_COLUMNS
from pipeline.ingest.documents.read import is_stored_plain, read
from pipeline.ingest.documents.records import (
    BadRecord,
    Dropped,
    Extract,
    Piece,
    Record,
    Source,
)

GROUP_BYTES = 16 << 20
"""Text per row group: half a split, so that workers can share a large file."""
GROUP_ROWS = 1 << 20
"""Rows of a row group at most: of rows without text, any number would be one group."""
TABLE_ROWS = 1 << 16
"""Rows of a table at most that are held as Python's objects, which take 300 bytes a row."""
_TYPES = {"at": pa.int64(), "cut": pa.map_(pa.string(), pa.int64())}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in EXTRACTION_COLUMNS])
"""id, url, title, text, dropped, revised, language, domain, noted: as in `Extract`; the text of
what was dropped is null. bad: why a record, whose name is the id, is unusable. at: where a record
starts in the user's file, in bytes or rows, as in its id; null: its id has its row in this file.
cut: as in `Record`; of an unusable record its bytes, by the reason. file: of a group of small
files, the one that holds it."""
_REPEATED = ["dropped", "bad", "language", "domain", "noted", "file"]
"""Columns with few different values."""
FOUND = [name for name in EXTRACTION_COLUMNS if name not in ("bad", "file", *_TYPES)]
"""Columns of what is found in slow formats."""
_values = attrgetter(*FOUND)


def open_writer(path: Path, schema: pa.Schema, is_plain: bool) -> pq.ParquetWriter:
    """Writes a file of such tables; schema: with metadata; is_plain: without compression."""
    compression = "none" if is_plain else "zstd"
    # Statistics would hold two texts of each row group, each twice, and are never read.
    return pq.ParquetWriter(
        path, schema, compression=compression, use_dictionary=_REPEATED, write_statistics=False
    )


def write_documents(
    tables: Iterable[pa.Table], source: Source, path: Path, metadata: dict[bytes, str]
) -> None:
    """Write what was extracted from `source`; metadata: of the Parquet file."""
    schema = SCHEMA.with_metadata(metadata)
    with open_writer(path, schema, is_stored_plain(source)) as writer:
        for table in regrouped(tables):
            writer.write_table(table)


def stored_records(path: Path) -> Iterator[Extract | BadRecord]:
    """The documents of a slow format that were written to a file, without their positions."""
    for table in stored_tables(path):
        for row in table.to_pylist():
            if row["bad"] is None:
                yield Extract(**{name: row[name] or "" for name in FOUND}, position=0)
            else:
                size = dict(row["cut"] or ()).get(row["bad"], 0)
                yield BadRecord(row["id"] or "", row["bad"], size=size)


def stored_tables(path: Path) -> Iterator[pa.Table]:
    """The row groups of a file of documents."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group).replace_schema_metadata()


def extract_tables(records: Iterable[Extract | BadRecord]) -> Iterator[pa.Table]:
    """The documents of a slow format as tables of at most about GROUP_BYTES."""
    rows: list[tuple[str, ...]] = []
    bad: dict[int, BadRecord] = {}
    size = 0
    for record in records:
        if isinstance(record, BadRecord):
            bad[len(rows)] = record
            known = {"id": record.where, "noted": record.about}
            rows.append(tuple(known.get(name, "") for name in FOUND))
        else:
            rows.append(_values(record))
            size += len(record.text)
        if size >= GROUP_BYTES or len(rows) >= TABLE_ROWS:
            yield _found_table(rows, bad)
            rows, bad, size = [], {}, 0
    yield _found_table(rows, bad)


def _found_table(rows: list[tuple[str, ...]], bad: dict[int, BadRecord]) -> pa.Table:
    columns: dict[str, Any] = dict(zip(FOUND, zip(*rows))) or dict.fromkeys(FOUND, ())
    gone = {row for row, reason in enumerate(columns["dropped"]) if reason} | bad.keys()
    # Null and not empty: a document may have the empty text.
    texts = [None if row in gone else text for row, text in enumerate(columns.pop("text"))]
    others = {
        name: {row: value for row, value in enumerate(values) if value}
        for name, values in columns.items()
        if any(values)
    }
    reasons = {row: record.reason for row, record in bad.items()}
    sizes = {row: _lost(record) for row, record in bad.items() if record.size}
    return _table({"text": texts}, others | {"bad": reasons, "cut": sizes})


def _lost(record: BadRecord) -> tuple[tuple[str, int], ...]:
    return ((record.reason, record.size),)


def piece_tables(pieces: Iterable[Piece], *, named: bool = False) -> Iterator[pa.Table]:
    """The records of pieces, as `read` yields them, as tables; named: as in `record_tables`."""
    found = ((piece.source.name, record) for piece in pieces for record in unnamed_records(piece))
    return record_tables(found, named=named)


def unnamed_records(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """The records of a piece as they are stored: without the name of their file."""
    return read(replace(piece, source=replace(piece.source, name="")))


def record_tables(
    records: Iterable[tuple[str, Record | Dropped | BadRecord]], *, named: bool = False
) -> Iterator[pa.Table]:
    """Records, as `unnamed_records` yields them, as tables of at most about GROUP_BYTES.

    records: each after the name of its file. named: keep the names, since there are several files.
    The name of a single one is put before ids when they are read: it is the user's path to the
    file, and may be another one then.
    """
    texts: list[str | None] = []
    ids: list[str] = []
    files: list[str] = []
    others: dict[str, dict[int, Any]] = {}
    size = 0

    def table() -> pa.Table:
        columns = {"text": texts, "at": _places(ids)} | ({"file": files} if named else {})
        return _table(columns, others)

    for name, record in records:
        row = len(texts)
        if named:
            files.append(name)
        if isinstance(record, Record):
            text, noted = stored_text(record)
            ids.append(record.id)
            texts.append(text)
            size += len(text)
            if record.origin:
                others.setdefault("url", {})[row] = record.origin
            if record.cut:
                others.setdefault("cut", {})[row] = record.cut
            if noted:
                others.setdefault("noted", {})[row] = noted
        elif isinstance(record, Dropped):
            ids.append(record.id)
            texts.append(None)
            others.setdefault("dropped", {})[row] = record.reason
        else:
            ids.append("@0")
            texts.append(None)
            others.setdefault("id", {})[row] = record.where
            others.setdefault("bad", {})[row] = record.reason
            if record.size:
                others.setdefault("cut", {})[row] = _lost(record)
            if record.about:
                others.setdefault("noted", {})[row] = record.about
        if size >= GROUP_BYTES or len(texts) >= TABLE_ROWS:
            yield table()
            texts, ids, files, others, size = [], [], [], {}, 0
    yield table()


def _places(ids: list[str]) -> pa.Array:
    """The numbers in ids such as "@12"."""
    return pc.utf8_slice_codeunits(pa.array(ids, pa.string()), 1).cast(pa.int64())


def _table(columns: dict[str, Any], others: dict[str, dict[int, Any]]) -> pa.Table:
    """Rows by whole columns, and by the values of the others that have any."""
    count = len(columns["text"])
    arrays = []
    for field in SCHEMA:
        if field.name in columns:
            values = columns[field.name]
        elif some := others.get(field.name):
            values = [some.get(row) for row in range(count)]
        else:
            values = pa.nulls(count, field.type)
        arrays.append(values if isinstance(values, pa.Array) else _array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # A page can name a lone surrogate, which becomes "?", as in cleaning.
        whole = [value and value.encode(errors="replace").decode() for value in values]
        return pa.array(whole, kind)


def regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Regroup the rows: each table but the last has GROUP_BYTES of text and no row more, or
    GROUP_ROWS."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        lengths = pc.fill_null(pc.utf8_length(table["text"]), 0)
        ends = np.cumsum(lengths.to_numpy(), dtype=np.int64)
        start = before = 0
        while True:
            # Sums never fall, so bisection finds the row that fills the group.
            last = int(np.searchsorted(ends, before + GROUP_BYTES - size))
            last = min(last, start + GROUP_ROWS - 1 - sum(part.num_rows for part in held))
            if last >= len(ends):
                break
            yield pa.concat_tables([*held, table.slice(start, last + 1 - start)]).combine_chunks()
            held, size, start, before = [], 0, last + 1, int(ends[last])
        if start < len(ends):
            held.append(table.slice(start))
            size += int(ends[-1]) - before  # left for the next table to fill up
    yield pa.concat_tables(held or [SCHEMA.empty_table()]).combine_chunks()
