"""Files to documents: JSON, tables, plain text, wikiextractor mark-up, in pieces.

`sniff` detects a file's format from its content, `cut` divides it into pieces that can be read
independently, `read` yields a piece's records. A record belongs to the piece in which it starts,
so the pieces of a file give each record exactly once, wherever the cuts are. An unusable record is
yielded as a BadRecord, and reading continues; a record that is not a document is yielded as
Dropped, with the reason; an unusable file raises a DataError.
Memory is bounded by one block and one document, whatever the file's size.

Ids are "name@position": for JSON lines and text the byte (after decompression) at which the record
starts, for tables the row. `prepare` reads JSON lines, Parquet and Arrow so. Of other formats it
reads what `extraction` made of them, with the same ids.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from pipeline.ingest.documents.arrow_tables import (
    ARROW_VERSION,
    arrow_schema,
    batch_span,
    find_batches,
    find_text_columns,
    read_arrow_rows,
)
from pipeline.ingest.documents.books import BOOK_VERSION, read_book
from pipeline.ingest.documents.csv_tables import CSV_VERSION, read_csv
from pipeline.ingest.documents.json_lines import (
    JSON_ARRAY_VERSION,
    WITH_FIELDS,
    keeps_fields,
    read_json_array,
    read_json_lines,
    row_record,
    stored_record,
)
from pipeline.ingest.documents.parquet import (
    PARQUET_VERSION,
    extracted_hash,
    extraction_mark,
    group_bytes,
    group_rows,
    group_span,
    read_rows,
    text_columns,
)
from pipeline.ingest.documents.plain_text import (
    read_blank_line_documents,
    read_lines,
    read_whole_file,
)
from pipeline.ingest.documents.records import (
    EXTRACTED,
    ORIGIN_FIELDS,
    BadRecord,
    Dropped,
    Format,
    Piece,
    PieceReading,
    ReadSpan,
    Record,
    Source,
    State,
    text_fields,
)
from pipeline.ingest.documents.time_limit import TOO_SLOW, drop_slow
from pipeline.ingest.documents.wikiextractor import HOLES_VERSION, read_doc_markup

READING_VERSION = 3
"""Part of every shard's fingerprint; covers which records a file gives, their order and ids."""
READERS: dict[Format, int] = {
    "parquet": PARQUET_VERSION,
    "book": BOOK_VERSION,
    "wiki_jsonl": HOLES_VERSION,
    "doc": HOLES_VERSION,
    "arrow": ARROW_VERSION,
    "csv": CSV_VERSION,
    "json_array": JSON_ARRAY_VERSION,
}
"""Versions that cover the files of one format only."""
MOST_WHOLE_BYTES = 256 << 20
"""Largest size on disk of a compressed file of JSON lines that one task reads."""
BZIP2_VERSION = 1
"""Version of the documents of files with zeros between streams: version 0 stopped there."""
_EDGE_BYTES = 1 << 16

TABLES: tuple[Format, ...] = ("parquet", EXTRACTED, "arrow")
"""Formats that are cut into runs of rows."""


def cut(source: Source, piece_bytes: int) -> list[Piece]:
    """Divide a file into pieces of about `piece_bytes`; some formats are always one piece."""
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes must be positive, not {piece_bytes}")
    if source.format in ("parquet", EXTRACTED):
        return _cut_table(source, group_bytes(source.path), piece_bytes)
    if source.format == "arrow":
        batches, alone = find_batches(source.path)
        sizes = [batch.size for batch in batches]
        # With dictionaries, a batch needs all that came before it.
        return _cut_table(source, sizes, piece_bytes if alone else sys.maxsize)
    if read_whole(source):
        return [Piece(source, 0, source.size, source.size)]
    starts = range(0, source.size, piece_bytes)
    stops = (min(start + piece_bytes, source.size) for start in starts)
    return [Piece(source, start, stop, stop - start) for start, stop in zip(starts, stops)]


