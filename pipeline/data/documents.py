"""Raw files to documents: JSON lines, Parquet, plain text, wikiextractor mark-up, cut in pieces.

`sniff` tells from the content of a file what it is, `cut` divides it into pieces that can be read
apart, `read` yields a piece's records. A record belongs to the piece in which it begins, so the
pieces of a file together give each record once, wherever the cuts fall. A record that cannot be
used is yielded as a BadRecord and reading goes on; one that is no document is yielded as Dropped,
with the reason; a file that cannot be used is a DataError.
Memory is bounded by one block and one document, whatever the size of the file.

Ids are "name@position": for JSON lines and text the position in bytes (after decompression) at
which the record begins, for Parquet the row. Dumps of wikis, WARC files and archives, slow to
read, are read as Parquet, see `extraction`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from pipeline.data.books import BOOK_VERSION, is_gutenberg, read_book
from pipeline.data.doc_markup import read_doc_markup
from pipeline.data.holes import HOLES_VERSION, mend
from pipeline.data.plain_text import read_blank_line_documents, read_whole_file
from pipeline.data.raw_bytes import (
    BOM,
    Compression,
    first_line_start,
    parse_again,
    read_blocks,
    read_head,
    require_regular,
    sniff_compression,
    sniff_text,
)
from pipeline.data.raw_parquet import extraction_mark, group_bytes, read_rows, text_column
from pipeline.data.records import (
    EXTRACTED,
    BadRecord,
    Dropped,
    Format,
    Piece,
    PlainText,
    Record,
    Source,
    Where,
    end_of,
)
from pipeline.data.tar_archives import is_tar
from pipeline.data.tei import TEI_VERSION, read_tei
from pipeline.errors import DataError

READING_VERSION = 2
"""Part of every shard's fingerprint: which records a file gives, in which order, with which ids."""
READERS: dict[Format, int] = {
    "book": BOOK_VERSION,
    "tei": TEI_VERSION,
    "wiki_jsonl": HOLES_VERSION,
    "doc": HOLES_VERSION,
}
"""The same of files of one format alone."""

MAX_LINE_BYTES = 1 << 26
"""Of JSON lines: a longer one is no document, and would take a dozen times its size."""
TOO_LONG = b"too long"
TEXT_FIELDS = ("text", "body", "content")
ORIGIN_FIELDS = ("url", "path", "id")

MARKS: tuple[tuple[re.Pattern[bytes], Format], ...] = (
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?<mediawiki\b"), "mediawiki"),
    (re.compile(rb"(?:\xef\xbb\xbf)?\s*<doc id="), "doc"),
    (re.compile(rb"WARC/\d"), "warc"),
    (
        re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<[?!][^>]*>\s*)*<(?:\w+:)?(?:TEI|teiCorpus)[\s.>]"),
        "tei",
    ),
)

# An object of wikiextractor --json; its url has the page's number, its text can be of any length.
WIKI_OBJECT = re.compile(
    rb'\s*\{\s*(?:"(?:id|revid|title)":\s*"[^"]*",\s*)*"url":\s*"https?://[^"]*[?&]curid=\d+"'
)


def sniff(
    path: str | Path,
    corpus: str,
    name: str,
    *,
    text_field: str = "",
    plain_text: PlainText = "file",
    forced_text: bool = False,
    licence: str = "",
) -> Source:
    """Tell what a file is from its content; DataError if it is missing, empty or unreadable.

    forced_text: the user gave `plain_text`, so text that seems to be other data is still text.
    """
    path = Path(path).absolute()
    require_regular(path)

    def source(format: Format, compression: Compression) -> Source:
        size = path.stat().st_size
        return Source(
            corpus, str(path), name, size, format, compression, text_field, plain_text, licence
        )

    compression = sniff_compression(str(path))
    head = read_head(str(path), compression)
    if not head:
        raise DataError(f"{path} is empty; leave it out or fetch it again")
    if head.startswith(b"PAR1") and not compression:
        found = source(EXTRACTED if extraction_mark(str(path)) else "parquet", "")
        text_column(found.path, _text_fields(found))
        return found
    if is_tar(head):
        return source("tar", compression)
    if not forced_text:
        for beginning, format in MARKS:
            if beginning.match(head):
                return source(format, compression)
    kind: Format = sniff_text(path, name, head, forced_text)
    if kind == "text" and (
        plain_text == "book" or (not forced_text and is_gutenberg(head.decode(errors="replace")))
    ):
        kind = "book"
    if kind == "jsonl" and WIKI_OBJECT.match(head.removeprefix(BOM)):
        kind = "wiki_jsonl"
    return source(kind, compression)


def cut(source: Source, piece_bytes: int) -> list[Piece]:
    """Divide a file into pieces of about `piece_bytes`; some kinds of file are always one."""
    if piece_bytes < 1:
        raise ValueError(f"piece_bytes must be positive, not {piece_bytes}")
    if source.format in ("parquet", EXTRACTED):
        return _cut_parquet(source, piece_bytes)
    if read_whole(source):
        return [Piece(source, 0, source.size, source.size)]
    starts = range(0, source.size, piece_bytes)
    stops = (min(start + piece_bytes, source.size) for start in starts)
    return [Piece(source, start, stop, stop - start) for start, stop in zip(starts, stops)]


