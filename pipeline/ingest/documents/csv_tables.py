"""CSV and TSV with a header -> records, a row each; pyarrow parses them as a stream.

The delimiter is the one of comma, tab, semicolon and bar that separates the header's columns.
Values may be in quotes, with newlines in them, so a file is read as one piece. Tables without
quotes, in which a quote is text, are recognized by their first rows. Rows of another length than
the header's and values that are not UTF-8 are bad records.

Memory is a few blocks of BLOCK_BYTES, which also limits a row.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from pipeline.base.errors import DataError
from pipeline.ingest.documents.arrow_tables import record_texts
from pipeline.ingest.documents.byte_blocks import BOM, read_blocks
from pipeline.ingest.documents.records import ORIGIN_FIELDS, BadRecord, Piece, Record, text_fields

CSV_VERSION = 1
"""Part of a file's identity: increase it when the same file gives different records."""
BLOCK_BYTES = 1 << 24
HEAD_BYTES = 1 << 16  # examined for the header

_DELIMITERS = "\t,;|"
_COLUMN_NAME = re.compile(r"\w[\w .:/-]{0,63}")
_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Dialect:
    """The columns, delimiter and quoting of a table."""

    columns: tuple[str, ...]
    delimiter: str
    is_quoted: bool


def find_dialect(head: bytes, wanted: tuple[str, ...]) -> Dialect:
    """The dialect of a table, by its first bytes; the delimiter that gives a wanted column."""
    # The head may end inside a character.
    lines = head.removeprefix(BOM).decode(errors="replace").lstrip("\r\n")
    split = {mark: tuple(next(_rows(lines, mark, True), ())) for mark in _DELIMITERS}
    mark = max(split, key=lambda mark: (not {*split[mark]}.isdisjoint(wanted), len(split[mark])))
    return Dialect(split[mark], mark, _is_quoted(lines, mark, len(split[mark])))


def _is_quoted(lines: str, mark: str, width: int) -> bool:
    """True if quotes are around values, rather than a part of them."""
    quoted = [len(row) for row in _rows(lines, mark, True)][:-1]  # the last row may be cut
    bare = [len(row) for row in _rows(lines, mark, False)][:-1]
    # A delimiter or newline inside quotes: read without them, that row has another width.
    if any(size not in (0, width) for size in bare):
        return True
    return len(quoted) == len(bare) and all(size in (0, width) for size in quoted)


def _rows(lines: str | Iterator[str], mark: str, is_quoted: bool) -> Iterator[list[str]]:
    """Rows as the standard library reads them, up to the first that it cannot read."""
    text = io.StringIO(lines, newline="") if isinstance(lines, str) else lines
    csv.field_size_limit(BLOCK_BYTES)  # the default, 131,072, is too short
    if is_quoted:
        rows = csv.reader(text, delimiter=mark)
    else:
        rows = csv.reader(text, delimiter=mark, quoting=csv.QUOTE_NONE)
    with contextlib.suppress(csv.Error):
        yield from rows


def is_table(head: bytes, wanted: tuple[str, ...]) -> bool:
    """True if a file without a telling name starts with a header and a row of as many values."""
    dialect = find_dialect(head, wanted)
    names = dialect.columns
    if len(names) < 2 or {*names}.isdisjoint(wanted) or len({*names}) < len(names):
        return False
    if not all(map(_COLUMN_NAME.fullmatch, names)):
        return False
    lines = head.removeprefix(BOM).decode(errors="replace")
    rows = [row for row in _rows(lines, dialect.delimiter, dialect.is_quoted) if row]
    return len(rows) > 1 and len(rows[1]) == len(names)


def require_text_column(path: str, head: bytes, wanted: tuple[str, ...]) -> None:
    """Raises DataError if no column of a table's header is a wanted one."""
    columns = find_dialect(head, wanted).columns
    if {*columns}.isdisjoint(wanted):
        shown = ", ".join(columns)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]} ..."
        raise DataError(
            f"{path} has no column {' or '.join(wanted)}, only {shown}; its first line must name "
            "its columns, and --text-field the one with text (--plain-text reads it as text)"
        )


