"""Records of a WARC or WET file, plain or compressed; damaged records are reported and skipped.

Every yielded record is complete: its block has the stated length, and another record or the end of
the file follows. A damaged record is yielded as `Torn`, and reading continues at the next record:
at the next gzip member, because crawlers write one member per record, or else at the next line
`WARC/`. (fastwarc's own iterator yields a truncated record as complete, and so one of another
length than stated, takes a file cut inside a gzip header for whole, and shows no bytes to check any
of that with. It would save 4 % of the time.)

Memory is bounded by MAX_BLOCK_BYTES: only that much of a longer block is kept.
"""

from __future__ import annotations

import contextlib
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fastwarc.stream_io import BrotliReader

from pipeline.ingest.compression.codecs import READ_BYTES, decompressed, naming
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.records import Source

MAX_BLOCK_BYTES = 4 << 20
"""Most bytes kept of a block or body; a parsed page takes up to 80 times its size in memory."""
_MAX_HEADER_BYTES = 1 << 16
_ZLIB_OR_GZIP = 47  # zlib's wbits
_MEMBER = re.compile(rb"\x1f\x8b\x08")
_BEGINNING_BYTES = 1 << 10  # compressed bytes in which a record's first ones are
_BEGINNING = b"WARC/"
_NEXT = re.compile(rb"\nWARC/\d")
_HEADERS_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]{0,200})?\r?\n")


@dataclass(slots=True)
class WarcRecord:
    """A record as it was written."""

    number: int
    """Number in the file, from 1, counting torn records."""
    headers: dict[str, str]
    """Names in lower case."""
    block: bytes
    """The bytes after the headers; for a response, HTTP headers and body."""
    is_whole: bool
    """True if `block` is complete."""
    position: int
    """Decompressed bytes of the file up to the record's end."""


@dataclass(slots=True)
class Torn:
    """A record, or a stretch of the file, that cannot be read."""

    number: int
    reason: str


def read_records(source: Source) -> Iterator[WarcRecord | Torn]:
    """Yield every record in order. Raises DataError if the file cannot be read at all."""
    stretch, number = _Stretch(_blocks(source)), 0
    while not stretch.is_last:
        stretch.is_over = stretch.is_damaged = False
        while stretch.skip_blank_lines():
            number += 1
            record = _record(stretch, number)
            if isinstance(record, Torn) and not stretch.skip_to_next_record():
                stretch.is_damaged = False  # `record` reports it
            yield record
        if stretch.is_damaged:
            number += 1
            yield Torn(number, "damaged data")


def _record(stretch: _Stretch, number: int) -> WarcRecord | Torn:
    if not (stretch.ensure(len(_BEGINNING)) and stretch.data.startswith(_BEGINNING)):
        return Torn(number, "no WARC record")
    while not (end := _HEADERS_END.search(stretch.data, 0, _MAX_HEADER_BYTES)):
        if len(stretch.data) > _MAX_HEADER_BYTES or not stretch.ensure(len(stretch.data) + 1):
            return Torn(number, "record cut off")
    body_at = end.end()
    headers = parse_headers(bytes(stretch.data[:body_at]))
    length = headers.get("content-length", "")
    if not re.fullmatch(r"[0-9]{1,15}", length):
        return Torn(number, "record without length")
    size = int(length)
    kept = min(size, MAX_BLOCK_BYTES)
    if not stretch.ensure(body_at + kept):
        return Torn(number, "record cut off")
    block = bytes(stretch.data[body_at : body_at + kept])
    if kept == size and not stretch.record_ends_at(body_at + size):
        return Torn(number, "record of another length than stated")
    left = body_at + size
    while left > len(stretch.data):  # of a long block, whose rest is not kept
        left -= len(stretch.data)
        stretch.drop(len(stretch.data))
        if not stretch.ensure(1):
            return Torn(number, "record cut off")
    stretch.drop(left)
    return WarcRecord(number, headers, block, kept == size, stretch.position)


class _Stretch:
    """The bytes of a file up to the next member or damage; after `is_over` is reset, those after
    it."""

    def __init__(self, blocks: Iterator[bytes | None]) -> None:
        """blocks: as `_blocks` yields them."""
        self.blocks = blocks
        self.data = bytearray()  # read and not yet dropped
        self.position = 0  # decompressed bytes before them
        self.is_over = self.is_damaged = self.is_last = False

    def ensure(self, size: int) -> bool:
        """Read until `data` has `size` bytes; False if the stretch has fewer."""
        while len(self.data) < size:
            if not self._grow():
                self.is_damaged = False  # the requested record reports it
                return False
        return True

    def skip_blank_lines(self) -> bool:
        """Drop blank lines; whether data follows."""
        while True:
            self.drop(len(self.data) - len(self.data.lstrip(b"\r\n")))
            if self.data or not self._grow():
                return bool(self.data)

    def skip_to_next_record(self) -> bool:
        """Drop everything before the next record, or the whole stretch if there is none."""
        while not (found := _NEXT.search(self.data, 1)):  # not the record that begins at 0
            self.drop(max(0, len(self.data) - len(_BEGINNING) - 1))  # the end may start a match
            if not self._grow():
                self.drop(len(self.data))
                return False
        self.drop(found.start() + 1)
        return True

    def record_ends_at(self, end: int) -> bool:
        """True if a record's terminator, another record or the end of data is at `end`."""
        while len(self.data) < end + 16 and self._grow():
            pass
        following = bytes(self.data[end : end + 16])
        start = following.lstrip(b"\r\n")[: len(_BEGINNING)]
        return following.startswith(b"\r\n\r\n") or _BEGINNING.startswith(start)

    def drop(self, size: int) -> None:
        """Remove the first bytes of `data`."""
        del self.data[:size]
        self.position += size

    def _grow(self) -> bool:
        """Append a block to `data`; False at the end of the stretch."""
        if self.is_over:
            return False
        try:
            block = next(self.blocks)
        except StopIteration:
            self.is_over = self.is_last = True
            return False
        self.is_over, self.is_damaged = not block, block is None
        self.data += block or b""
        return bool(block)


