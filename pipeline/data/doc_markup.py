"""wikiextractor's mark-up: `<doc id="12" url="..." title="Anarchism">`, text, `</doc>`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.data.holes import mend
from pipeline.data.raw_bytes import read_blocks
from pipeline.data.records import BadRecord, Dropped, Piece, Record, Where, check_length

_BEGIN = re.compile(rb"<doc\b([^\n]*)>\r?\n?")
_END = re.compile(rb"^</doc>[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


def read_doc_markup(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Every document of a whole file; the title is its first line, and alone it is none."""
    source = piece.source
    where, position, lines, buffer = Where(source, 0), 0, 0, b""
    for block in read_blocks(source.path, source.compression, 0, piece.stop):
        buffer += block
        begin = 0
        while end := _END.search(buffer, begin):
            yield _document(buffer[begin : end.start()], position + begin, lines, where)
            lines += buffer.count(b"\n", begin, end.end())
            begin = end.end()
        position += begin
        buffer = buffer[begin:]
        check_length(source, len(buffer))
    if buffer.strip():
        yield BadRecord(where(lines + 1), "no </doc>")


def _document(
    content: bytes, position: int, lines: int, where: Where
) -> Record | Dropped | BadRecord:
    number = lines + content[: len(content) - len(content.lstrip())].count(b"\n") + 1
    begin = _BEGIN.match(content.lstrip())
    if begin is None:
        return BadRecord(where(number), "no <doc>")
    try:
        attributes = dict(_ATTRIBUTE.findall(begin[1].decode()))
        text = content.lstrip()[begin.end() :].decode().strip()
    except UnicodeDecodeError:
        return BadRecord(where(number), "invalid UTF-8")
    name = f"{where.source.name}@{position}"
    if text in ("", attributes.get("title", "").strip()):
        return Dropped(name, "title only")
    return Record(name, attributes.get("url") or where.source.name, mend(text))
