"""JSON lines and JSON arrays of objects -> records, an object each.

A file may hold several arrays. It is read as one piece, since a place in it does not tell whether
it is in a string. Memory is a block and one object or line.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from pipeline.base.errors import DataError, listed
from pipeline.ingest.documents.arrow_tables import NEEDS_MAP
from pipeline.ingest.documents.byte_blocks import BOM, blocks_with_newlines, parse_again
from pipeline.ingest.documents.records import (
    BadRecord,
    Piece,
    Record,
    Source,
    State,
    end_of,
    first_text,
    text_fields,
)
from pipeline.ingest.documents.where import Where
from pipeline.ingest.documents.wikiextractor import (
    are_escaped,
    close_bracket_holes,
    has_entities,
    unescape_once,
)
from pipeline.ingest.encodings.utf import not_utf8

MAX_LINE_BYTES = 1 << 26
"""A longer line is not a document, and parsing it would take a dozen times its size."""

_LONG_BYTES = 1 << 23  # below, any values fit in memory
_VALUE_BYTES = {b"{": 240, b"[": 80, b",": 40}
"""Memory of a parsed object, list or value."""
_MOST_VALUE_BYTES = 1 << 28

JSON_ARRAY_VERSION = 1
"""Part of a file's identity: increase it when the same file gives different records."""

# A whole string, the start of one that continues after the buffer, or a bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]*(?:\\.[^"\\]*)*")?|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,"\[\]{}]+|[}]', re.DOTALL)
_BETWEEN = re.compile(rb"[\s,]*")

WITH_FIELDS = "with fields"
"""Noted in extracted files of a record whose text is its whole object, see `stored_text`."""

MANY_VALUES = "millions of values in one object"

_MISSING = object()


