"""A file of labelled rows -> its rows, whatever format it is in.

`prepare` reads the same formats, but not tables that begin with Excel's `sep=;`.

1. The file is read whole and decompressed, since all of its examples are kept, too.
2. Parquet and Arrow are recognized by their first bytes. Everything else is text: UTF-8, or what a
   byte order mark or the NULs of UTF-16 show.
3. Text is JSON lines, an array of JSON objects, or a table with its columns in the first line,
   which is split at the comma, tab, semicolon or bar that gives most of them.
4. Whether quotes enclose values or are text, as in GLUE's files, is decided by all rows, see
   `has_enclosing_quotes`.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.typed_json import as_object, as_value
from pipeline.ingest.compression.codecs import sniff_compression
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.csv_tables import (
    HEAD_BYTES,
    NO_DELIMITER,
    find_dialect,
    has_enclosing_quotes,
)
from pipeline.ingest.documents.parquet import read_table_rows, table_format
from pipeline.ingest.documents.sniff import ARRAY, DATA_NAME, OBJECT, require_regular
from pipeline.ingest.encodings.decoding import wide_or_marked

Record = dict[str, Any]
PlacedRow = tuple[str, Record | None]
"""Its place for messages, and its values by column; None for a line with too few."""
_ZIP = b"PK\x03\x04"  # also .xlsx and .ods
_LARGEST_FIELD = 1 << 27  # csv's own 131,072 characters are too few for articles
_SEPARATOR = re.compile(r"\Asep=.(?=[\r\n])")
"""A first line that tells Excel the delimiter; here the header does."""
DELIMITED = "-separated"
"""The end of the form of a table whose columns are named by its first line."""
_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", NO_DELIMITER: "line"}


@dataclass(frozen=True, slots=True)
class LabelledTable:
    """A file and its rows, which can be iterated once."""

    form: str
    """Name of the format for the terminal, such as Parquet or tab-separated."""
    columns: tuple[str, ...]
    """Columns of all rows, for JSON those of the first row; empty for an empty file."""
    rows: Iterator[PlacedRow]


def read_content(path: Path) -> bytes:
    """The bytes of a file, decompressed. Raises DataError if it is missing or damaged."""
    size, _ = require_regular(path)
    return b"".join(read_blocks(str(path), sniff_compression(str(path)), 0, size))


def read_decoded(path: Path) -> str:
    """The text of a file, without a byte order mark. Raises DataError if it is in no encoding of
    Unicode."""
    return decode_content(path, read_content(path))


def decode_content(path: Path, content: bytes) -> str:
    """The text of these bytes, see `read_decoded`; path: of their file, for messages."""
    if content.startswith(_ZIP):
        raise DataError(
            f"{path} is a zip archive or a workbook; unpack it, or save the sheet as CSV"
        )
    encoding = wide_or_marked(content) or "utf-8"
    try:
        # decode() keeps the mark as a character, in UTF-8 and where the byte order is named
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {encoding.upper()}: {error.reason}; convert it") from error
    text = _SEPARATOR.sub("", text)
    if "\n" not in text:  # lines of old Macs, and of Excel's "CSV (Macintosh)"
        text = text.replace("\r", "\n")
    if "\0" in text[:HEAD_BYTES]:  # NUL is legal UTF-8
        raise DataError(f"{path} is binary; give JSON lines, CSV, TSV or Parquet")
    return text


def open_table(
    path: Path, wanted: Sequence[str] = (), header: Sequence[str] = (), *,
    is_published: bool = False, skips_short_lines: bool = False,
) -> LabelledTable:  # fmt: skip
    """The rows of a file.

    wanted: columns that it has, to tell how a table is delimited; header: of a file without one;
    is_published: a table not named .csv is separated by tabs, with quotes as text, as in GLUE.
    Raises DataError, here or as its rows are read, for a file that is damaged or in no such format.
    """
    content = read_content(path)
    if form := table_format(content):
        rows = enumerate(read_table_rows(str(path), content), 1)
        return _keyed(form, ((f"{path} row {number}", row) for number, row in rows))
    text = decode_content(path, content)
    if ARRAY.match(text):
        return _keyed("JSON array", _read_array(path, text))
    if is_json(path, text):
        return _keyed("JSON lines", _read_lines(path, text))
    # GLUE's form is known, and a guess might read train and dev differently
    if is_published and name_ending(path) != "csv":
        mark = "\t"
        is_quoted = False
    else:
        dialect = find_dialect(text[:HEAD_BYTES].encode(), tuple(wanted))
        mark = dialect.delimiter
        # csv sees the lines that `_read_bare` does
        lines_ = io.StringIO(text, newline="\n")
        is_quoted = has_enclosing_quotes(str(path), lines_, dialect)
    rows_ = _read_quoted(path, text, mark) if is_quoted else _read_bare(text, mark)
    lines = ((number, row) for number, row in rows_ if not _is_blank(row))
    columns = tuple(header) or tuple(name.strip() for name in next(lines, (0, []))[1])
    return LabelledTable(
        f"{_NAMES[mark]}{DELIMITED}", columns, _zip_rows(path, columns, lines, skips_short_lines)
    )


def is_json(path: Path, text: str) -> bool:
    """True for JSON lines, by their name or their first line."""
    return name_ending(path) in ("json", "jsonl", "ndjson") or bool(OBJECT.match(text))


def name_ending(path: Path) -> str:
    """csv, tsv, json, jsonl or ndjson if a file is named so, compressed or not; else empty."""
    named = DATA_NAME.search(path.name)
    return named[1].lower() if named else ""


def columns_shown(columns: Sequence[str]) -> str:
    """The names of columns, the first dozen, for a message."""
    more = f" and {len(columns) - 12:,} more" if len(columns) > 12 else ""
    return ", ".join(f"{name!r:.60}" for name in columns[:12]) + more


def _keyed(form: str, rows: Iterator[tuple[str, Record]]) -> LabelledTable:
    """Rows that name their columns themselves."""
    # one row ahead: JSON and Parquet name their columns only in rows
    first = next(rows, None)
    if first is None:
        return LabelledTable(form, (), iter(()))
    return LabelledTable(form, tuple(first[1]), itertools.chain([first], rows))


def _read_lines(path: Path, text: str) -> Iterator[tuple[str, Record]]:
    # not splitlines(): U+2028 is legal in strings
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{path} line {number}", as_object(line)
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is not a JSON object: {error}; give one per line"
            ) from error


def _read_array(path: Path, text: str) -> Iterator[tuple[str, Record]]:
    try:
        elements = as_value(text)
    except ValueError as error:
        raise DataError(f"{path} is not one JSON array: {error}; copy it again") from error
    for number, element in enumerate(elements, 1):
        if not isinstance(element, dict):
            raise DataError(f"{path} element {number} is not a JSON object; fix it")
        yield f"{path} element {number}", element


def _is_blank(row: list[str]) -> bool:
    """True if a line has only white space."""
    return not row or (len(row) == 1 and not row[0].strip())


def _read_bare(text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Numbers and values of lines; only a newline ends one."""
    for number, line in enumerate(text.split("\n"), 1):
        yield number, line.rstrip("\r").split(mark)


def _read_quoted(path: Path, text: str, mark: str) -> Iterator[tuple[int, list[str]]]:
    """Rows, with the number of the last line of each."""
    csv.field_size_limit(_LARGEST_FIELD)  # global to the process
    # strict, or an open quote would take all rows after it
    rows = csv.reader(io.StringIO(text, newline="\n"), delimiter=mark, strict=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        reason = str(error).partition(" - ")[0]  # the rest is for programmers
        raise DataError(
            f"{path} line {rows.line_num} is not CSV: {reason}; fix the line"
        ) from error


def _zip_rows(
    path: Path, columns: Sequence[str], lines: Iterator[tuple[int, list[str]]], skips_short: bool
) -> Iterator[PlacedRow]:
    for number, row in lines:
        if len(row) < len(columns) and skips_short:
            yield f"{path} line {number}", None
        elif len(row) != len(columns):
            raise DataError(
                f"{path} line {number} has {len(row)} column{'s' * (len(row) != 1)}, not "
                f"{len(columns)}; fix the line"
            )
        else:
            yield f"{path} line {number}", dict(zip(columns, row))
