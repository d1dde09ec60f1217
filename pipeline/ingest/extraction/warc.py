"""Records of a WARC or WET file, plain or compressed; damaged records are reported and skipped.

Every yielded record is complete: its block has the stated length, and another record or the end of
the file follows. A damaged record is yielded as `Torn`, and reading continues at the next record:
at the next gzip member, because crawlers write one member per record, or else at the next line
`WARC/`. (fastwarc's own iterator yields truncated records as complete, and stops at the first byte
that does not decompress. It would save 4 % of the time.)

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

from pipeline.base.errors import DataError
from pipeline.ingest.compression.codecs import BLOCK_BYTES, decompressed
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.places import START, Place

MAX_BLOCK_BYTES = 4 << 20
"""Most bytes kept of a block or body; a parsed page takes up to 80 times its size in memory."""
_MAX_HEADER_BYTES = 1 << 16
_SIP_BYTES = 1 << 18  # compressed bytes per read
_GZIP, _ZLIB_OR_GZIP = 31, 47  # zlib's wbits
_MAGIC = b"\x1f\x8b\x08"
_BEGINNING = b"WARC/"
_NEXT = re.compile(rb"\nWARC/\d")
_HEADERS_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]{0,200})?\r?\n")

_Bytes = bytes | int | None
"""Bytes of the file; or the byte of the file where a gzip member, and a record in it, starts; or
None where bytes are missing."""


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


def find_records(source: Source, start: Place) -> Iterator[tuple[Place, WarcRecord | Torn]]:
    """Yield the records that start from `start` on, and their places; numbers count from there.

    Raises DataError if the file cannot be read at all.
    """
    is_plain, begin = not source.compression, start[0]
    if begin and is_plain:
        begin -= 2  # a record at `begin` follows a newline
    stretch = Stretch(raw_blocks(source, begin), begin if is_plain else 0, is_plain)
    number = 0
    if begin and is_plain:
        stretch.skip_to_next_record()
    while not stretch.is_last:
        stretch.begin()
        while stretch.skip_blank_lines():
            place = stretch.place()
            record = _record(stretch, number + 1)
            if isinstance(record, Torn) and not stretch.skip_to_next_record():
                stretch.is_damaged = False  # `record` reports it
            if place >= start:
                number += 1
                yield place, record
        if stretch.is_damaged:
            number += 1
            yield stretch.place(), Torn(number, "damaged data")


def read_records(source: Source) -> Iterator[WarcRecord | Torn]:
    """Yield every record in order."""
    for _, record in find_records(source, START):
        yield record


def starts_with_members(source: Source) -> bool:
    """True if the first record of a gzip file is a member of its own, as crawlers write it."""
    if source.compression != "gz":
        return False
    with Path(source.path).open("rb") as file:
        member = zlib.decompressobj(_GZIP)
        with contextlib.suppress(zlib.error):
            member.decompress(file.read(_SIP_BYTES))
        return member.eof and member.unused_data.startswith(_MAGIC)


def _record(stretch: Stretch, number: int) -> WarcRecord | Torn:
    stretch.ensure(len(_BEGINNING))
    if not stretch.data.startswith(_BEGINNING):
        return Torn(number, "no WARC record")
    body_at = stretch.headers_end()
    headers = parse_headers(bytes(stretch.data[:body_at]))
    length = headers.get("content-length", "")
    if not body_at:
        return Torn(number, "record cut off")
    if not re.fullmatch(r"[0-9]{1,15}", length):
        return Torn(number, "record without length")
    size = int(length)
    kept = min(size, MAX_BLOCK_BYTES)
    if not stretch.ensure(body_at + kept):
        return Torn(number, "record cut off")
    block = bytes(stretch.data[body_at : body_at + kept])
    if kept == size and not stretch.record_ends_at(body_at + size):
        return Torn(number, "record of another length than stated")
    if not stretch.skip(body_at + size):
        return Torn(number, "record cut off")
    return WarcRecord(number, headers, block, kept == size, stretch.position)


class Stretch:
    """A run of bytes without damage: the whole file, or a gzip member, up to the damage."""

    def __init__(self, blocks: Iterator[_Bytes], position: int, is_plain: bool) -> None:
        self.blocks = blocks
        self.data = bytearray()  # read and not yet dropped
        self.position = position  # place of its first byte in the decompressed file
        self.is_plain = is_plain
        self.is_over = self.is_damaged = self.is_last = False
        self.member = self.next_member = 0  # byte of the file where a gzip member starts
        self.member_position = position

    def begin(self) -> None:
        """Continue with the next stretch."""
        self.is_over = self.is_damaged = False
        if self.next_member > self.member:
            self.member, self.member_position = self.next_member, self.position

    def place(self) -> Place:
        """The place at which `data` starts."""
        if self.is_plain:
            return self.position, 0
        return self.member, self.position - self.member_position

    def grow(self) -> bool:
        """Append a block to `data`; False at the end of the stretch."""
        if self.is_over:
            return False
        try:
            block = next(self.blocks)
        except StopIteration:
            self.is_over = self.is_last = True
            return False
        if isinstance(block, bytes):
            self.data += block
            return True
        self.is_over, self.is_damaged = True, block is None
        self.next_member = block or 0
        return False

    def ensure(self, size: int) -> bool:
        """Read until `data` has `size` bytes; False if the stretch has fewer."""
        while len(self.data) < size:
            if not self.grow():
                self.is_damaged = False  # the requested record reports it
                return False
        return True

    def skip_blank_lines(self) -> bool:
        """Drop blank lines; whether data follows."""
        while True:
            while self.data.startswith((b"\r", b"\n")):
                self.drop(1)
            if self.data or not self.grow():
                return bool(self.data)

    def skip_to_next_record(self, pattern: re.Pattern[bytes] = _NEXT, longest: int = 6) -> bool:
        """Drop everything before the next record, or the whole stretch if there is none.

        pattern: a newline and the start of a record; longest: bytes that it matches.
        """
        while True:
            if found := pattern.search(self.data, 1):  # not the record that begins at 0
                self.drop(found.start() + 1)
                return True
            self.drop(max(0, len(self.data) - longest))  # the end may be the start of a match
            if not self.grow():
                self.drop(len(self.data))
                return False

    def headers_end(self) -> int:
        """End of the headers, after the blank line; 0 if there is none within the limit."""
        while not (found := _HEADERS_END.search(self.data, 0, _MAX_HEADER_BYTES)):
            if len(self.data) > _MAX_HEADER_BYTES or not self.ensure(len(self.data) + 1):
                return 0
        return found.end()

    def record_ends_at(self, end: int) -> bool:
        """True if a record's terminator, another record or the end of data is at `end`."""
        while len(self.data) < end + 16 and self.grow():
            pass
        following = bytes(self.data[end : end + 16])
        start = following.lstrip(b"\r\n")[: len(_BEGINNING)]
        return following.startswith(b"\r\n\r\n") or _BEGINNING.startswith(start)

    def drop(self, size: int) -> None:
        """Remove the first bytes of `data`."""
        del self.data[:size]
        self.position += size

    def skip(self, size: int) -> bool:
        """Skip `size` bytes, reading as needed; False if the stretch has fewer."""
        while size > len(self.data):
            size -= len(self.data)
            self.drop(len(self.data))
            if not self.ensure(1):
                return False
        self.drop(size)
        return True


