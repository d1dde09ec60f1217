"""JSON lines -> records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from pipeline.data.documents.byte_blocks import BOM, first_line_start, parse_again
from pipeline.data.documents.content import watched_from
from pipeline.data.documents.records import BadRecord, Piece, Record, Where, end_of, text_fields
from pipeline.data.documents.wikiextractor import close_bracket_holes

MAX_LINE_BYTES = 1 << 26
"""A longer line is not a document, and parsing it would take a dozen times its size."""

TOO_LONG = b"too long"

_MISSING = object()


def read_json_lines(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the records of lines that start in a piece, or a BadRecord for an unusable line."""
    source = piece.source
    start = first_line_start(source.path, piece.start)
    name, loads, where = source.name, orjson.loads, Where(source, start)
    closes_holes = source.format == "wiki_jsonl"
    names = text_fields(source)
    for position, number, lines in line_blocks(piece, start):
        for line in lines:
            at, number = position, number + 1
            position += len(line) + 1
            if line is TOO_LONG:
                reason = f"a line of over {MAX_LINE_BYTES >> 20} MiB, not one object a line"
                yield BadRecord(where(number, at), reason)
                continue
            try:
                fields = loads(line)
            except orjson.JSONDecodeError:
                if not line.removeprefix(BOM).strip():
                    continue
                try:
                    fields = parse_again(line)
                except ValueError:
                    reason = "invalid JSON" if _is_utf8(line) else "invalid UTF-8"
                    yield BadRecord(where(number, at), reason)
                    continue
            text = _text(fields, names)
            if text is None:
                yield BadRecord(where(number, at), _why_no_text(fields, names))
            else:
                text = close_bracket_holes(text) if closes_holes else text
                yield Record(f"{name}@{at}", _origin(fields) or name, text)


def _text(fields: Any, names: tuple[str, ...]) -> str | None:
    """The first of the named fields that is a string."""
    if isinstance(fields, dict):
        for name in names:
            text = fields.get(name)
            if isinstance(text, str):
                return text
            if "." in name and isinstance(text := _field(fields, name), str):
                return text
    return None


def _field(fields: dict[str, Any], name: str) -> Any:
    """The value called `name`, which may be a path through objects (a.b), or _MISSING."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _why_no_text(fields: Any, names: tuple[str, ...]) -> str:
    if not isinstance(fields, dict):
        return "not a JSON object"
    found = [value for name in names if (value := _field(fields, name)) is not _MISSING]
    if not found:
        return "no text field"
    return "null text" if found[0] is None else "text is not a string"


def _origin(fields: dict[str, Any]) -> str:
    """The url, metadata.url (as in Dolma), path or id of a document, or an empty string."""
    if origin := fields.get("url"):
        return str(origin)
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and (origin := metadata.get("url")):
        return str(origin)
    return str(fields.get("path") or fields.get("id") or "")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def line_blocks(piece: Piece, start: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """Lines that start in [start, end of piece): position of the first, lines before it, lines.

    A line that is too long is not kept; TOO_LONG replaces it, in a list of its own.
    """
    end = end_of(piece)
    if start >= end:
        return
    position, lines_read, read_to = start, 0, start
    parts: list[bytes] = []  # of a line that continues in the next block
    held = 0  # bytes of it
    for block in watched_from(piece, start, piece.stop):
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
            yield position, lines_read, [TOO_LONG]
            lines_read += 1
            position += held + 1
            del lines[0]
        else:
            lines[0] = b"".join(parts)
        parts = [lines.pop()]
        held = len(parts[0])
        if lines:
            yield position, lines_read, lines
        lines_read += len(lines)
        position = read_to - held
        if position >= end:
            return
    if held > MAX_LINE_BYTES:
        yield position, lines_read, [TOO_LONG]
    elif held:
        yield position, lines_read, [b"".join(parts)]
