"""CSV and TSV with a header -> records, a row each.

The delimiter is the one of comma, tab, semicolon and bar that separates the header's columns; a
table of one column has none. Quotes either enclose values, with delimiters and newlines in them, or
are a part of the text, as in most TSV. Unless all rows are whole where quotes enclose values, the
file is read both ways, and the reading that fits more rows is taken. A file is read as one piece.
Rows of another length than the header's and values that are not UTF-8 are bad records; a quote that
is still open at the end is damage.

Memory is a few rows of at most BLOCK_BYTES.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from pipeline.base.errors import DataError, listed
from pipeline.ingest.compression.codecs import Compression
from pipeline.ingest.documents.arrow_tables import require_distinct
from pipeline.ingest.documents.byte_blocks import BOM, read_blocks
from pipeline.ingest.documents.json_lines import keeps_fields, row_record
from pipeline.ingest.documents.records import (
    ORIGIN_FIELDS,
    BadRecord,
    Piece,
    Record,
    Source,
    State,
    text_fields,
)
from pipeline.ingest.encodings.utf import not_utf8

CSV_VERSION = 2
"""Part of a file's identity: increase it when the same file gives different records."""
BLOCK_BYTES = 1 << 24
"""Longest value, and longest line."""
HEAD_BYTES = 1 << 16  # examined for the header
NO_DELIMITER = "\x1f"
"""Delimiter of a table of one column: a control character, which text does not have."""

_ROW_BYTES = 1 << 20  # longest row that `encloses_all` tests
_DELIMITERS = "\t,;|"
_COLUMN_NAME = re.compile(r"\w[\w .:/-]{0,63}")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The columns and the delimiter of a table."""

    columns: tuple[str, ...]
    delimiter: str


def find_dialect(head: bytes, wanted: tuple[str, ...]) -> Dialect:
    """The dialect of a table, by its first bytes; the delimiter that gives a wanted column."""
    # The head may end inside a character.
    lines = head.removeprefix(BOM).decode(errors="replace").lstrip("\r\n")
    split = {mark: tuple(next(_head_rows(lines, mark, True), ())) for mark in _DELIMITERS}
    mark = max(split, key=lambda mark: (not {*split[mark]}.isdisjoint(wanted), len(split[mark])))
    columns = split[mark]
    return Dialect(columns, mark if len(columns) > 1 else NO_DELIMITER)


def encloses_all(blocks: Iterator[bytes], dialect: Dialect) -> bool:
    """True if quotes enclose whole values in each row of a table from the first quote on, and all
    of these rows are as long as the header.

    `has_enclosing_quotes` would find no fault, and takes ten times as long. Not so for quoted
    lines in TSV, which are for it to weigh.
    """
    mark = re.escape(dialect.delimiter.encode())
    inside = rb'[^"\r\n]*+' if dialect.delimiter == "\t" else rb'[^"]*+'
    value = rb'(?:"%b(?:""%b)*+"|[^"\r\n%b]*+)' % (inside, inside, mark)
    end = rb"[\r\n]"  # of lines, or of lines without values
    row = rb"%b(?:%b%b){%d}%b++" % (value, mark, value, len(dialect.columns) - 1, end)
    pattern = rb"%b*+(?:%b)*+" % (end, row)
    if sys.version_info < (3, 11):  # without possessive repeats, which change no match here
        pattern = pattern.replace(b"*+", b"*").replace(b"++", b"+")
    rows = re.compile(pattern)
    left, has_quotes = b"", False
    for block in itertools.chain(_without_bom(blocks), (b"\n",)):
        left += block
        if not has_quotes:
            quote_at = left.find(b'"')
            has_quotes = quote_at >= 0
            before = quote_at if has_quotes else len(left)
            left = left[max(left.rfind(b"\n", 0, before), left.rfind(b"\r", 0, before)) + 1 :]
        if has_quotes and (found := rows.match(left)):
            left = left[found.end() :]
        if len(left) > _ROW_BYTES:
            return False
    return not left


def has_enclosing_quotes(path: str, lines: Iterable[str], dialect: Dialect) -> bool:
    """True if quotes enclose values of a table, false if they are a part of its text.

    Either reading has faults: rows of another length than the header's and, where quotes enclose
    values, values that begin with a quote and go on after the closing one. The reading with fewer
    faults is right; if they are equal, a quote inside a value that does not begin with one shows
    that quotes are text. Raises DataError if the table ends inside quotes.
    """
    mark, width = dialect.delimiter, len(dialect.columns)
    # A quote that begins a value; re is fast as the patterns begin with a literal.
    start = rf'"(?<![^{re.escape(mark)}]")'
    text = r'[^"]*(?:""[^"]*)*'
    whole = re.compile(rf'{start}{text}"(?![^{re.escape(mark)}\n])')
    cut_off, broken = re.compile(rf"{start}{text}\Z"), re.compile(start)
    record: list[str] = []  # lines of the row that is being read
    bare_rows = bare_faults = rows = faults = 0
    number = opened_at = 0  # lines, counted from 1
    misplaced = False

    def taken() -> Iterator[str]:
        nonlocal bare_rows, bare_faults, number
        is_alike = True  # lines before the first quote are the same in both readings
        for line in lines:
            number += 1
            if is_alike and (is_alike := '"' not in line):
                continue
            # csv would end a row at a CR that is inside a line.
            line = line.rstrip("\r\n").replace("\r", " ") + "\n"
            bare_rows += line != "\n"
            bare_faults += line != "\n" and line.count(mark) != width - 1
            record.append(line)
            yield line

    reader = _rows(taken(), mark, True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:  # a value of over BLOCK_BYTES: its quote is open
            row = [""] * (width + 1)
        lines_read = "".join(record)
        record.clear()
        left = whole.sub("", lines_read) if '"' in lines_read else ""
        stray = cut_off.sub("", left) if left else ""
        if stray != left and not opened_at:
            opened_at = number - lines_read.count("\n") + 1
        misplaced = misplaced or '"' in stray
        rows += bool(row)
        faults += bool(row) and (len(row) != width or bool(left and broken.search(left)))
    encloses = faults < bare_faults
    if faults == bare_faults:
        # By custom TSV has no quotes around values, so there they do not join lines that fit.
        encloses = not misplaced and (mark != "\t" or rows == bare_rows)
    if opened_at and (encloses or not misplaced):
        raise DataError(
            f"{path}: a quote in the row of line {opened_at:,} is never closed, or not within "
            f"{BLOCK_BYTES >> 20} MiB; fetch the file again if it is cut off, or fix that row"
        )
    return encloses


def _head_rows(lines: str, mark: str, encloses: bool) -> Iterator[list[str]]:
    """Rows of a file's start, up to the first that cannot be read."""
    with contextlib.suppress(csv.Error):
        yield from _rows(io.StringIO(lines, newline=""), mark, encloses)


