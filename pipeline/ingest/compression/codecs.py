"""The content of compressed files: one member after another, and nothing but padding between them.

A file is a series of members (gzip), streams (xz, bzip2) or frames (zstd). Each of them is
decompressed here, whatever the file holds. Between two of them and after the last one there may be
what the format defines as padding, or its own tool ignores:

=====  =======================  ===================================================================
gz     zero bytes               RFC 1952 has none; gzip(1) ignores zeros, which fill up tapes
bz2    zero bytes               as gzip; the format has no padding of its own
xz     zero bytes               The .xz File Format 1.2.1, section 2.2, Stream Padding
zst    skippable frames         RFC 8878, section 3.1.2
=====  =======================  ===================================================================

Anything else is damage. It may be a member whose header is damaged, and ignoring it, as bzip2 does,
would lose that member and all that follow without a word.

Memory is a few blocks, and what the decompressor looks back at: files that need more than
MAX_WINDOW_BYTES of that, as zstd's own tool refuses without --long, are refused.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import zstandard

from pipeline.base.errors import DataError

Compression = Literal["", "gz", "zst", "xz", "bz2"]

BLOCK_BYTES = 1 << 22
"""Most content yielded at once, but for zstd's last block."""
HEAD_BYTES = 1 << 16
"""Start of a file in which its compression and format are detected."""
MAX_WINDOW_BYTES = 1 << 27  # what `zstd -d` accepts without --long; ordinary files have 8 MiB
READ_BYTES = 1 << 16  # compressed bytes per read
_XZ_OVERHEAD = 1 << 20  # memory of a decompressor, on top of its dictionary
_ZST_SLICE = 192
"""Compressed bytes given to zstd at once, which expand to 6 MiB at most, 128 KiB for each four.
That takes 2 ms more for each MB of a file than to give it all it has."""
MAGIC: dict[Compression, bytes] = {
    "gz": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zst": b"\x28\xb5\x2f\xfd",
}
"""The first bytes of the members of each format."""
_BZ2_HEADER = re.compile(rb"BZh[1-9]")  # a text may start with the magic alone
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)  # a frame of zstd without content
_LZ4 = b"\x04\x22\x4d\x18"


def sniff_compression(path: str) -> Compression:
    """The compression of a file, by its first bytes. Raises DataError if it cannot be read."""
    with naming(path), Path(path).open("rb") as file:
        return readable_compression(path, file.read(HEAD_BYTES))


def readable_compression(path: str, head: bytes) -> Compression:
    """The compression of a file that starts with `head`. Raises DataError for lz4."""
    if head.startswith(_LZ4):
        raise DataError(
            f"{path} is compressed by lz4, which is not read; unpack it with lz4 -d, or compress "
            "it again with gzip, zstd, xz or bzip2"
        )
    return compression_of(head)


def compression_of(head: bytes) -> Compression:
    """The compression of data that starts with `head`."""
    if head.startswith(MAGIC["bz2"]):
        return "bz2" if _BZ2_HEADER.match(head) else ""
    if _SKIPPABLE.match(head):  # as pzstd writes them first
        return "zst"
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def decompressed(
    file: BinaryIO,
    compression: Compression,
    begin: Callable[[int], object] = lambda unread: None,
) -> Iterator[bytes]:
    """Yield all of a compressed file in non-empty blocks; calls only `file.read`.

    begin: is called where a member starts, with the number of bytes read from there on. Raises what
    `naming` turns into a DataError if the file is truncated or damaged, or if anything but members
    and padding is in it.
    """
    padding, magic = b"" if compression == "zst" else b"\0", MAGIC[compression]
    data = b""
    while True:
        # A magic may lie across two reads.
        data = data.lstrip(padding)
        while len(data) < len(magic) and (more := file.read(READ_BYTES)):
            data = (data + more).lstrip(padding)
        if not data:
            return
        # A shorter start passes: the member is cut off, and reading it raises EOFError.
        is_skippable = compression == "zst" and _SKIPPABLE.match(data)
        if not (magic.startswith(data[: len(magic)]) or is_skippable):
            raise OSError("other bytes than padding after the last good part")
        begin(len(data))
        member = _MEMBERS[compression]()
        while not member.eof:
            if member.needs_input and not (data := data or file.read(READ_BYTES)):
                raise EOFError
            if block := member.decompress(data, BLOCK_BYTES):  # bounded, whatever it expands to
                yield block
            data = b""
        data = member.unused_data


class BlockFile:
    """Blocks with the interface of a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.position = 0
        """Bytes consumed."""
        self.buffer = b""
        self.at = 0  # bytes of the buffer already read

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, or what remains, without consuming them."""
        missing = size - (len(self.buffer) - self.at)
        if missing > 0:
            parts = [self.buffer[self.at :]]  # joined once: += would copy them for each block
            while missing > 0 and (block := next(self.blocks, b"")):
                parts.append(block)
                missing -= len(block)
            self.buffer, self.at = b"".join(parts), 0
        return self.buffer[self.at : self.at + size]

    def read(self, size: int = BLOCK_BYTES) -> bytes:
        """Consume the next `size` bytes, or what remains."""
        taken = self.peek(size)
        self.at += len(taken)
        self.position += len(taken)
        return taken


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn errors of reading and decompressing into a DataError with the file's name."""
    try:
        yield
    except EOFError as error:
        raise DataError(f"{path} is truncated; fetch it again") from error
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        if re.search("Memory usage limit|too much memory", str(error)):  # of xz and of zstd
            raise DataError(
                f"{path} needs more than {MAX_WINDOW_BYTES >> 20} MiB of memory to decompress; "
                "compress it again with xz -9 or less, or zstd --long=27 or without --long"
            ) from error
        raise DataError(f"{path} is damaged ({error}); fetch it again") from error
    except OSError as error:
        if error.errno is None:  # bz2 has no exception of its own
            raise DataError(f"{path} is damaged ({error}); fetch it again") from error
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


# --- members


class _Decompressor(Protocol):
    """As `bz2.BZ2Decompressor` and `lzma.LZMADecompressor`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipDecompressor:
    """One member; zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self.member = zlib.decompressobj(wbits=31)  # 16 for the header of gzip, 15 for any window

    @property
    def eof(self) -> bool:
        return self.member.eof

    @property
    def needs_input(self) -> bool:
        return not self.member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self.member.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        # zlib hands back what it did not read; the other decompressors keep it themselves.
        return self.member.decompress(self.member.unconsumed_tail or data, max_length)


class _ZstdDecompressor:
    """One frame; zstandard's decompressor, which has no bound on what it returns, with one.

    (zstandard's reader has one, but takes a truncated file for a whole one.)
    """

    def __init__(self) -> None:
        self.frame = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        self.data, self.at = b"", 0  # bytes of the data already decompressed

    @property
    def eof(self) -> bool:
        return self.frame.eof

    @property
    def needs_input(self) -> bool:
        return self.at >= len(self.data)

    @property
    def unused_data(self) -> bytes:
        return self.frame.unused_data + self.data[self.at :]

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        if data:
            self.data, self.at = data, 0
        parts: list[bytes] = []
        size = 0
        while self.at < len(self.data) and not self.frame.eof and not 0 <= max_length <= size:
            parts.append(self.frame.decompress(self.data[self.at : self.at + _ZST_SLICE]))
            self.at += _ZST_SLICE
            size += len(parts[-1])
        return b"".join(parts)


_MEMBERS: dict[Compression, Callable[[], _Decompressor]] = {
    "gz": _GzipDecompressor,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_WINDOW_BYTES + _XZ_OVERHEAD),
    "zst": _ZstdDecompressor,
}
