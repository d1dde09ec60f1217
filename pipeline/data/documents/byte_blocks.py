"""The bytes of a raw file: decompressed blocks, compression by magic bytes, line starts.

A compressed file can hold several gzip members, zstd frames, xz or bzip2 streams. A truncated or
damaged file raises a DataError with its name. Memory is a few blocks, and what the decompressor
looks back at: files that need more than MAX_WINDOW_BYTES of that, as zstd's own tool refuses
without --long, are refused.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
import zstandard
from fastwarc.stream_io import Lz4Reader

from pipeline.errors import DataError

Compression = Literal["", "gz", "zst", "xz", "bz2", "lz4"]

BLOCK_BYTES = 1 << 22
OVERRUN_BYTES = 1 << 16  # per read past the requested range, to finish its last record
ZST_BLOCKS = 16  # decompressed at once, at most 128 KiB each
LZ4_BYTES = 1 << 16  # decompressed bytes per read: damage loses the whole read
MAX_WINDOW_BYTES = 1 << 27  # what `zstd -d` accepts without --long; ordinary files have 8 MiB
_XZ_OVERHEAD = 1 << 20  # of a decompressor, beside its dictionary
_AGAIN_BYTES = 1 << 24
"""Of a line that is parsed by Python's parser, which takes a dozen times its size."""
XZ_MAGIC = b"\xfd7zXZ\x00"
XZ_BYTES = 1 << 20  # compressed bytes per read; the output comes in blocks
_TAKEN_BYTES = 1 << 16
_RUN, _CHECKSUM = 1, 4  # of zstd: a block of one repeated byte; the flag of a frame's checksum
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\f\v"
_ONLY_IN_PYTHON = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
"""In JSON that Python's parser may accept and orjson rejects."""


def sniff_compression(path: str) -> Compression:
    """The compression of a file, by its first bytes. Raises DataError if it cannot be read."""
    return compression_of(next(read_blocks(path, "", 0, 6), b""))


def compression_of(head: bytes) -> Compression:
    """The compression of data that starts with `head`, at least 6 bytes."""
    if head.startswith(b"\x1f\x8b"):
        return "gz"
    if head.startswith(XZ_MAGIC):
        return "xz"
    if re.match(rb"BZh[1-9]", head):
        return "bz2"
    if head.startswith(b"\x04\x22\x4d\x18"):
        return "lz4"
    if head.startswith(b"\x28\xb5\x2f\xfd") or _is_skippable(head):
        return "zst"
    return ""


