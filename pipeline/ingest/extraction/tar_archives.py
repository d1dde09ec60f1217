"""Text files in tar archives and in nested archives, such as OpenWebText as published.

`openwebtext.tar.xz` holds .tar.xz files with one text file per page. Everything is read as a
stream: nothing is unpacked, so names and links are harmless, and memory holds one document. A
member's content decides whether it is an archive, compressed or not, or HTML. Of the others, those
with an ending of texts, or without an ending, are documents: a tar of samples holds the labels of
each text in a file next to it. The rest is counted by ending, and what `skipped_names` lists is
dropped.

HTML is read as a page of its site, the first folder in its name. Other XML is
counted as bad: as text it would keep its tags.

Blocks of zeros between members, as in concatenated archives, are skipped. An invalid header or a
truncated archive raises a DataError. (tarfile ends in silence at a damaged header and at a cut
between two members, and unpacks a pax header of any size.)
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.base.errors import DataError, shown_name
from pipeline.base.skipped_names import BY_NAME, is_skipped_path, why_not_text
from pipeline.ingest.compression.codecs import (
    BLOCK_BYTES,
    HEAD_BYTES,
    BlockFile,
    compression_of,
    decompressed,
    naming,
)
from pipeline.ingest.documents.byte_blocks import BOM, parts_of, read_blocks
from pipeline.ingest.documents.markup import markup_format
from pipeline.ingest.documents.records import (
    FORMAT_NAMES,
    MAX_DOCUMENT_BYTES,
    BadRecord,
    Extract,
    Source,
)
from pipeline.ingest.documents.sniff import _BLOCK, is_tar, unreadable_shape
from pipeline.ingest.encodings.utf import not_utf8
from pipeline.ingest.extraction.html_files import extract_html
from pipeline.ingest.extraction.web_pages import without_repeats

TAR_VERSION = 3
"""Increase it when the same archive gives different documents."""

_MOST_NAME_BYTES = 1 << 20  # longest long name or pax header
_DEPTH = 4
_NULS_IN_TEXT = 0.1  # a larger share means UTF-16 or binary data
_PAX_LENGTH = re.compile(rb"([0-9]{1,9}) ")
_EDGES = b"\0 \t\r\n\f\v"
Records = Iterator[Extract | BadRecord]


def read_tar(source: Source) -> Records:
    """Yield the documents of an archive and of those in it."""
    stream = BlockFile(read_blocks(source.path, source.compression, 0, source.size))
    for record in _documents(stream, source, "", source.path, 1):
        # The stream is read up to the end of this document.
        at = stream.position
        yield replace(record, position=at) if isinstance(record, Extract) else record


def finish_pages(source: Source, documents: Callable[[], Records]) -> Records:
    """The documents of a whole archive, its HTML pages without lines that their sites repeat.

    documents: yields them, each time it is called.
    """
    pages = without_repeats(source, lambda: filter(_is_page, documents()))
    for document in documents():
        # Both read the same documents, so they are in step.
        yield next(pages) if _is_page(document) else document


def _is_page(document: Extract | BadRecord) -> bool:
    return isinstance(document, Extract) and bool(document.domain)


class _Member:
    """The content of one member, as a file. Raises EOFError if the archive ends inside it."""

    def __init__(self, stream: BlockFile, size: int) -> None:
        self.stream = stream
        self.left = size

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; negative: as much as one block."""
        size = self.left if size < 0 else min(size, self.left)
        taken = self.stream.read(min(size, BLOCK_BYTES))
        if size and not taken:
            raise EOFError
        self.left -= len(taken)
        return taken

    def blocks(self) -> Iterator[bytes]:
        """The rest of the content."""
        return iter(lambda: self.read(BLOCK_BYTES), b"")


def _file(path: str, text: str, dropped: str) -> Extract:
    return Extract(
        id=path, url="", title="", text=text, dropped=dropped,
        revised="", language="", domain="", position=0,
    )  # fmt: skip


def _documents(stream: BlockFile, source: Source, folder: str, name: str, depth: int) -> Records:
    """Files of an archive; folder: its path in the outer archives, name: for messages."""
    if depth > _DEPTH:
        raise DataError(f"{name} is an archive in {_DEPTH} archives; unpack the outer ones")
    with naming(name):
        for header, member in _members(stream, name):
            yield from _content(header, member, source, folder, depth)


def _content(
    header: tarfile.TarInfo, member: _Member, source: Source, folder: str, depth: int
) -> Records:
    path = f"{folder}{_shown(header.name)}"
    if header.isreg() and is_skipped_path(path):
        yield _file(path, "", BY_NAME)
    elif header.isreg():
        yield from _document(member, source, path, depth)
    elif not header.isdir():
        yield _file(path, "", "link or device in an archive")