def read_csv(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the rows of a table. Raises DataError if it cannot be parsed."""
    source, wanted = piece.source, text_fields(piece.source)
    dialect = find_dialect(_head(piece), wanted)
    columns = tuple(name for name in wanted if name in dialect.columns)
    origins = [name for name in ORIGIN_FIELDS if name in dialect.columns]
    bad_rows: set[int] = set()

    def skip(row: pa_csv.InvalidRow) -> str:
        bad_rows.add(row.number - 2)  # the header is row 1
        return "skip"

    row = 0
    try:
        for batch in _batches(piece, dialect, [*columns, *origins], skip):
            values = [record_texts(batch, names) for names in (columns, *((o,) for o in origins))]
            for text, *found in zip(*values, strict=True):
                # The parser leaves bad rows out; they are counted here, since ids are the file's
                # rows.
                while row in bad_rows:
                    yield _wrong_length(piece, row)
                    bad_rows.remove(row)
                    row += 1
                if isinstance(text, str):
                    origin = next((value for value in found if value), source.name)
                    yield Record(f"{source.name}@{row}", str(origin), text)
                else:
                    yield BadRecord(f"{source.name}:{row + 1}", "invalid UTF-8")
                row += 1
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{source.path} cannot be read after row {row:,} ({str(error).splitlines()[0]}); a "
            f"quote may be open, or a row longer than {BLOCK_BYTES >> 20} MiB"
        ) from error
    for number in sorted(bad_rows):  # those after the last good row
        yield _wrong_length(piece, number)


def bytes_of_rows(piece: Piece, rows: int) -> int:
    """Decompressed bytes of the header and the first rows of a table, for estimates."""
    source, taken = piece.source, 0

    def lines() -> Iterator[str]:
        nonlocal taken
        with io.BufferedReader(_Stream(piece)) as file:
            for line in file:
                taken += len(line)
                yield line.decode(errors="replace")

    dialect = find_dialect(_head(piece), text_fields(source))
    for _ in itertools.islice(_rows(lines(), dialect.delimiter, dialect.is_quoted), rows + 1):
        pass
    return taken


def _wrong_length(piece: Piece, row: int) -> BadRecord:
    return BadRecord(f"{piece.source.name}:{row + 1}", "another number of values than columns")


def _head(piece: Piece) -> bytes:
    head = b""
    for block in read_blocks(piece.source.path, piece.source.compression, 0, HEAD_BYTES):
        head += block
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


def _batches(
    piece: Piece, dialect: Dialect, names: list[str], skip: object
) -> Iterator[pa.RecordBatch]:
    wanted = list(dict.fromkeys(names))
    with pa.PythonFile(_Stream(piece), "r") as file:
        yield from pa_csv.open_csv(
            file,
            # Every core has a worker of its own.
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            parse_options=pa_csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char='"' if dialect.is_quoted else False,
                newlines_in_values=dialect.is_quoted,
                invalid_row_handler=skip,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted,
                # As strings, one value that is not UTF-8 would end the whole table.
                column_types=dict.fromkeys(wanted, pa.binary()),
                strings_can_be_null=False,
            ),
        )


class _Stream(io.RawIOBase):
    """A file's decompressed bytes."""

    def __init__(self, piece: Piece) -> None:
        self.blocks = piece.blocks()
        self.left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, or a part of it at the end of the file.

        What is read at once must hold a whole row, however small the blocks of the file are.
        """
        size = 0
        while size < len(buffer) and (self.left or (block := next(self.blocks, b""))):
            self.left = self.left or memoryview(block)
            taken = self.left[: len(buffer) - size]
            buffer[size : size + len(taken)] = taken
            size, self.left = size + len(taken), self.left[len(taken) :]
        return size
