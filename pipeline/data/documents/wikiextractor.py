"""Output of wikiextractor: its mark-up, and the holes that templates leave in prose.

`<doc id="12" url="..." title="Anarchism">`, text, `</doc>` becomes a record. A hole left by a
template or formula is closed: "( ; born 1809)" becomes "(born 1809)".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.data.documents.content import watched
from pipeline.data.documents.records import (
    BadRecord,
    Dropped,
    Piece,
    Record,
    Where,
    check_length,
    parts_of,
)

HOLES_VERSION = 1
"""Part of a file's identity: increase it when closing holes gives different text."""

_BEGIN = re.compile(rb"<doc\b([^\n]*)>\r?\n?")
_END = re.compile(rb"^</doc>[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_ATTRIBUTE = re.compile(r'(?<!\w)(\w+)="([^"]*)"')

_HOLES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"[ \t\u00a0]+", " "),
        # inside brackets: separators with nothing before or after them
        (r"\(\s*[;,:]\s*(?:(?:[;,:]|\bor\b|\band\b)\s*)*", "("),
        (r"(?<=[\w\"”’)])(?:\s*[;,:])+\s*\)", ")"),
        (r"([;,])(?:\s*[;,])+", r"\1"),
        (r"(?: |(?<!\w))\(\s*\)", ""),  # not those of main()
        (r" ?\[\s*\]", ""),
        # the same for full-width punctuation, in Chinese and Japanese
        (r"（\s*[；，：、;,:]\s*(?:[；，：、;,:]\s*)*", "（"),
        (r"(?<![\s；，：、;,:])[\s；，：、;,:]*[；，：、;,:]\s*）", "）"),
        (r" ?（\s*）", ""),
        # outside brackets
        (r" +([,;.:!?])(?=[\s\"”’]|$)", r"\1"),
        (r" +\)", ")"),
        (r"\( +", "("),
        (r",(?=[.;:])", ""),
        (r"[ ]+", " "),
    )
)


def close_holes(text: str) -> str:
    """Clean up punctuation and brackets around removed templates and formulas."""
    for pattern, by in _HOLES:
        text = pattern.sub(by, text)
    return text


_BRACKET = re.compile(r"[(（]\s*[;,:；，：、]|(?<!\w)\(\s*\)|（\s*）|[;,]\s*\)|[；，：、]\s*）")
"""An empty bracket, or a separator with nothing before or after it in a bracket."""


def close_bracket_holes(text: str) -> str:
    """Close the holes in each line that has one in brackets.

    For wikitext that other tools converted: a line without such a hole stays as it is.
    """
    if not _BRACKET.search(text):
        return text
    return "\n".join(
        close_holes(line) if _BRACKET.search(line) else line for line in text.split("\n")
    )


def read_doc_markup(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield every document of a file. Its first line is the title; a title alone is dropped."""
    source = piece.source
    where, position, lines, buffer = Where(source, 0), 0, 0, b""
    for block in watched(piece):
        begin, searched = 0, max(0, len(buffer) - len(b"</doc>"))
        buffer += block
        while end := _END.search(buffer, max(begin, searched)):
            yield from _document(buffer[begin : end.start()], position + begin, lines, where)
            lines += buffer.count(b"\n", begin, end.end())
            begin = end.end()
        position += begin
        buffer = buffer[begin:]
        check_length(source, len(buffer))
    if buffer.strip():
        yield BadRecord(where(lines + 1, position), "no </doc>")


def _document(
    content: bytes, position: int, lines: int, where: Where
) -> Iterator[Record | Dropped | BadRecord]:
    document = content.lstrip()
    number = lines + content[: len(content) - len(document)].count(b"\n") + 1
    begin = _BEGIN.match(document)
    if begin is None:
        yield BadRecord(where(number, position), "no <doc>")
        return
    for start, part in parts_of(document[begin.end() :]):
        try:
            attributes = dict(_ATTRIBUTE.findall(begin[1].decode()))
            text = part.decode().strip()
        except UnicodeDecodeError:
            yield BadRecord(where(number, position), "invalid UTF-8")
            return
        name = f"{where.source.name}@{position + start}"
        if text in ("", attributes.get("title", "").strip()):
            yield Dropped(name, "title only")
        else:
            origin = attributes.get("url") or where.source.name
            yield Record(name, origin, close_bracket_holes(text))
