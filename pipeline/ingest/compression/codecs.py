"""The content of compressed files: one member after another, and nothing but padding between them.

A file is a series of members (gzip), streams (xz, bzip2) or frames (zstd, lz4). Each of them is
decompressed here, whatever the file holds and wherever it is read. Between two of them and after
the last one there may be what the format defines as padding, or its own tool ignores:

=====  =======================  ===================================================================
gz     zero bytes               RFC 1952 has none; gzip(1) ignores zeros, which fill up tapes
bz2    zero bytes               as gzip; the format has no padding of its own
xz     zero bytes, in fours     The .xz File Format 1.2.1, section 2.2, Stream Padding
zst    skippable frames         RFC 8878, section 3.1.2
lz4    skippable frames         LZ4 Frame Format Description 1.6, Skippable Frames
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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, cast

import zstandard
from fastwarc.stream_io import Lz4Reader

from pipeline.base.errors import DataError

Compression = Literal["", "gz", "zst", "xz", "bz2", "lz4"]

BLOCK_BYTES = 1 << 22
"""Most content yielded at once; zstd's blocks can have twice as much."""
HEAD_BYTES = 1 << 16
"""Start of a file in which its compression is detected, perhaps after skippable frames."""
MAX_WINDOW_BYTES = 1 << 27  # what `zstd -d` accepts without --long; ordinary files have 8 MiB
READ_BYTES = 1 << 16  # compressed bytes per read
BZ2_HEADER = re.compile(rb"BZh[1-9]")
_LZ4_BYTES = 1 << 16  # decompressed bytes per read: damage loses the whole read
_XZ_OVERHEAD = 1 << 20  # memory of a decompressor, on top of its dictionary
_ZST_BLOCKS = 16  # decompressed at once, at most 128 KiB each
_ZST_RUN, _ZST_CHECKSUM = 1, 4  # a block of one repeated byte; the flag of a frame's checksum
_LZ4_BLOCK_BYTES = 1 << 22  # the format's largest
_LZ4_BLOCK_CHECKSUM, _LZ4_SIZE, _LZ4_CHECKSUM, _LZ4_DICTIONARY = 16, 8, 4, 1  # flags of a frame


def sniff_compression(path: str) -> Compression:
    """The compression of a file, by its first bytes. Raises DataError if it cannot be read."""
    with naming(path), Path(path).open("rb") as file:
        return compression_of(file.read(HEAD_BYTES))


def compression_of(head: bytes) -> Compression:
    """The compression of data that starts with `head`, HEAD_BYTES of it or all."""
    rest = head
    while _is_skippable(rest) and len(rest) >= 8:  # zstd's and lz4's look alike
        rest = rest[8 + int.from_bytes(rest[4:8], "little") :]
    for name, codec in _CODECS.items():
        if rest.startswith(codec.magic):
            is_header = name != "bz2" or BZ2_HEADER.match(rest)
            return name if is_header else ""
    # Nothing but skippable frames in the head: zstd's, since pzstd writes them first.
    return "zst" if _is_skippable(head) else ""