def _rows(lines: Iterable[str], mark: str, encloses: bool) -> Iterator[list[str]]:
    """Rows as the standard library reads them; blank lines are empty ones."""
    csv.field_size_limit(BLOCK_BYTES)  # the default, 131,072, is too short
    return csv.reader(
        lines, delimiter=mark, quoting=csv.QUOTE_MINIMAL if encloses else csv.QUOTE_NONE
    )


def is_table(head: bytes, wanted: tuple[str, ...]) -> bool:
    """True if a file without a telling name starts with a header and a row of as many values."""
    dialect = find_dialect(head, wanted)
    names = dialect.columns
    if len(names) < 2 or {*names}.isdisjoint(wanted):
        return False
    if not all(map(_COLUMN_NAME.fullmatch, names)):
        return False
    lines = head.removeprefix(BOM).decode(errors="replace")
    # Of the first rows it is not known yet whether quotes enclose their values.
    both = [
        filter(None, _head_rows(lines, dialect.delimiter, encloses)) for encloses in (True, False)
    ]
    return any(len(next(rows, ())) == len(names) for rows in both if next(rows, None))


def require_text_column(
    path: str, head: bytes, wanted: tuple[str, ...], *, is_mapped: bool
) -> None:
    """Raises DataError if no column of a table's header is a wanted one, or two have one name.

    is_mapped: whole rows are read, so that any columns will do.
    """
    columns = find_dialect(head, wanted).columns
    if is_mapped:
        require_distinct(path, columns, columns)
        return
    if {*columns}.isdisjoint(wanted):
        raise DataError(
            f"{path} has no column {' or '.join(wanted)}, only {listed(columns)}; its first line "
            "must name its columns, and --text-field the one with text (several need --map, and "
            "--plain-text reads it as text)"
        )
    require_distinct(path, columns, (*wanted, *ORIGIN_FIELDS))