def _blocks(source: Source) -> Iterator[bytes | None]:
    """The blocks of a file; an empty one where a gzip member starts with a record, and None where a
    member is damaged, after which the next one comes."""
    if source.compression != "gz":
        yield from read_blocks(source.path, source.compression, 0, source.size)
        return
    member_at: int | None = 0
    begins = False

    def begin(unread: int) -> None:
        nonlocal member_at, begins
        member_at, begins = file.tell() - unread, True

    with naming(source.path), Path(source.path).open("rb") as file:
        while member_at is not None:
            file.seek(member_at)
            try:
                for block in decompressed(file, "gz", begin):
                    if begins and block.startswith(_BEGINNING):  # others continue a record
                        yield b""
                    begins = False
                    yield block
                return
            except (zlib.error, EOFError, OSError) as error:
                if isinstance(error, OSError) and error.errno:  # of the disk
                    raise
            yield None
            member_at = _next_record(file, member_at + 1)


def _next_record(file: BinaryIO, start: int) -> int | None:
    """The byte of the next gzip member that starts with a record; None if there is none."""
    while True:
        file.seek(start)
        data = file.read(READ_BYTES)
        for found in _MEMBER.finditer(data):
            member = zlib.decompressobj(_ZLIB_OR_GZIP)
            with contextlib.suppress(zlib.error):
                beginning = data[found.start() : found.start() + _BEGINNING_BYTES]
                if member.decompress(beginning, len(_BEGINNING)) == _BEGINNING:
                    return start + found.start()
        if len(data) < READ_BYTES:
            return None
        start += READ_BYTES - _BEGINNING_BYTES  # they overlap, so that a member lies in one


def parse_headers(lines: bytes) -> dict[str, str]:
    """Header lines by lower-case name, the first of each; folded lines are joined."""
    headers: dict[str, str] = {}
    for line in re.sub(rb"\r?\n[ \t]+", b" ", lines).split(b"\n"):
        name, colon, value = line.decode(errors="replace").partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


@dataclass(slots=True)
class Response:
    """An HTTP response."""

    status: int
    """The HTTP status; 0 if the first line has none."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    """Body without the encodings that it really had; cut to MAX_BLOCK_BYTES + 1."""


def parse_response(block: bytes) -> Response:
    """Parse the block of a response record."""
    end = _HEADERS_END.search(block, 0, _MAX_HEADER_BYTES)
    if not block.startswith(b"HTTP/") or not end:
        return Response(0, {}, block)
    head, body = block[: end.start()], block[end.end() :]
    status = re.match(rb"HTTP/[\d.]+[ \t]+(\d{3})", head)
    headers = parse_headers(head)
    # Crawlers may keep these headers although they have decoded the body.
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = _joined_chunks(body)
    body = _decompressed(body, headers.get("content-encoding", "").lower())
    return Response(int(status[1]) if status else 0, headers, body)


def _joined_chunks(body: bytes) -> bytes:
    parts: list[bytes] = []
    at = 0
    while chunk := _CHUNK.match(body, at):
        size = int(chunk[1], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[chunk.end() : chunk.end() + size])
        at = chunk.end() + size
        at += 2 if body.startswith(b"\r\n", at) else body.startswith(b"\n", at)
    return b"".join(parts) if at >= len(body) and parts else body


def _decompressed(body: bytes, encoding: str) -> bytes:
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            if _MEMBER.match(body):
                return _joined_members(body)
            return zlib.decompressobj(_ZLIB_OR_GZIP).decompress(body, MAX_BLOCK_BYTES + 1)
        if encoding == "br":
            return bytes(BrotliReader(io.BytesIO(body)).read(MAX_BLOCK_BYTES + 1))
    except (zlib.error, OSError):
        return body
    return body


def _joined_members(body: bytes) -> bytes:
    """The content of a body's gzip members; a page that is cut off stays one.

    What follows the last member is ignored, as browsers do: servers append all sorts of bytes.
    """
    parts: list[bytes] = []
    with contextlib.suppress(EOFError, OSError):
        for block in decompressed(io.BytesIO(body), "gz"):
            parts.append(block)
            if sum(map(len, parts)) > MAX_BLOCK_BYTES:
                break
    return b"".join(parts)[: MAX_BLOCK_BYTES + 1]  # a byte too many shows that it is too long