def decompressed(file: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """Yield all of a compressed file in non-empty blocks; calls only `file.read`.

    Raises what `naming` turns into a DataError if the file is truncated or damaged, or if anything
    but members and padding is in it.
    """
    for _, block in members(file, compression):
        yield block


def members(
    file: BinaryIO, compression: Compression, before: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield blocks as `decompressed` does, from the position of an open file, each after the byte
    on disk at which its member starts. before: bytes of the file before that position."""
    codec = _CODECS[compression]
    packed = BlockFile(iter(lambda: file.read(READ_BYTES), b""))
    codec.skip_padding(packed)
    while start := packed.peek(len(codec.magic)):
        # A shorter start passes: the member is cut off, and reading it raises EOFError.
        if not codec.magic.startswith(start):
            raise OSError("other bytes than padding after the last good part")
        at = before + packed.tell()
        for block in codec.member(packed):
            yield at, block
        codec.skip_padding(packed)


class BlockFile:
    """Blocks with the interface of a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.position = 0
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

    def take(self, size: int) -> bytes:
        """Consume the next `size` bytes. Raises EOFError if fewer remain."""
        taken = self.read(size)
        if len(taken) < size:
            raise EOFError
        return taken

    def take_block(self) -> bytes:
        """Consume what is at hand, at least a byte. Raises EOFError if none remains."""
        if self.at == len(self.buffer):
            self.peek(1)
        return self.take(max(1, len(self.buffer) - self.at))

    def give_back(self, unused: bytes) -> None:
        """Undo the reading of the last bytes that were consumed."""
        self.at -= len(unused)  # still in the buffer: only the next `peek` replaces it
        self.position -= len(unused)

    def tell(self) -> int:
        """Bytes consumed."""
        return self.position


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
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again") from error
    except OSError as error:
        if error.errno is None:  # bz2 and lz4 have no exception of their own
            raise DataError(f"{path} is damaged ({error}); fetch it again") from error
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


# --- padding


def _skip_zeros(packed: BlockFile) -> int:
    """Skip zero bytes; returns how many there were."""
    zeros = 0
    while packed.peek(1) == b"\0":
        block = packed.take_block()
        rest = block.lstrip(b"\0")
        packed.give_back(rest)
        zeros += len(block) - len(rest)
    return zeros


def _skip_zeros_in_fours(packed: BlockFile) -> None:
    if _skip_zeros(packed) % 4:
        raise OSError("padding is not a multiple of four bytes")


def _skip_frames(packed: BlockFile) -> None:
    """Skip skippable frames, which have any content."""
    while _is_skippable(packed.peek(4)):
        left = int.from_bytes(packed.take(8)[4:], "little")
        while left:
            left -= len(packed.take(min(left, READ_BYTES)))


def _is_skippable(head: bytes) -> bool:
    """True if a frame of zstd or lz4 holds no content, as at the start of pzstd's files."""
    return head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F


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


def _gzip_member(packed: BlockFile) -> Iterator[bytes]:
    return _content(packed, _GzipDecompressor())


def _bzip2_stream(packed: BlockFile) -> Iterator[bytes]:
    return _content(packed, bz2.BZ2Decompressor())


def _xz_stream(packed: BlockFile) -> Iterator[bytes]:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_WINDOW_BYTES + _XZ_OVERHEAD)
    try:
        yield from _content(packed, stream)
    except lzma.LZMAError as error:
        if "Memory usage limit" in str(error):  # lzma has one exception for everything
            raise _WindowError("xz -9 or less") from error
        raise


def _content(packed: BlockFile, member: _Decompressor) -> Iterator[bytes]:
    """Yield what a decompressor makes of one member, and consume that."""
    while not member.eof:
        data = packed.take_block() if member.needs_input else b""
        if block := member.decompress(data, BLOCK_BYTES):  # bounded, whatever it expands to
            yield block
    packed.give_back(member.unused_data)


def _zst_frame(packed: BlockFile) -> Iterator[bytes]:
    """Yield a frame, a few of its blocks at a time, which bounds memory whatever they hold.

    zstandard's own reader accepts a truncated file, and expands 16 KB at once to 512 MiB. What
    stays is the frame's window.
    """
    # `_check_window` has the limit, with an error that names the option to use.
    frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    start = packed.take(5)
    flags = start[4]
    header = start + packed.take(_zst_header_bytes(flags))
    _check_window(header)
    frame.decompress(header)
    last = False
    while not last:
        blocks = b""
        for _ in range(_ZST_BLOCKS):
            header = packed.take(3)
            value = int.from_bytes(header, "little")
            last, kind, size = bool(value & 1), value >> 1 & 3, value >> 3  # RFC 8878, 3.1.1.2
            blocks += header + packed.take(1 if kind == _ZST_RUN else size)
            if last:
                blocks += packed.take(4 if flags & _ZST_CHECKSUM else 0)
                break
        if block := frame.decompress(blocks):
            yield block


def _zst_header_bytes(flags: int) -> int:
    """Bytes of a frame's header after its flags: window, dictionary's id, size of the content."""
    alone = flags >> 5 & 1  # then there is no window, and always a size
    return 1 - alone + (0, 1, 2, 4)[flags & 3] + (alone, 2, 4, 8)[flags >> 6]


def _check_window(head: bytes) -> None:
    """Raise if a zstd frame needs too large a window; head: up to the end of its header."""
    frame = zstandard.get_frame_parameters(head)
    size = frame.window_size
    if frame.content_size not in (0, zstandard.CONTENTSIZE_UNKNOWN):
        size = min(size, frame.content_size)  # a short frame cannot look back further
    if size > MAX_WINDOW_BYTES:
        raise _WindowError("zstd --long=27 or without --long")


def _lz4_frame(packed: BlockFile) -> Iterator[bytes]:
    """Yield a frame. Its end is found here: fastwarc takes a file that is cut off between two
    blocks as complete, and refuses skippable frames."""
    parts = _lz4_parts(packed)
    frame = Lz4Reader(cast(BinaryIO, BlockFile(parts)))
    yield from iter(lambda: frame.read(_LZ4_BYTES), b"")
    # fastwarc may leave the end mark unread, and the next frame starts after it.
    for _ in parts:
        pass


def _lz4_parts(packed: BlockFile) -> Iterator[bytes]:
    """The bytes of a frame as they are in the file: header, blocks, end mark."""
    start = packed.take(5)
    flags = start[4]
    optional = 8 * bool(flags & _LZ4_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY)
    yield start + packed.take(2 + optional)  # block sizes; a checksum of the header
    while size := int.from_bytes(packed.peek(4), "little"):  # 0 is the end mark
        size &= 0x7FFFFFFF  # without the flag of a block that is not compressed
        if size > _LZ4_BLOCK_BYTES:  # damage: `take` would read up to 2 GiB
            raise OSError("a block of impossible size")
        yield packed.take(4 + size + 4 * bool(flags & _LZ4_BLOCK_CHECKSUM))
    yield packed.take(4 + 4 * bool(flags & _LZ4_CHECKSUM))


@dataclass(frozen=True, slots=True)
class _Codec:
    """A compression; see the top of the file."""

    magic: bytes
    """The first bytes of every member."""
    member: Callable[[BlockFile], Iterator[bytes]]
    """Yields the content of the member that is next in a file, and consumes all of it."""
    skip_padding: Callable[[BlockFile], object]


_CODECS: dict[Compression, _Codec] = {
    "gz": _Codec(b"\x1f\x8b", _gzip_member, _skip_zeros),
    "bz2": _Codec(b"BZh", _bzip2_stream, _skip_zeros),
    "xz": _Codec(b"\xfd7zXZ\x00", _xz_stream, _skip_zeros_in_fours),
    "zst": _Codec(b"\x28\xb5\x2f\xfd", _zst_frame, _skip_frames),
    "lz4": _Codec(b"\x04\x22\x4d\x18", _lz4_frame, _skip_frames),
}
MAGIC: dict[Compression, bytes] = {name: codec.magic for name, codec in _CODECS.items()}
"""The first bytes of the members of each format."""