def read_json_lines(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the records of lines that start in a piece, or a BadRecord for an unusable line."""
    source = piece.source
    start = piece.first_line()
    name, loads, where = source.name, orjson.loads, Where(source, start)
    is_wiki, is_mapped = source.format == "wiki_jsonl", keeps_fields(source)
    is_escaped = is_wiki and _is_escaped(source, source.state)
    names = text_fields(source)
    for position, number, lines in line_blocks(piece, start):
        if isinstance(lines, int):
            reason = f"a line of over {MAX_LINE_BYTES >> 20} MiB, not one object a line"
            yield BadRecord(where(number + 1, position), reason, size=lines)
            continue
        for line in lines:
            at, number = position, number + 1
            position += len(line) + 1
            if len(line) > _LONG_BYTES and _has_too_many_values(line):
                yield BadRecord(where(number, at), MANY_VALUES, size=len(line))
                continue
            try:
                fields = loads(line)
            except orjson.JSONDecodeError:
                if not line.removeprefix(BOM).strip():  # asked only here: blank lines are rare
                    continue
                try:
                    fields = parse_again(line)
                except ValueError:
                    about = not_utf8(line)
                    reason = "invalid JSON" if about is None else "invalid UTF-8"
                    # A block of NULs, which a file system has lost, holds no text.
                    size = len(line.strip(b"\0"))
                    yield BadRecord(where(number, at), reason, about or "", size)
                    continue
            text = _text(fields, names)
            if text is None or is_mapped:
                yield to_record(source, fields, f"{name}@{at}", where(number, at), len(line))
            else:
                if is_wiki:
                    text = close_bracket_holes(unescape_once(text) if is_escaped else text)
                yield Record(f"{name}@{at}", _origin(fields) or name, text)


# once per file, not once per piece
@lru_cache(maxsize=1)
def _is_escaped(source: Source, state: State) -> bool:
    """True if the texts of a whole file of wikiextractor, in this state, were escaped."""
    whole = Piece(source, 0, source.size, source.size)
    return has_entities(whole) and are_escaped(_wiki_texts(whole))


def _wiki_texts(piece: Piece) -> Iterator[str]:
    names = text_fields(piece.source)
    for _, _, lines in line_blocks(piece, 0):
        for line in lines if isinstance(lines, list) else ():  # else one that is too long
            if len(line) <= _LONG_BYTES or not _has_too_many_values(line):
                with contextlib.suppress(ValueError):  # reported when it is read
                    if text := _text(orjson.loads(line), names):
                        yield text


def _has_too_many_values(line: bytes) -> bool:
    """True if an object takes too much memory, by its marks; those in strings count, too."""
    return sum(line.count(mark) * size for mark, size in _VALUE_BYTES.items()) > _MOST_VALUE_BYTES


def row_record(source: Source, row: dict[str, Any], number: int) -> Record | BadRecord:
    """The record of a table's row, by its number in the file, as if it were an object of JSON.

    Dates, times and decimals become text, as do bytes that are UTF-8; other bytes become null.
    """
    line = orjson.dumps(row, default=_as_json, option=orjson.OPT_PASSTHROUGH_DATETIME)
    id, where = f"{source.name}@{number}", f"{source.name}:{number + 1}"
    return to_record(source, orjson.loads(line), id, where, len(line))


def _as_json(value: Any) -> str | None:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def to_record(source: Source, fields: Any, id: str, where: str, size: int) -> Record | BadRecord:
    """The record of a parsed value of `size` bytes with this id; where: its name in messages."""
    names = text_fields(source)
    text = _text(fields, names)
    bad = _without_text(fields, names, where, size) if text is None else None
    is_mapped = isinstance(fields, dict) and keeps_fields(source)
    if bad and not is_mapped:
        return bad
    record = Record(id, _origin(fields) or source.name, text or "")
    return replace(record, fields=fields, textless=bad) if is_mapped else record


def keeps_fields(source: Source) -> bool:
    """True if a function is given the whole records of a file."""
    return bool(source.rewriting.function) and source.format != "wiki_jsonl"


def stored_text(record: Record) -> tuple[str, str]:
    """The text and note that extraction stores of a record."""
    if record.fields is None:
        return record.text, record.noted
    return orjson.dumps(record.fields).decode(), WITH_FIELDS


def stored_record(source: Source, text: str, id: str) -> Record | BadRecord:
    """The record of a text that `stored_text` returned with the note WITH_FIELDS."""
    return to_record(source, orjson.loads(text), id, id, len(text))


def _text(fields: Any, names: tuple[str, ...]) -> str | None:
    """The text of an object; None if it has none, or is not an object."""
    if not isinstance(fields, dict):
        return None
    text = fields.get(names[0])
    if not isinstance(text, str):  # it nearly always is
        text = first_text(_field(fields, name) for name in names)
    return text if isinstance(text, str) else None


def _field(fields: dict[str, Any], name: str) -> Any:
    """The value called `name`, which may be a path through objects (a.b), or _MISSING."""
    if name in fields:  # before paths: a key may have a dot itself
        return fields[name]
    value: Any = fields
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _without_text(fields: Any, names: tuple[str, ...], where: str, size: int) -> BadRecord:
    """A value of `size` bytes that has no text, with the reason and the fields that are there."""
    if not isinstance(fields, dict):
        return BadRecord(where, "not a JSON object", size=size)
    found = [value for name in names if (value := _field(fields, name)) is not _MISSING]
    about = f"its fields: {listed(fields)}; {NEEDS_MAP}"
    if not found:
        return BadRecord(where, "no text field", about, size)
    if found[0] is None:
        return BadRecord(where, "null text", about)  # none is lost
    return BadRecord(where, "text is not a string", about, size)


def _origin(fields: dict[str, Any]) -> str:
    """The url, metadata.url (as in Dolma), path or id of a document, or an empty string."""
    if origin := fields.get("url"):
        return str(origin)
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and (origin := metadata.get("url")):
        return str(origin)
    return str(fields.get("path") or fields.get("id") or "")


def line_blocks(piece: Piece, start: int) -> Iterator[tuple[int, int, list[bytes] | int]]:
    """Lines that start in [start, end of piece): position of the first, lines before it, lines.

    A line that is too long is not kept; its bytes are yielded in place of the lines.
    """
    end = end_of(piece)
    if start >= end:
        return
    position, lines_read, read_to = start, 0, start
    parts: list[bytes] = []  # parts of a line that continues in the next block
    held = 0  # bytes in these parts
    is_text = piece.source.format == "text"
    for block in blocks_with_newlines(piece.blocks(start), of_text=is_text):
        # After the end, only the line that started before it counts.
        lines = block.split(b"\n", -1 if read_to < end else 1)
        read_to += len(block)
        held += len(lines[0])
        if held > MAX_LINE_BYTES:
            parts.clear()
        else:
            parts.append(lines[0])
        if len(lines) == 1:
            continue
        if held > MAX_LINE_BYTES:
            yield position, lines_read, held
            lines_read += 1
            position += held + 1
            del lines[0]
        else:
            lines[0] = b"".join(parts)  # once: += would copy it for each block
        parts = [lines.pop()]
        held = len(parts[0])
        if lines:
            yield position, lines_read, lines
        lines_read += len(lines)
        position = read_to - held
        if position >= end:
            return
    if held > MAX_LINE_BYTES:
        yield position, lines_read, held
    elif held:
        yield position, lines_read, [b"".join(parts)]


# --- arrays


def read_json_array(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the objects of a file's arrays. Raises DataError if it is truncated or damaged."""
    source = piece.source
    for number, (position, element) in enumerate(_elements(piece), 1):
        where = f"{source.name}:{number}"
        if len(element) > _LONG_BYTES and _has_too_many_values(element):
            yield BadRecord(where, MANY_VALUES, size=len(element))
            continue
        try:
            fields = parse_again(element)
        except ValueError:
            yield BadRecord(where, "invalid JSON", size=len(element))
        else:
            yield to_record(source, fields, f"{source.name}@{position}", where, len(element))


def _elements(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The elements of the arrays in a file, each with its position."""
    source = piece.source
    buffer, before = b"", 0  # before: bytes of the file before the buffer
    is_open = False
    held = (0, 0)
    for block in itertools.chain(piece.blocks(), (b"",)):  # the empty one ends a last number
        buffer += block
        if not before and block and len(buffer) < len(BOM):  # too short to see a mark
            continue
        at = len(BOM) if not before and buffer.startswith(BOM) else 0
        while True:
            at = _end(_BETWEEN, buffer, at)
            mark = buffer[at : at + 1]
            if not is_open and mark not in (b"", b"["):
                raise DataError(f"{source.path} is damaged (text after its array); fetch it again")
            if mark and (not is_open or mark == b"]"):
                is_open, at = not is_open, at + 1
                continue
            end, held = _element_end(buffer, at, held)
            if end > len(buffer) - bool(block):  # a number could continue
                break
            yield before + at, buffer[at:end]
            at = end
        before += at
        buffer = buffer[at:]
        if len(buffer) > MAX_LINE_BYTES:
            raise DataError(
                f"{source.path} has an object of over {MAX_LINE_BYTES >> 20} MiB; convert it to "
                "JSON lines of smaller documents"
            )
    if is_open or buffer.strip():
        raise DataError(f"{source.path} is truncated; fetch it again")


def _element_end(buffer: bytes, start: int, held: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """End of the element at `start`; after the end of the buffer if it does not end there.

    held: bytes of it that were searched before, and the brackets open in them; returned for the
    next time, so that a long element is searched once and not again for each block.
    """
    nowhere = len(buffer) + 1
    if buffer[start : start + 1] not in (b"{", b"["):
        end = _end(_SCALAR, buffer, start)
        return (end if end > start else nowhere), (0, 0)
    searched, depth = held
    for token in _TOKEN.finditer(buffer, start + searched):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if not depth:
                return token.end(), (0, 0)
        elif mark == b'"':  # it does not end here
            return nowhere, (token.start() - start, depth)
    return nowhere, (len(buffer) - start, depth)


def _end(pattern: re.Pattern[bytes], buffer: bytes, start: int) -> int:
    found = pattern.match(buffer, start)
    return found.end() if found else start