def _document(member: _Member, source: Source, path: str, depth: int) -> Records:
    """A member's documents, or its files if it is an archive."""
    name = f"{source.path}: {path}"
    with naming(name):
        raw = BlockFile(member.blocks())
        compression = compression_of(raw.peek(HEAD_BYTES))
        inner = raw
        if compression:
            inner = BlockFile(decompressed(cast(BinaryIO, raw), compression))
        if is_tar(inner.peek(2 * _BLOCK)):
            yield from _documents(inner, source, f"{path}/", name, depth + 1)
            return
        reason = why_not_text(path)
        if reason and not _is_markup(path, inner.peek(HEAD_BYTES)):
            yield _file(path, "", reason)
            return
        parts, size = [], 0
        while size <= MAX_DOCUMENT_BYTES and (block := inner.read(BLOCK_BYTES)):
            size += len(block)
            parts.append(block)
    if size > MAX_DOCUMENT_BYTES:
        reason = f"over {MAX_DOCUMENT_BYTES >> 20} MiB"
        yield BadRecord(f"{source.name}/{path}", reason, size=size)
    else:
        content = b"".join(parts)
        parts.clear()  # or a giant document would be in memory twice
        yield from _read(content, source, path)


def _read(content: bytes, source: Source, path: str) -> Records:
    """The documents of a member that is not an archive."""
    text, where = content.removeprefix(BOM).strip(_EDGES), f"{source.name}/{path}"
    try:
        format = markup_format(Path(path), path, text[: HEAD_BYTES + 1], False)
    except DataError:
        yield BadRecord(where, "XML of an unknown kind", size=len(text))
        return
    if format == "html":
        yield extract_html(source, path, content)
    elif format:
        reason = f"{FORMAT_NAMES[format]} in an archive"
        yield BadRecord(where, reason, size=len(text))
    else:
        yield from _decoded(text, where, path)


def _is_markup(path: str, head: bytes) -> bool:
    """True for HTML, and for XML, which is bad."""
    try:
        return bool(markup_format(Path(path), path, head.removeprefix(BOM).strip(_EDGES), False))
    except DataError:
        return True


def _decoded(content: bytes, where: str, path: str) -> Records:
    """The document of a text file; several of a giant one, whose ids end in where they start."""
    # All of these are ASCII; other bytes are judged as a whole below.
    if content[:2].isascii() and (shape := unreadable_shape(content[:HEAD_BYTES])):
        yield BadRecord(where, shape, size=len(content))
    elif content.count(b"\0") > _NULS_IN_TEXT * len(content):
        yield BadRecord(where, "binary", size=len(content))
    elif not content:
        yield _file(path, "", "empty")
    elif content.startswith((b'{"', b'[{"')):
        yield _file(path, "", "JSON in an archive")
    else:
        for start, part in parts_of(content):
            try:
                yield _file(f"{path}:{start}" if start else path, part.decode(), "")
            except UnicodeDecodeError:
                yield BadRecord(where, "invalid UTF-8", not_utf8(part) or "", len(content) - start)
                return


def _members(stream: BlockFile, name: str) -> Iterator[tuple[tarfile.TarInfo, _Member]]:
    """Yield each member's start, header and content, in order; skips what is not read of one."""
    long_name, pax, ended = "", dict[str, str](), False
    while block := stream.read(_BLOCK):
        ended = block.count(0) == len(block)
        if ended:
            continue
        if len(block) < _BLOCK:
            raise EOFError
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            place = stream.position - len(block)
            raise DataError(
                f"{name} is damaged (no header at byte {place}); fetch it again"
            ) from error
        size = pax.get("size", "")  # over 8 GiB, which the header's octal digits cannot hold
        member = _Member(stream, int(size) if size.isdecimal() else header.size)
        padding = -member.left % _BLOCK
        if header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            content = b"".join(member.blocks()) if member.left < _MOST_NAME_BYTES else b""
            if header.type == tarfile.GNUTYPE_LONGNAME:
                long_name = content.rstrip(b"\0").decode(errors="replace")
            else:
                pax = _pax_fields(content)
        elif header.type not in (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
            header.name = pax.get("path", "") or long_name or header.name
            long_name, pax = "", {}
            yield header, member
        # The archive is a stream: what the caller has not read must be passed.
        for _ in member.blocks():
            pass
        stream.read(padding)
    if not ended:  # a whole archive ends in zeros
        raise EOFError


def _pax_fields(content: bytes) -> dict[str, str]:
    """Parse records of the form "length key=value" and a newline."""
    fields, at = {}, 0
    while found := _PAX_LENGTH.match(content, at):
        record = content[found.end() : at + int(found[1])]
        at = max(at + int(found[1]), found.end())  # a length of 0 would never end
        key, _, value = record.rstrip(b"\n").partition(b"=")
        fields[key.decode(errors="replace")] = value.decode(errors="replace")
    return fields


def _shown(name: str) -> str:
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    return shown_name(text.removeprefix("./"))