def rows_of(piece: Piece) -> range:
    """The rows of a piece of Parquet or Arrow, by their numbers in the file."""
    if piece.source.format == "arrow":
        batches, _ = find_batches(piece.source.path)
        ends = [batch.first_row + batch.rows for batch in batches]
    else:
        ends = list(itertools.accumulate(group_rows(piece.source.path)))
    return range(ends[piece.start - 1] if piece.start else 0, ends[piece.stop - 1])


def span_of(piece: Piece, read: PieceReading, state: State) -> ReadSpan:
    """The span that was read of a piece, to be recorded; state: its file's.

    Tables give no blocks to hash: their bytes are read once more.
    """
    source, start, stop = piece.source, piece.start, piece.stop
    if source.format == EXTRACTED:
        digest = extracted_hash(source.path)
    else:
        if read.stop == read.start:
            if source.format == "parquet":
                start, stop = group_span(source.path, range(start, stop))
            elif source.format == "arrow":
                start, stop = batch_span(source.path, range(start, stop))
            read.take_file(source.path, start, stop)
        digest = read.digest
    return ReadSpan(source.corpus, source.name, read.start, read.stop, digest, *state)


def read_whole(source: Source) -> bool:
    """True if a file that is not Parquet or Arrow can only be read from start to end."""
    by_lines = source.format in ("jsonl", "wiki_jsonl") or (
        source.format == "text" and source.plain_text in ("blank_lines", "lines")
    )
    return source.is_stream or not by_lines


def is_large_stream(source: Source) -> bool:
    """True if a file of compressed JSON lines is too large for one task."""
    return source.format == "jsonl" and bool(source.compression) and source.size > MOST_WHOLE_BYTES


def is_readable(source: Source) -> bool:
    """True if `read` takes the file itself, rather than what was extracted from it."""
    return source.format in _READERS


def is_stored_plain(source: Source) -> bool:
    """True if what is extracted from a file stays uncompressed, as the file itself is.

    Compressing text takes as long as reading it.
    """
    return source.format == "pack" or (is_readable(source) and not source.compression)


def read(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield the records that start in a piece. Raises DataError if the file is damaged."""
    return drop_slow(_READERS[piece.source.format](piece), _dropped)


def file_identity(source: Source) -> list[Any]:
    """For fingerprints: how a file is read, its size and what identifies its content.

    A change in the middle that keeps the size is for `unchanged` to find.
    """
    rewriting = source.rewriting.identity()
    identity: list[Any] = [source.corpus, source.name, source.licence]
    # Only where it is set, so that all other fingerprints are as they were before the option.
    identity += [rewriting] if rewriting else []
    identity += ["fields"] if keeps_fields(source) and source.format in ("parquet", "arrow") else []
    if source.format == EXTRACTED:
        return [*identity, extraction_mark(source.path)]
    identity += [source.text_field, source.plain_text]
    if source.format in READERS:
        identity += [source.format, READERS[source.format]]
    if source.compression == "bz2":
        identity.append(BZIP2_VERSION)
    if source.page_language:
        identity.append(source.page_language)
    return [*identity, source.size, content_identity(source)]


def content_identity(source: Source) -> Any:
    """A hash of a file's ends, as hashing all of 160 GB is too slow; a published file's path.

    A published file is identified before it is fetched and after its copy was removed.
    """
    if source.published:
        return [source.published.path, source.published.hash]
    return file_ends(source.path)


def file_ends(path: str) -> str:
    """A hash of a file's first and last 64 KiB."""
    with Path(path).open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, Path(path).stat().st_size - _EDGE_BYTES))  # a short file is all read again
        return xxhash.xxh3_64_hexdigest(head + file.read())


def ends_of_short(content: bytes) -> str:
    """The `file_ends` of a short file, by all of its content; empty if it is longer."""
    # `file_ends` reads a short file twice: head and tail are both all of it.
    return xxhash.xxh3_64_hexdigest(content * 2) if len(content) <= _EDGE_BYTES else ""