def raw_blocks(source: Source, start: int) -> Iterator[_Bytes]:
    """The file's bytes from the first place at or after `start` at which reading can start."""
    if source.compression == "gz":
        try:
            with Path(source.path).open("rb") as file:
                yield from _gzip_blocks(file, start)
        except OSError as error:
            raise DataError(f"{source.path} cannot be read: {error.strerror}") from error
    else:
        yield from read_blocks(source.path, source.compression, start, source.size)


def _gzip_blocks(file: BinaryIO, start: int) -> Iterator[_Bytes]:
    file.seek(start)
    data, member, begins = file.read(_SIP_BYTES), zlib.decompressobj(_GZIP), True
    if start:
        data = _next_record(file, data)
    member_at, is_within = 0, False
    while data:
        if not is_within:
            member_at = file.tell() - len(data)
        is_within = True
        try:
            block = member.decompress(data, BLOCK_BYTES)
        except zlib.error:
            yield None
            data, member, begins = _next_member(file, data[1:]), zlib.decompressobj(_GZIP), True
            is_within = False
            continue
        if block:
            if begins and block.startswith(_BEGINNING):  # others continue a record
                yield member_at
            begins = False
            yield block
        data = member.unconsumed_tail
        if member.eof:
            data = member.unused_data
            member, begins, is_within = zlib.decompressobj(_GZIP), True, False
        data = data or file.read(_SIP_BYTES)
        while not is_within and data.startswith(b"\0"):  # some writers pad with zeros
            data = data.lstrip(b"\0") or file.read(_SIP_BYTES)
    if is_within:
        yield None


def _next_record(file: BinaryIO, data: bytes) -> bytes:
    """Bytes from the next member that starts with a record; empty at the end of the file."""
    while data := _next_member(file, data):
        if len(data) < _SIP_BYTES:
            data += file.read(_SIP_BYTES)
        with contextlib.suppress(zlib.error):
            beginning = zlib.decompressobj(_GZIP).decompress(data, len(_BEGINNING))
            if beginning == _BEGINNING:
                return data
        data = data[1:]
    return b""


def _next_member(file: BinaryIO, data: bytes) -> bytes:
    """Bytes from the next possible member; empty at the end of the file."""
    while (at := data.find(_MAGIC)) < 0:
        more = file.read(_SIP_BYTES)
        if not more:
            return b""
        data = data[-2:] + more  # the magic may lie across two reads
    return data[at:]


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
            if body.startswith(_MAGIC):
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
