"""Units as Parquet files, and the files that are put together from them.

A unit's file is written whole or not at all and says where the unit begins and ends. The file of
all units has the row groups that it would have without units, since these decide how `prepare`
cuts its work, and so the shards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, whole_file
from pipeline.data.documents.records import BadRecord, Extract, Source
from pipeline.data.documents.unchanged import CHANGED, RawContent, placed_state, unchanged
from pipeline.data.extraction.places import START, Place
from pipeline.data.extraction.units import FORMATS, Records, Span, Unit, unit_records
from pipeline.execution.ledger import lock_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.string()),
        pa.field("title", pa.string()),
        pa.field("text", pa.string()),  # null if dropped
        pa.field("dropped", pa.string()),  # null if kept
        pa.field("bad", pa.string()),  # why it is unusable, or null
        pa.field("revised", pa.string()),
        pa.field("language", pa.string()),
        pa.field("domain", pa.string()),
        pa.field("noted", pa.string()),  # what to know about a text that is kept, or null
    ]
)
GROUP_BYTES = 16 << 20
"""Text per row group: half a split, so that workers can share a large file."""
_SPAN, _STATE = "tenfold_span", "tenfold_raw_state"
Row = dict[str, str | None]


def write_unit(unit: Unit, start: Place, path: Path) -> None:
    """Write the documents of a unit, read from `start` on."""
    span = Span()
    with (
        pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer,
        unchanged([unit.source]),
    ):
        try:
            for table in _tables(unit_records(unit, start, span)):
                writer.write_table(table)
        except DataError:
            if start == START or span.records:
                raise
            span = Span()  # perhaps no record starts there: it will be read from where one does
        writer.add_key_value_metadata({_SPAN: json.dumps(asdict(span))})
        writer.add_key_value_metadata({_STATE: json.dumps(placed_state(unit.source))})


def is_unit_of(content: RawContent, path: Path) -> bool:
    """Whether a unit's file was extracted from a raw file with this content."""
    return json.loads(pq.read_metadata(path).metadata[_STATE.encode()]) in content.states


def write_file(
    source: Source,
    units: list[Unit],
    stored: Callable[[Unit], Path],
    metadata: Callable[[bool], dict[bytes, str]],
    path: Path,
) -> None:
    """Write the documents of all units of a file.

    stored: where a unit is if it was written. metadata: of the file, given whether an archive holds
    markup.
    """
    format = FORMATS[source.format]
    finish, has_markup = format.finish, False
    if len(units) == 1 and not (finish or format.markup):
        tables = _tables(unit_records(units[0], START, Span()))
    else:
        files = _in_order(units, stored)
        has_markup = any(span.has_markup for _, span in files)
        if format.markup and has_markup:
            finish = format.markup.finish
        if finish:
            tables = _tables(finish(source, lambda: _records(files, format.numbers_records)))
        else:
            tables = (table for file, _ in files for table in _groups(file))
    schema = SCHEMA.with_metadata(metadata(has_markup))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in _regrouped(tables):
            writer.write_table(table)


def _in_order(units: list[Unit], stored: Callable[[Unit], Path]) -> list[tuple[Path, Span]]:
    """The units' files and spans; writes those that are missing, or begin elsewhere than the one
    before ends."""
    files: list[tuple[Path, Span]] = []
    place = START
    for unit in units:
        path = stored(unit)
        with one_at_a_time(lock_of(path)):  # as `only_once`: another process keeps what is locked
            span = _span(path)
            if span is None or (files and span.begin != place):
                with whole_file(path) as temporary:
                    write_unit(unit, place, temporary)
                span = _span(path)
        if span is None or (files and span.begin != place):
            raise DataError(CHANGED.format(unit.source.path))
        files.append((path, span))
        place = span.end
    return files


def _span(path: Path) -> Span | None:
    if not path.exists():
        return None
    with pq.ParquetFile(path) as file:
        fields = json.loads(file.metadata.metadata[_SPAN.encode()])
    return Span(**fields | {name: tuple(fields[name]) for name in ("begin", "end")})


def _groups(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group).replace_schema_metadata()


def _tables(records: Records) -> Iterator[pa.Table]:
    """Documents as tables of about GROUP_BYTES."""
    rows: list[Row] = []
    size = 0
    for record in records:
        rows.append(_row(record))
        size += len(rows[-1]["text"] or "")
        if size >= GROUP_BYTES:
            yield pa.Table.from_pylist(rows, SCHEMA)
            rows, size = [], 0
    yield pa.Table.from_pylist(rows, SCHEMA)


def _regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, each table but the last with GROUP_BYTES of text and no row more."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        lengths = pc.fill_null(pc.utf8_length(table["text"]), 0)
        ends = np.cumsum(lengths.to_numpy(), dtype=np.int64)
        start = before = 0
        while (last := int(np.searchsorted(ends, before + GROUP_BYTES - size))) < len(ends):
            yield pa.concat_tables([*held, table.slice(start, last + 1 - start)]).combine_chunks()
            held, size, start, before = [], 0, last + 1, int(ends[last])
        if start < len(ends):
            held.append(table.slice(start))
            size += int(ends[-1]) - before
    yield pa.concat_tables(held or [SCHEMA.empty_table()]).combine_chunks()


def _row(record: Extract | BadRecord) -> Row:
    if isinstance(record, BadRecord):
        return dict.fromkeys(SCHEMA.names) | {"id": record.where, "bad": record.reason}
    return {
        "id": record.id,
        "url": record.url,
        "title": record.title,
        # a page can name a lone surrogate, which becomes "?", as in cleaning
        "text": None if record.dropped else record.text.encode(errors="replace").decode(),
        "dropped": record.dropped or None,
        "bad": None,
        "revised": record.revised,
        "language": record.language,
        "domain": record.domain,
        "noted": record.noted or None,
    }


def _records(files: list[tuple[Path, Span]], are_numbered: bool) -> Records:
    """The documents of units; numbers of unusable records become those in the whole file."""
    before = 0
    for path, span in files:
        for table in _groups(path):
            for row in table.to_pylist():
                yield _record(row, before if are_numbered else 0)
        before += span.records


def _record(row: Row, before: int) -> Extract | BadRecord:
    bad = row.pop("bad")
    if bad is not None:
        where = row["id"] or ""
        if before:
            name, _, number = where.rpartition(":")
            where = f"{name}:{int(number) + before}"
        return BadRecord(where, bad)
    return Extract(**{name: value or "" for name, value in row.items()}, position=0)
