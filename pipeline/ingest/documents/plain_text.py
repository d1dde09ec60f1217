"""Plain text: one document per file or per line, or documents separated by blank lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from pipeline.ingest.documents.byte_blocks import (
    BLANK,
    BOM,
    PART_BYTES,
    blocks_with_newlines,
    first_line_start,
    follows_blank_line,
    parts_of,
)
from pipeline.ingest.documents.json_lines import MAX_LINE_BYTES, line_blocks
from pipeline.ingest.documents.records import (
    BadRecord,
    Piece,
    Record,
    check_length,
    end_of,
)
from pipeline.ingest.documents.where import Where
from pipeline.ingest.encodings.utf import not_utf8

# The first test is quick, and ends the search at nearly every line.
GAP = re.compile(rb"\n(?![!-~])(?:%b*\n)+" % BLANK)
"""The end of a document: the end of a line and the blank lines after it."""
_BLANK_LINES = re.compile(rb"(?:%b*\n)*" % BLANK)
_BLANK = re.compile(BLANK + b"*")


def read_whole_file(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the one document of a file."""
    yield from _decoded(whole_content(piece), 0, 0, Where(piece.source, 0))


def whole_content(piece: Piece) -> bytes:
    """All of a file, decompressed, without byte order mark. Raises DataError if it is too long."""
    source = piece.source
    parts, size = [], 0
    for block in piece.blocks():
        parts.append(block)
        size += len(block)
        check_length(source, size)  # before more is read, so that memory stays bounded
    return b"".join(parts).removeprefix(BOM)


def read_lines(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the document of each line that starts in a piece and is not blank."""
    source = piece.source
    start = first_line_start(source.path, piece.start, of_text=True)
    where = Where(source, start)
    for position, number, lines in line_blocks(piece, start):
        if isinstance(lines, int):
            reason = f"a line of over {MAX_LINE_BYTES >> 20} MiB"
            yield BadRecord(where(number + 1, position), reason, size=lines)
            continue
        for line in lines:
            at, number = position, number + 1
            position += len(line) + 1
            content = (line if at else line.removeprefix(BOM)).strip()
            # A line that begins with a visible character need not be looked at whole.
            if content and (0x20 < content[0] < 0x7F or not _BLANK.fullmatch(content)):
                if record := _short_record(content, at, source.name):
                    yield record
                else:
                    yield from _decoded(content, at, number - 1, where)


def read_blank_line_documents(piece: Piece) -> Iterator[Record | BadRecord]:
    """Yield the documents that start in a piece."""
    source = piece.source
    start, end = first_line_start(source.path, piece.start, of_text=True), end_of(piece)
    if start >= end:
        return
    inside = not follows_blank_line(source.path, start)
    # An earlier document ends at a gap, whose first line end, of up to three bytes, may be the one
    # just before `start`.
    position = max(0, start - 3) if inside else start
    where = Where(source, position)
    buffer, lines = b"", 0
    blocks = blocks_with_newlines(piece.blocks(position), of_text=True)
    for block in itertools.chain(blocks, (b"",)):
        # The empty block marks the end of the file, which ends a document like a gap.
        buffer = buffer + block if block else buffer + b"\n\n"
        if position == 0 and buffer.startswith(BOM):
            buffer = buffer.replace(BOM, b"   ", 1)  # as long, so positions stay those of the file
        counted, begin, first = 0, 0, _first_text(buffer, 0)
        for gap in GAP.finditer(buffer):
            if position + first >= end and not inside:
                return
            stop, after = gap.span()
            if first < stop and not inside:
                document = buffer[first:stop]
                if record := _short_record(document, position + first, source.name):
                    yield record
                else:
                    # Counted only where a line may be named, not for each short document.
                    lines, counted = lines + buffer.count(b"\n", counted, first), first
                    yield from _decoded(document, position + first, lines, where)
            inside, begin, first = False, after, after  # all blank lines are in the gap
        lines += buffer.count(b"\n", counted, begin)
        position += begin
        buffer = buffer[begin:]
        if position + _first_text(buffer, 0) >= end and not inside:
            return
        check_length(source, len(buffer))


def _first_text(buffer: bytes, begin: int) -> int:
    """Start of the first non-blank line at or after `begin`."""
    blank = _BLANK_LINES.match(buffer, begin)
    assert blank is not None  # the pattern also matches the empty string
    return blank.end()


def _short_record(document: bytes, position: int, name: str) -> Record | None:
    """The record of a document that is neither giant nor damaged, as nearly all are; else None."""
    if len(document) > PART_BYTES:
        return None
    try:
        return Record(f"{name}@{position}", name, document.strip().decode())
    except UnicodeDecodeError:
        return None


def _decoded(
    document: bytes, position: int, lines: int, where: Where
) -> Iterator[Record | BadRecord]:
    """Decode a document that starts at `position`, after `lines` lines of its piece, in parts."""
    name = where.source.name
    for start, part in parts_of(document):
        try:
            yield Record(f"{name}@{position + start}", name, part.strip().decode())
        except UnicodeDecodeError as error:
            number = lines + document.count(b"\n", 0, start + error.start) + 1
            place = where(number, position + start + error.start)
            yield BadRecord(place, "invalid UTF-8", not_utf8(part) or "", len(part))
