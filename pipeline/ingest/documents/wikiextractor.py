"""Output of wikiextractor: its mark-up, and the holes that templates leave in brackets.

`<doc id="12" url="..." title="Anarchism">`, text, `</doc>` becomes a record. A hole left by a
template or formula is closed if it cannot be text: "( ; born 1809)" becomes "(born 1809)".

WikiExtractor 3 escapes `&`, `<` and `>` in texts, though not in titles. That is undone, once, where
a file has none of them bare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipeline.ingest.documents.byte_blocks import parts_of
from pipeline.ingest.documents.records import (
    BadRecord,
    Dropped,
    Piece,
    Record,
    check_length,
)
from pipeline.ingest.documents.where import Where
from pipeline.ingest.encodings.utf import not_utf8
from pipeline.ingest.wikitext.holes import HOLE, close_holes

HOLES_VERSION = 3
"""Part of a file's identity: increase it when its texts change here."""

_ENTITY = re.compile(rb"&(?:amp|lt|gt);")
_BARE = re.compile("[<>]|&(?!(?:amp|lt|gt);)")
_BEGIN = re.compile(rb"<doc\b([^\n]*)>\r?\n?")
_END = re.compile(rb"^</doc>[ \t\r]*(?:\n|\Z)", re.MULTILINE)
_ATTRIBUTE = re.compile(r'(?<!\w)(\w+)="([^"]*)"')

# Each starts with a set of characters, which are found ten times as fast as anything else, and
# never reads a run of separators in two ways.
_MAYBE = re.compile(
    r"[()（）](?:(?<=[(（])\s*[;,:；，：、)）]|(?<=[;,:；，：、][)）])|(?<=[;,:；，：、]\s[)）]))"
)
_BRACKET = re.compile(
    r"[()](?:(?<=\s\()\s*(?:[;,:][\s;,:]*(?:(?:or|and)\b[\s;,:]*)*)?(?=\))"  # "(, or )", "( )"
    r"|(?<=\s\()(?=\s*[;,:](?=([\s;,:]*))\1(?<=\s)[^()]*\))"  # "( ; born 1809)"
    r"|(?<=[;,:]\s\)))"  # "(born 1809; )"
)
_FULL_WIDTH = re.compile(
    r"[（）](?:(?<=（)(?=\s*[；，：、;,:）])|(?<=[；，：、;,:]）)|(?<=[；，：、;,:]\s）))"
)
_CODE = re.compile(r"[{}=]|::|->|\b(?:for|while|if|return|lambda) ?\(|\w\(\s*[;,:)]")


def are_escaped(texts: Iterable[str]) -> bool:
    """True if the texts of a file were escaped: entities are in them, and nothing bare."""
    has_entity = False
    for text in texts:
        if _BARE.search(text):  # early in most files of other versions
            return False
        has_entity = has_entity or "&" in text
    return has_entity


def has_entities(piece: Piece) -> bool:
    """True if the bytes of a file have an entity of `&`, `<` or `>`; most files have none."""
    end = b""
    for block in replace(piece, reading=None).blocks(0):
        if _ENTITY.search(end + block[: len(b"&amp;")]) or _ENTITY.search(block):
            return True
        end = block[-len(b"&amp;") :]
    return False


def unescape_once(text: str) -> str:
    """The text before it was escaped, in which `&amp;lt;` is `&lt;`."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def close_bracket_holes(text: str) -> str:
    """Close the holes of templates in brackets, in text that another tool made of wikitext.

    Nothing marks them there, so only those are closed that can hardly be text, and nothing else in
    their lines changes:

    * separators at the start of a bracket that is after a space, if a space follows them, or at the
      end of a bracket before a space
    * a bracket after a space with nothing but separators in it
    * the same in full-width brackets, with or without spaces

    In a line with signs of code, such as a brace, `=`, `f()` or `for (`, only full-width brackets
    count, which code does not have. So a hole next to code stays, and the brackets of `f ()` are
    lost in a line that has no other sign of code.
    """
    if not _MAYBE.search(text):
        return text
    return "\n".join(
        _without_bracket_holes(line.replace(HOLE, "")) if _MAYBE.search(line) else line
        for line in text.split("\n")
    )


def _without_bracket_holes(line: str) -> str:
    marked = _FULL_WIDTH.sub(_with_mark, line)
    if not _CODE.search(line):
        marked = _BRACKET.sub(_with_mark, marked)
    return close_holes(marked)


def _with_mark(bracket: re.Match[str]) -> str:
    return HOLE + bracket[0] if bracket[0] in ")）" else bracket[0] + HOLE


def read_doc_markup(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield every document of a file. Its first line is the title; only a title is dropped."""
    whole = replace(piece, reading=None)  # what is read twice is hashed once
    found = (record for record in _documents(whole) if isinstance(record, Record))
    bodies = (record.text.partition("\n")[2] for record in found)
    is_escaped = has_entities(piece) and are_escaped(bodies)
    for record in _documents(piece):
        if isinstance(record, Record):
            title, newline, body = record.text.partition("\n")
            text = title + newline + (unescape_once(body) if is_escaped else body)
            yield replace(record, text=close_bracket_holes(text))
        else:
            yield record


def _documents(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    source = piece.source
    where, position, lines, buffer = Where(source, 0), 0, 0, b""
    for block in piece.blocks():
        # Only the end of what was searched before can be the start of a mark across two blocks.
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
        yield BadRecord(where(lines + 1, position), "no </doc>", size=len(buffer))


def _document(
    content: bytes, position: int, lines: int, where: Where
) -> Iterator[Record | Dropped | BadRecord]:
    document = content.lstrip()
    number = lines + content[: len(content) - len(document)].count(b"\n") + 1
    begin = _BEGIN.match(document)
    if begin is None:
        yield BadRecord(where(number, position), "no <doc>", size=len(document))
        return
    for start, part in parts_of(document[begin.end() :]):
        try:
            attributes = dict(_ATTRIBUTE.findall(begin[1].decode()))
            text = part.decode().strip()
        except UnicodeDecodeError:
            size = len(document) - begin.end() - start
            yield BadRecord(where(number, position), "invalid UTF-8", not_utf8(part) or "", size)
            return
        name = f"{where.source.name}@{position + start}"
        if text in ("", attributes.get("title", "").strip()):
            yield Dropped(name, "title only")
        else:
            origin = attributes.get("url") or where.source.name
            yield Record(name, origin, text)