def parse_again(line: bytes) -> Any:
    """Parse a line that `orjson.loads` rejected. Raises ValueError if it is invalid JSON.

    Accepts what orjson does not: a byte order mark, as in concatenated files, the NaN and Infinity
    that Python's json writes, which become None, and lone surrogates (`\\ud800`), which become "?".
    """
    line = line.removeprefix(BOM)
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        if len(line) > _AGAIN_BYTES or not _ONLY_IN_PYTHON.search(line):
            raise
    try:
        value = json.loads(line.decode(), parse_constant=lambda constant: None)
        return orjson.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_blocks(path: str, compression: Compression, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` to its end, in non-empty blocks.

    An uncompressed file has a block boundary at `end` and small blocks after it, for readers that
    must finish a record. A compressed file is always read from its start.
    """
    with naming(path), Path(path).open("rb") as file:
        if compression:
            yield from decompressed(file, compression)
        else:
            file.seek(start)
            yield from plain_blocks(file, end - start)


def decompressed(file: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """Yield all of a compressed file; calls only `file.read`. See `naming` for errors."""
    if compression == "gz":
        with gzip.GzipFile(fileobj=file) as members:
            yield from iter(lambda: members.read(BLOCK_BYTES), b"")
    elif compression == "xz":
        yield from _xz_blocks(file)
    elif compression == "bz2":
        with bz2.BZ2File(file) as streams:
            yield from iter(lambda: streams.read(BLOCK_BYTES), b"")
    elif compression == "lz4":
        frames = Lz4Reader(file)
        yield from iter(lambda: frames.read(LZ4_BYTES), b"")
    elif compression == "zst":
        yield from _zst_blocks(file)


class CountedFile:
    """A file that counts the bytes that were read from it, and can be decompressed."""

    def __init__(
        self,
        file: BinaryIO,
        take: Callable[[bytes], None] | None = None,
        most: int = -1,
    ) -> None:
        """take: is shown all bytes in order; most: bytes that are read at once, -1: any number."""
        self.file = file
        self.taken = 0
        self._take = take
        self._most = most

    def read(self, size: int = -1) -> bytes:
        """Read as from the file."""
        if 0 <= self._most < size or size < 0:
            size = self._most
        block = self.file.read(size)
        self.taken += len(block)
        if self._take:
            self._take(block)
        return block

    def tell(self) -> int:
        """Bytes read; fastwarc's lz4 reader needs it."""
        return self.taken


class _WindowError(Exception):
    """A compressed file asks for too much memory; says with which options it would not."""


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn errors of reading and decompressing into a DataError with the file's name."""
    try:
        yield
    except EOFError as error:
        raise DataError(f"{path} is truncated; fetch it again") from error
    except _WindowError as error:
        raise DataError(
            f"{path} needs more than {MAX_WINDOW_BYTES >> 20} MiB of memory to be decompressed; "
            f"compress it again with {error}"
        ) from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again") from error
    except OSError as error:
        if error.errno is None:  # bz2 has no exception of its own
            raise DataError(f"{path} is damaged ({error}); fetch it again") from error
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def plain_blocks(file: BinaryIO, wanted: int) -> Iterator[bytes]:
    """Yield `wanted` bytes of an open file, then the rest of it in small blocks."""
    while wanted > 0 and (block := file.read(min(BLOCK_BYTES, wanted))):
        wanted -= len(block)
        yield block
    size = OVERRUN_BYTES
    while block := file.read(size):
        yield block
        size = min(2 * size, BLOCK_BYTES)


def _zst_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield every frame, a few of its blocks at a time, which bounds memory whatever they hold.

    zstandard's own reader accepts a truncated file, and expands 16 KB at once to 512 MiB. What
    stays is the frame's window.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    take = _Taker(file)
    while magic := take.up_to(4):
        magic += take(4 - len(magic))
        if _is_skippable(magic):
            left = int.from_bytes(take(4), "little")
            while left:
                left -= len(take(min(left, BLOCK_BYTES)))
            continue
        frame = decompressor.decompressobj()
        frame.decompress(magic)  # refuses data that is no frame
        flags = take(1)
        header = flags + take(_zst_header_bytes(flags[0]))
        _check_window(magic + header)
        frame.decompress(header)
        last = False
        while not last:
            packed = b""
            for _ in range(ZST_BLOCKS):
                header = take(3)
                value = int.from_bytes(header, "little")
                last, kind, size = bool(value & 1), value >> 1 & 3, value >> 3
                packed += header + take(1 if kind == _RUN else size)
                if last:
                    packed += take(4 if flags[0] & _CHECKSUM else 0)
                    break
            if block := frame.decompress(packed):
                yield block


def _check_window(head: bytes) -> None:
    """Raise if a zstd frame needs too large a window; head: up to the end of its header."""
    frame = zstandard.get_frame_parameters(head)
    size = frame.window_size
    if frame.content_size not in (0, zstandard.CONTENTSIZE_UNKNOWN):
        size = min(size, frame.content_size)
    if size > MAX_WINDOW_BYTES:
        raise _WindowError("zstd --long=27 or without --long")


def _zst_header_bytes(flags: int) -> int:
    """Bytes of a frame's header after its flags: window, dictionary's id, size of the content."""
    alone = flags >> 5 & 1  # then there is no window, and always a size
    return 1 - alone + (0, 1, 2, 4)[flags & 3] + (alone, 2, 4, 8)[flags >> 6]


def _is_skippable(magic: bytes) -> bool:
    """Whether a zstd frame holds no content, as at the start of pzstd's files."""
    return magic[1:4] == b"\x2a\x4d\x18" and 0x50 <= magic[0] <= 0x5F


class _Taker:
    """Takes exact numbers of bytes from a file; EOFError if it ends before."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.held = b""
        self.at = 0

    def __call__(self, size: int) -> bytes:
        taken = self.up_to(size)
        while len(taken) < size:
            more = self.up_to(size - len(taken))
            if not more:
                raise EOFError
            taken += more
        return taken

    def up_to(self, size: int) -> bytes:
        """At least a byte, except at the end of the file."""
        if self.at == len(self.held):
            self.held, self.at = self.file.read(_TAKEN_BYTES), 0
        taken = self.held[self.at : self.at + size]
        self.at += len(taken)
        return taken


def _xz_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield every stream; LZMAFile silently ignores trailing data that is not a stream."""
    data = file.read(XZ_BYTES)
    while data:
        if len(data) < len(XZ_MAGIC):
            data += file.read(len(XZ_MAGIC))
        if not XZ_MAGIC.startswith(data[: len(XZ_MAGIC)]):
            raise lzma.LZMAError("Trailing data after a stream")
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_WINDOW_BYTES + _XZ_OVERHEAD)
        while not stream.eof:
            if stream.needs_input:
                data = data or file.read(XZ_BYTES)
                if not data:
                    raise EOFError
            try:
                block = stream.decompress(data, BLOCK_BYTES)
            except lzma.LZMAError as error:
                if "Memory usage limit" in str(error):
                    raise _WindowError("xz -9 or less") from error
                raise
            if block:
                yield block
            data = b""
        data, padding = stream.unused_data, 0
        while data := data or file.read(XZ_BYTES):
            zeros = len(data) - len(data.lstrip(b"\0"))
            padding += zeros
            data = data[zeros:]
            if data:
                break
        if padding % 4:
            raise lzma.LZMAError("Padding is not a multiple of four bytes")


def first_line_start(path: str, position: int) -> int:
    """Where the first line at or after `position` of an uncompressed file starts."""
    if position == 0:
        return 0
    position -= 1  # with a newline there, a line starts at the position itself
    for block in read_blocks(path, "", position, position):
        newline = block.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(block)
    return position


def follows_blank_line(path: str, line: int) -> bool:
    """Whether the line before the one at `line` is blank; true at the start of a file."""
    end = line - 1  # the newline between them
    with Path(path).open("rb") as file:
        while end > 0:
            start = end - OVERRUN_BYTES
            start = start if start > len(BOM) else 0
            file.seek(start)
            text = file.read(end - start)
            text = (text.removeprefix(BOM) if start == 0 else text).rstrip(BLANK)
            if text:
                return text.endswith(b"\n")
            end = start
    return True


def count_lines(path: str, end: int) -> int:
    """Newlines before position `end` of an uncompressed file."""
    lines = 0
    for block in read_blocks(path, "", 0, end):
        if end <= 0:
            break
        lines += block.count(b"\n")
        end -= len(block)
    return lines