def read_whole(source: Source) -> bool:
    """Whether a file that is not Parquet can only be read from its beginning to its end."""
    by_lines = source.format in ("jsonl", "wiki_jsonl") or (
        source.format == "text" and source.plain_text == "blank_lines"
    )
    return bool(source.compression) or not by_lines


def read(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield the records that begin in a piece; DataError if the file is damaged or truncated."""
    readers: dict[Format, Callable[[Piece], Iterator[Record | Dropped | BadRecord]]] = {
        "parquet": _read_parquet,
        "jsonl": _read_json_lines,
        "wiki_jsonl": _read_json_lines,
        "doc": read_doc_markup,
        "book": read_book,
        "tei": read_tei,
        EXTRACTED: _read_extracted,
    }
    if piece.source.format in readers:
        return readers[piece.source.format](piece)
    if piece.source.plain_text == "file":
        return read_whole_file(piece)
    return read_blank_line_documents(piece)


def _text_fields(source: Source) -> tuple[str, ...]:
    return (source.text_field,) if source.text_field else TEXT_FIELDS


# --- JSON lines


def _read_json_lines(piece: Piece) -> Iterator[Record | BadRecord]:
    source = piece.source
    start = first_line_start(source.path, piece.start)
    name, loads, where = source.name, orjson.loads, Where(source, start)
    mends = source.format == "wiki_jsonl"
    names = _text_fields(source)
    for position, number, lines in _line_blocks(piece, start):
        for line in lines:
            at, number = position, number + 1
            position += len(line) + 1
            if line is TOO_LONG:
                reason = f"a line of over {MAX_LINE_BYTES >> 20} MiB, not one object a line"
                yield BadRecord(where(number), reason)
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
                    yield BadRecord(where(number), reason)
                    continue
            text = _text(fields, names)
            if text is None:
                yield BadRecord(where(number), _why_no_text(fields, names))
            else:
                text = mend(text) if mends else text
                yield Record(f"{name}@{at}", _origin(fields) or name, text)


def _text(fields: Any, names: tuple[str, ...]) -> str | None:
    """The first named field that is a string."""
    if isinstance(fields, dict):
        for name in names:
            text = fields.get(name)
            if isinstance(text, str):
                return text
    return None


def _why_no_text(fields: Any, names: tuple[str, ...]) -> str:
    if not isinstance(fields, dict):
        return "not a JSON object"
    found = [fields[name] for name in names if name in fields]
    if not found:
        return "no text field"
    return "null text" if found[0] is None else "text is not a string"


def _origin(fields: dict[str, Any]) -> str:
    """The url, metadata.url (Dolma's place for it), path or id of a document, or nothing."""
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


def _line_blocks(piece: Piece, start: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """Lines that begin in [start, end of piece): position of the first, lines before it, lines.

    A line that is too long is not held: TOO_LONG stands for it, alone.
    """
    source, end = piece.source, end_of(piece)
    if start >= end:
        return
    position, lines_read, read_to = start, 0, start
    parts: list[bytes] = []  # of a line that goes on in the next block
    held = 0  # bytes of it
    for block in read_blocks(source.path, source.compression, start, end):
        # Behind the end only the line that began before it is wanted.
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


# --- Parquet


def _cut_parquet(source: Source, piece_bytes: int) -> list[Piece]:
    pieces, start, before, read_to = [], 0, 0, 0
    groups = group_bytes(source.path)
    total = max(sum(groups), 1)
    for group, size in enumerate(groups):
        read_to += size
        if read_to - before >= piece_bytes or group == len(groups) - 1:
            weight = source.size * read_to // total - source.size * before // total
            pieces.append(Piece(source, start, group + 1, weight))
            start, before = group + 1, read_to
    return pieces


def _read_parquet(piece: Piece) -> Iterator[Record | BadRecord]:
    source, groups = piece.source, range(piece.start, piece.stop)
    column = text_column(source.path, _text_fields(source))
    for row, text, origins in read_rows(source.path, groups, column, ORIGIN_FIELDS):
        if isinstance(text, str):
            origin = next((str(value) for value in origins if value), source.name)
            yield Record(f"{source.name}@{row}", origin, text)
        else:
            reason = "null text" if text is None else "invalid UTF-8"
            yield BadRecord(f"{source.name}:{row + 1}", reason)


def _read_extracted(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    source, groups = piece.source, range(piece.start, piece.stop)
    columns = ("id", "url", "dropped", "bad")
    for row, text, (id, url, dropped, bad) in read_rows(source.path, groups, "text", columns):
        name = f"{source.name}@{row}"
        if bad:
            yield BadRecord(id, bad)
        elif dropped:
            yield Dropped(name, dropped)
        else:
            yield Record(name, url or f"{source.name}/{id}", text)
