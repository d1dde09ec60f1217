"""Records of a WARC file (also WET), plain or compressed; what is damaged is stated and left out.

Every record that comes out is whole: its block has the length that its header says, and another
record or the end of the file follows. Where one is not, a `Torn` says so and reading goes on where
the next record begins: in gzip with the next member, for crawlers write a member a record, or else
with the next line `WARC/`. (fastwarc's own iterator hands out a record that is cut off as if it
were whole, and ends at the first byte that does not decompress. It would save 4 % of the time.)

Memory is bounded by MAX_BLOCK_BYTES: of a longer block only the beginning is kept.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fastwarc.stream_io import BrotliReader

from pipeline.data.documents.byte_blocks import BLOCK_BYTES, read_blocks
from pipeline.data.documents.records import Source
from pipeline.errors import DataError

MAX_BLOCK_BYTES = 4 << 20
"""Kept of a record's block, and of a body; a parsed page takes up to 80 times its size."""
_MAX_HEADER_BYTES = 1 << 16
_SIP_BYTES = 1 << 18  # compressed, at once
_GZIP, _ZLIB_OR_GZIP = 31, 47  # zlib's wbits
_MAGIC = b"\x1f\x8b\x08"
_BEGINNING = b"WARC/"
_NEXT = re.compile(rb"\nWARC/\d")
_HEADERS_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]{0,200})?\r?\n")

MEMBER: bytes = b""
"""Among blocks of bytes: here begins a compressed member, and in it a record."""


@dataclass(slots=True)
class WarcRecord:
    """A record as it was written."""

    number: int
    """In the file, from 1; torn ones are counted, too."""
    headers: dict[str, str]
    """Names in lower case."""
    block: bytes
    """What stands behind the headers: of a response HTTP headers and body."""
    is_whole: bool
    """Whether `block` is all of it."""
    position: int
    """Bytes of the file, decompressed, up to its end."""


@dataclass(slots=True)
class Torn:
    """A record, or a stretch of the file, that cannot be read."""

    number: int
    reason: str


def read_records(source: Source) -> Iterator[WarcRecord | Torn]:
    """Every record in order; DataError when the file cannot be read at all."""
    stretch = _Stretch(_blocks(source))
    number = 0
    while not stretch.is_last:
        stretch.is_over = stretch.is_damaged = False
        while stretch.go_on():
            number += 1
            record = _record(stretch, number)
            if isinstance(record, Torn) and not stretch.go_to_next():
                stretch.is_damaged = False  # which has been told of
            yield record
        if stretch.is_damaged:
            number += 1
            yield Torn(number, "damaged data")


def _record(stretch: _Stretch, number: int) -> WarcRecord | Torn:
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


class _Stretch:
    """A run of bytes without a gap: the whole file, or a gzip member, up to what is damaged."""

    def __init__(self, blocks: Iterator[bytes | None]) -> None:
        self.blocks = blocks
        self.data = bytearray()  # what was read and not dropped
        self.position = 0  # of its first byte in the file
        self.is_over = self.is_damaged = self.is_last = False

    def grow(self) -> bool:
        """Append a block to `data`; False at the end of the stretch."""
        if self.is_over:
            return False
        try:
            block = next(self.blocks)
        except StopIteration:
            self.is_over = self.is_last = True
            return False
        if block:
            self.data += block
            return True
        self.is_over, self.is_damaged = True, block is None
        return False

    def ensure(self, size: int) -> bool:
        """Have so many bytes in `data`; False if there are not so many."""
        while len(self.data) < size:
            if not self.grow():
                self.is_damaged = False  # the record that was wanted tells of it
                return False
        return True

    def go_on(self) -> bool:
        """Drop blank lines; whether something stands behind them."""
        while True:
            while self.data.startswith((b"\r", b"\n")):
                self.drop(1)
            if self.data or not self.grow():
                return bool(self.data)

    def go_to_next(self) -> bool:
        """Drop what is before the next record, if one is found, or else the whole stretch."""
        while True:
            if found := _NEXT.search(self.data, 1):
                self.drop(found.start() + 1)
                return True
            self.drop(max(0, len(self.data) - len(_BEGINNING) - 1))
            if not self.grow():
                self.drop(len(self.data))
                return False

    def headers_end(self) -> int:
        """Where the headers end, behind the blank line; 0 if that is nowhere near."""
        while not (found := _HEADERS_END.search(self.data, 0, _MAX_HEADER_BYTES)):
            if len(self.data) > _MAX_HEADER_BYTES or not self.ensure(len(self.data) + 1):
                return 0
        return found.end()

    def record_ends_at(self, end: int) -> bool:
        """Whether at `end` stands what ends a record, or another record, or nothing."""
        while len(self.data) < end + 16 and self.grow():
            pass
        behind = bytes(self.data[end : end + 16])
        begins = behind.lstrip(b"\r\n")[: len(_BEGINNING)]
        return behind.startswith(b"\r\n\r\n") or _BEGINNING.startswith(begins)

    def drop(self, size: int) -> None:
        """Forget the first bytes of `data`."""
        del self.data[:size]
        self.position += size

    def skip(self, size: int) -> bool:
        """Forget so many bytes, also such as were not read yet; False if there are not so many."""
        while size > len(self.data):
            size -= len(self.data)
            self.drop(len(self.data))
            if not self.ensure(1):
                return False
        self.drop(size)
        return True


