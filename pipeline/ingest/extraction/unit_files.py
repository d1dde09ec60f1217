"""Units as Parquet files, and the files that are put together from them.

A unit's file is written whole or not at all and says where the unit begins and ends. The file of
all units has the row groups that it would have without units, since these decide how `prepare`
cuts its work, and so the shards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, whole_file
from pipeline.execution.ledger import lock_of
from pipeline.ingest.documents.read import cut, is_stored_plain
from pipeline.ingest.documents.records import BadRecord, Extract, Piece, Source
from pipeline.ingest.documents.unchanged import CHANGED, RawContent, placed_state, unchanged
from pipeline.ingest.extraction.document_tables import (
    FOUND,
    SCHEMA,
    extract_tables,
    open_writer,
    piece_tables,
    regrouped,
)
from pipeline.ingest.extraction.places import END, START, Place
from pipeline.ingest.extraction.units import (
    Records,
    SlowFormat,
    Span,
    Unit,
    format_of,
    is_exact,
    is_joined,
    unit_records,
)

_SPAN, _STATE = "tenfold_span", "tenfold_raw_state"
Row = dict[str, Any]


def write_unit(unit: Unit, start: Place, path: Path) -> None:
    """Write the documents of a unit, read from `start` on."""
    span = Span()
    with (
        open_writer(path, SCHEMA, is_stored_plain(unit.source)) as writer,
        unchanged([unit.source]),
    ):
        try:
            for table in _unit_tables(unit, start, span):
                writer.write_table(table)
        except DataError:
            is_guess = START != start == (unit.start, 0)
            if not is_guess or span.records or is_exact(unit):
                raise
            span = Span()  # perhaps no record starts there: it will be read from where one does
        writer.add_key_value_metadata({_SPAN: json.dumps(asdict(span))})
        writer.add_key_value_metadata({_STATE: json.dumps(placed_state(unit.source))})


def is_unit_of(content: RawContent, path: Path) -> bool:
    """True if a unit's file was extracted from a raw file with this content."""
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
    if not is_joined(source, units):
        tables = _unit_tables(units[0], START, Span())
        write_documents_file(tables, source, path, metadata(False))
        return
    join_units(source, _in_order(units, stored), metadata, path)


def join_units(
    source: Source,
    files: list[tuple[Path, Span]],
    metadata: Callable[[bool], dict[bytes, str]],
    path: Path,
) -> None:
    """Write a file from the files of its units; metadata: as in `write_file`."""
    format = format_of(source)
    finish, has_markup, numbered = None, any(span.has_markup for _, span in files), False
    if isinstance(format, SlowFormat):
        markup = format.markup if has_markup else None
        finish, numbered = markup.finish if markup else format.finish, format.numbers_records
    if finish:
        tables = extract_tables(finish(source, lambda: _records(files, numbered)))
    else:
        tables = (table for file, _ in files for table in _groups(file))
    write_documents_file(tables, source, path, metadata(has_markup))


def write_documents_file(
    tables: Iterable[pa.Table], source: Source, path: Path, metadata: dict[bytes, str]
) -> None:
    """Write what was extracted from `source`; metadata: of the Parquet file."""
    schema = SCHEMA.with_metadata(metadata)
    with open_writer(path, schema, is_stored_plain(source)) as writer:
        for table in regrouped(tables):
            writer.write_table(table)


def _unit_tables(unit: Unit, start: Place, span: Span) -> Iterator[pa.Table]:
    """The documents of a unit as tables; fills `span`."""
    if not is_exact(unit):
        return extract_tables(unit_records(unit, start, span))
    span.begin = (unit.start, 0)  # nothing is guessed, see `is_exact`
    span.end = (unit.stop, 0) if unit.stop < unit.source.size else END
    if unit.source.group:
        pieces = (piece for file in unit.source.files for piece in cut(file, sys.maxsize))
        return piece_tables(pieces, named=True)
    return piece_tables([Piece(unit.source, unit.start, unit.stop, unit.stop - unit.start)])


def _in_order(units: list[Unit], stored: Callable[[Unit], Path]) -> list[tuple[Path, Span]]:
    """The units' files and spans; writes those that are missing, or do not begin where the one
    before ends."""
    files: list[tuple[Path, Span]] = []
    place = START
    for unit in units:
        path = stored(unit)
        with one_at_a_time(lock_of(path)):  # as `only_once`: another process keeps what is locked
            span = _span(path)
            if span is None or (files and span.begin != place):
                # Missing, or started at a wrong guess: read from where the unit before it ended.
                with whole_file(path) as temporary:
                    write_unit(unit, place, temporary)
                span = _span(path)
        # From a known place it must fit, unless the file is another one by now.
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


def _records(files: list[tuple[Path, Span]], are_numbered: bool) -> Records:
    """The documents of units; numbers of unusable records become those in the whole file."""
    before = 0
    for path, span in files:
        for table in _groups(path):
            for row in table.to_pylist():
                yield _record(row, before if are_numbered else 0)
        before += span.records


def _record(row: Row, before: int) -> Extract | BadRecord:
    if row["bad"] is not None:
        where = row["id"] or ""
        if before:
            name, _, number = where.rpartition(":")
            where = f"{name}:{int(number) + before}"
        return BadRecord(where, row["bad"], size=dict(row["cut"] or ()).get(row["bad"], 0))
    values: dict[str, Any] = {name: row[name] or "" for name in FOUND}
    return Extract(**values, position=0)