def _dropped(record: Record | Dropped | BadRecord) -> Record | Dropped | BadRecord:
    return Dropped(record.id, TOO_SLOW) if isinstance(record, Record) else record


# --- Parquet and Arrow


def _cut_table(source: Source, groups: list[int], piece_bytes: int) -> list[Piece]:
    """Pieces of whole row groups or batches; groups: bytes of each."""
    pieces, start, before, read_to = [], 0, 0, 0
    total = max(sum(groups), 1)
    for group, size in enumerate(groups):
        read_to += size
        if read_to - before >= piece_bytes or group == len(groups) - 1:
            # A difference of rounded sums, so that the weights add up to the file's size.
            weight = source.size * read_to // total - source.size * before // total
            pieces.append(Piece(source, start, group + 1, weight))
            start, before = group + 1, read_to
    return pieces


def _read_table(piece: Piece) -> Iterator[Record | BadRecord]:
    source, groups = piece.source, range(piece.start, piece.stop)
    is_mapped = keeps_fields(source)
    wanted, others = ((), ()) if is_mapped else (text_fields(source), ORIGIN_FIELDS)
    if source.format == "arrow":
        columns = find_text_columns(arrow_schema(source.path), wanted, source.path)
        rows = read_arrow_rows(source.path, groups, columns, others)
    else:
        columns = text_columns(source.path, wanted)
        rows = read_rows(source.path, groups, columns, others)
    for row, text, origins in rows:
        if isinstance(text, dict):
            yield row_record(source, text, row)
        elif is_mapped:
            yield BadRecord(f"{source.name}:{row + 1}", text)
        elif isinstance(text, str):
            known = (str(value) for value in origins if value and not isinstance(value, bytes))
            yield Record(f"{source.name}@{row}", next(known, source.name), text)
        elif text is None:
            yield BadRecord(f"{source.name}:{row + 1}", "null text")
        else:
            yield BadRecord(f"{source.name}:{row + 1}", "invalid UTF-8", size=len(text))


def _read_extracted(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    source, groups = piece.source, range(piece.start, piece.stop)
    columns: tuple[str, ...] = ("id", "url", "dropped", "bad", "noted", "file", "at", "cut")
    if source.rewriting.function:  # nothing else sees these
        columns += ("language", "revised")
    for row, text, (id, url, dropped, bad, noted, member, at, cut, *known) in read_rows(
        source.path, groups, ("text",), columns
    ):
        file = member or source.name
        name = extracted_id(file, row, at)
        if bad:
            place, size = id if at is None else file + id, dict(cut or ()).get(bad, 0)
            yield BadRecord(place, bad, noted or "", size)
        elif dropped:
            yield Dropped(name, dropped)
        elif noted == WITH_FIELDS:
            yield stored_record(replace(source, name=file), text, name)
        else:
            origin = url or (file if id is None else f"{file}/{id}")
            known = [value or "" for value in known]
            yield Record(name, origin, text, tuple(cut or ()), noted or "", *known)


def extracted_id(file: str, row: int, at: int | None) -> str:
    """The id of an extracted document: its place in the user's file, else its row.

    file: the name of the user's file.
    """
    return f"{file}@{row if at is None else at}"


def _read_plain_text(piece: Piece) -> Iterator[Record | BadRecord]:
    if piece.source.plain_text == "file":
        return read_whole_file(piece)
    lines = piece.source.plain_text == "lines"
    return read_lines(piece) if lines else read_blank_line_documents(piece)


_READERS: dict[Format, Callable[[Piece], Iterator[Record | Dropped | BadRecord]]] = {
    "parquet": _read_table,
    "arrow": _read_table,
    "csv": read_csv,
    "json_array": read_json_array,
    "jsonl": read_json_lines,
    "wiki_jsonl": read_json_lines,
    "doc": read_doc_markup,
    "text": _read_plain_text,
    "book": read_book,
    EXTRACTED: _read_extracted,
}