def read_csv(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the rows of a table. Raises DataError if it cannot be parsed."""
    source = piece.source
    dialect = find_dialect(_head(piece), text_fields(source))
    columns, is_mapped = dialect.columns, keeps_fields(source)
    # A function needs no text column.
    text_at = next((columns.index(name) for name in text_fields(source) if name in columns), 0)
    origins_at = [columns.index(name) for name in ORIGIN_FIELDS if name in columns]
    lines = _lines(source.path, piece.blocks())
    rows = filter(None, _rows(lines, dialect.delimiter, _encloses(source, dialect)))
    row = -1
    try:
        next(rows)  # the header
        for row, values in enumerate(rows):
            where = f"{source.name}:{row + 1}"
            if len(values) != len(columns):
                size = sum(map(len, values)) + len(values)
                yield BadRecord(where, "another number of values than columns", size=size)
            elif is_mapped:
                texts = [_decoded(value) for value in values]
                damaged = values[texts.index(None)] if None in texts else None
                fields = dict(zip(columns, texts))
                yield _not_utf8(where, damaged) if damaged else row_record(source, fields, row)
            elif (text := _decoded(values[text_at])) is None:
                yield _not_utf8(where, values[text_at])
            else:
                origins = (_decoded(values[at]) for at in origins_at)
                origin = next(filter(None, origins), source.name)
                yield Record(f"{source.name}@{row}", origin, text)
    except csv.Error as error:
        raise DataError(
            f"{source.path} cannot be read after row {row + 1:,} ({error}); fix the next row"
        ) from error


def _not_utf8(where: str, value: str) -> BadRecord:
    """A row with a damaged value, whose bytes are characters."""
    about = not_utf8(value.encode("latin-1")) or ""
    return BadRecord(where, "invalid UTF-8", about, len(value))


def bytes_of_rows(piece: Piece, rows: int) -> int:
    """Decompressed bytes of the header and the first rows of a table, for estimates."""
    source, taken = piece.source, 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in _lines(source.path, piece.blocks()):
            taken += len(line)
            yield line

    dialect = find_dialect(_head(piece), text_fields(source))
    found = _rows(lines(), dialect.delimiter, _encloses(source, dialect))
    for _ in itertools.islice(filter(None, found), rows + 1):
        pass
    return taken


def _head(piece: Piece) -> bytes:
    head = b""
    for block in read_blocks(piece.source.path, piece.source.compression, 0, HEAD_BYTES):
        head += block
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


def _encloses(source: Source, dialect: Dialect) -> bool:
    return _encloses_of(source.path, source.compression, source.state, dialect)


@lru_cache(maxsize=1 << 10)  # estimates read a file's start several times
def _encloses_of(path: str, compression: Compression, state: State, dialect: Dialect) -> bool:
    """True if quotes enclose the values of a file in a state."""
    if encloses_all(read_blocks(path, compression, 0, state[0]), dialect):
        return True
    lines = _lines(path, read_blocks(path, compression, 0, state[0]))
    return has_enclosing_quotes(path, lines, dialect)


def _lines(path: str, blocks: Iterator[bytes]) -> Iterator[str]:
    """The lines of a file, whose bytes are characters: values are decoded one by one."""
    left = b""
    for block in _without_bom(blocks):
        # A CR at the end may be half of a line's end.
        end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
        if end:
            yield from io.StringIO((left + block[:end]).decode("latin-1"), newline="")
            left = block[end:]
        else:
            left += block
        if len(left) > BLOCK_BYTES:
            raise DataError(f"{path} has a line of over {BLOCK_BYTES >> 20} MiB; split it")
    yield from io.StringIO(left.decode("latin-1"), newline="")


def _without_bom(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks of a file, without the mark at its start."""
    head = b""
    while len(head) < len(BOM) and (block := next(blocks, b"")):
        head += block
    return itertools.chain((head.removeprefix(BOM),), blocks)


def _decoded(value: str) -> str | None:
    """The text of a value whose bytes are characters; None if it is not UTF-8."""
    if value.isascii():  # most are
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return None