def _blocks(source: Source) -> Iterator[bytes | None]:
    """The file's bytes, MEMBER at borders; None where some are missing."""
    if source.compression == "gz":
        try:
            with Path(source.path).open("rb") as file:
                yield from _gzip_blocks(file)
        except OSError as error:
            raise DataError(f"{source.path} cannot be read: {error.strerror}") from error
    elif source.compression == "lz4":
        try:
            yield from read_blocks(source.path, "lz4", 0, 0)
        except DataError:
            yield None
    else:
        yield from read_blocks(source.path, source.compression, 0, source.size)


def _gzip_blocks(file: BinaryIO) -> Iterator[bytes | None]:
    data, member, begins = file.read(_SIP_BYTES), zlib.decompressobj(_GZIP), True
    is_within = False
    while data:
        is_within = True
        try:
            block = member.decompress(data, BLOCK_BYTES)
        except zlib.error:
            yield None
            data, member, begins = _next_member(file, data[1:]), zlib.decompressobj(_GZIP), True
            is_within = False
            continue
        if block:
            if begins and block.startswith(_BEGINNING):
                yield MEMBER
            begins = False
            yield block
        data = member.unconsumed_tail
        if member.eof:
            data = member.unused_data
            member, begins, is_within = zlib.decompressobj(_GZIP), True, False
        data = data or file.read(_SIP_BYTES)
        while not is_within and data.startswith(b"\0"):  # some pad with zeros
            data = data.lstrip(b"\0") or file.read(_SIP_BYTES)
    if is_within:
        yield None


def _next_member(file: BinaryIO, data: bytes) -> bytes:
    """Bytes from where the next member may begin on; empty at the end of the file."""
    while (at := data.find(_MAGIC)) < 0:
        more = file.read(_SIP_BYTES)
        if not more:
            return b""
        data = data[-2:] + more
    return data[at:]


def parse_headers(lines: bytes) -> dict[str, str]:
    """Header lines by name in lower case, the first of each; a line that goes on is joined."""
    headers: dict[str, str] = {}
    for line in re.sub(rb"\r?\n[ \t]+", b" ", lines).split(b"\n"):
        name, colon, value = line.decode(errors="replace").partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


@dataclass(slots=True)
class Response:
    """What a server answered."""

    status: int
    """As in HTTP; 0 when the first line tells none."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    """Without transfer and content encodings, as far as it really had them; of a longer one
    MAX_BLOCK_BYTES and one."""


def parse_response(block: bytes) -> Response:
    """The block of a response record."""
    end = _HEADERS_END.search(block, 0, _MAX_HEADER_BYTES)
    if not block.startswith(b"HTTP/") or not end:
        return Response(0, {}, block)
    head, body = block[: end.start()], block[end.end() :]
    status = re.match(rb"HTTP/[\d.]+[ \t]+(\d{3})", head)
    headers = parse_headers(head)
    # Crawlers may keep these headers though they have undone what the headers speak of.
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
            return zlib.decompressobj(_ZLIB_OR_GZIP).decompress(body, MAX_BLOCK_BYTES + 1)
        if encoding == "br":
            return bytes(BrotliReader(io.BytesIO(body)).read(MAX_BLOCK_BYTES + 1))
    except (zlib.error, OSError):
        return body
    return body
