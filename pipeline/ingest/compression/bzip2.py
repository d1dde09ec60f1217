"""Blocks of a bzip2 file from any place on, so that several processes can share a file.

A block holds up to 900 kB of text and has its own checksum. It starts at any bit, with 48 bits that
are always the same.

1. Find these marks, and those of stream ends, at any bit (`_Marks`).
2. Wrap the bits from one mark to the next as a stream of one block, and decompress that.
3. If it fails, try up to the mark after it: 48 bits also occur by chance (once in 30 TB).
4. After a stream's end only zeros, another stream or the end of the file may follow.
"""

from __future__ import annotations

import bz2
import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import BinaryIO

_BLOCK, _END = 0x314159265359, 0x177245385090  # marks of a block and of a stream's end
_MARK_BITS, _CHECKSUM_BITS = 48, 32
_HEADER_BYTES = 4  # a stream's header: BZh and a digit
_STREAM_STARTS = {
    b"BZh%d" % level + mark.to_bytes(_MARK_BITS // 8, "big")
    for level in range(1, 10)
    for mark in (_BLOCK, _END)
}
_ZEROS = re.compile(rb"\0*")
_STEP = 1 << 20  # bytes read at once
_MOST = 4 << 20  # bytes of a compressed block, far more than it can have

# For each bit at which a mark can start, five bytes of it that are whole.
_INSIDE = tuple(
    (mark, shift, (mark >> shift & (1 << 40) - 1).to_bytes(5, "big"))
    for mark in (_BLOCK, _END)
    for shift in range(8)
)


def bzip2_blocks(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the byte where a block starts and its content, for blocks that start from `start` on.

    Raises OSError if a block is damaged, or if anything but streams and zero bytes between them is
    in the file, and EOFError if it ends in a stream, as `codecs.decompressed` does.
    """
    marks = _Marks(file, start)
    is_first = start > 0  # until a block is found, what looks like a mark may not be one
    if not is_first and not marks.start_stream(0):
        return
    while (mark := marks.get(0)) is not None:
        bit, is_block = mark
        if not is_block and is_first:
            marks.drop(1)
            continue
        # 4. A stream's last byte is padded, and the next one starts at a whole byte.
        if not is_block:
            if not marks.start_stream(-(-(bit + _MARK_BITS + _CHECKSUM_BITS) // 8)):
                return
            continue
        # 2. and 3.
        number, content = 1, None
        while content is None and (after := marks.get(number)) is not None:
            # A damaged block would be tried up to every later mark: quadratic time in the file.
            if after[0] - bit > 8 * _MOST:
                break
            content = _decompress_block(marks.bits(bit, after[0]), after[0] - bit)
            number += 1
        if content is not None:
            marks.drop(number - 1)
            is_first = False
            yield bit // 8, content
        elif is_first:
            marks.drop(1)
        else:
            _decompress(*marks.rest(bit))  # raises OSError if it is damaged
            raise EOFError
    if not is_first:
        raise EOFError


class _Marks:
    """The marks of a file in order, each with the bit where it starts."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self.file = file
        file.seek(start)
        self.data = bytearray()
        self.base = start  # byte of the file where `data` starts
        self.searched = start  # marks that start before this byte are found
        self.found: list[tuple[int, bool]] = []
        self.is_over = False

    def get(self, number: int) -> tuple[int, bool] | None:
        """Mark `number` of those that are left: its bit, and whether it begins a block."""
        while len(self.found) <= number and self._grow():
            pass
        return self.found[number] if number < len(self.found) else None

    def drop(self, number: int) -> None:
        """Forget the first marks, and the bytes before those that are left."""
        del self.found[:number]
        self._forget(self.found[0][0] // 8 if self.found else self.searched - 1)

    def _forget(self, byte: int) -> None:
        """Forget what is before a byte, but keep the last byte that was searched."""
        keep = max(self.base, min(byte, self.searched - 1))
        del self.data[: keep - self.base]
        self.base = keep

    def bits(self, start: int, stop: int) -> int:
        """Bits [start, stop) of the file as a number."""
        first, last = start // 8, -(-stop // 8)
        value = int.from_bytes(self.data[first - self.base : last - self.base], "big")
        return value >> (8 * last - stop) & (1 << (stop - start)) - 1

    def rest(self, bit: int) -> tuple[int, int]:
        """The bits read from `bit` on, as a number, and how many they are."""
        stop = 8 * (self.base + len(self.data))
        return self.bits(bit, stop), stop - bit

    def start_stream(self, at: int) -> bool:
        """Go to the first mark of the stream at byte `at`, or after zeros; False if none follows.

        Raises OSError if anything else is there, and EOFError if the file ends before or in it.
        """
        while (end := self.base + len(self.data)) < at and self._grow():
            pass
        if end < at:
            raise EOFError
        zeros = _ZEROS.match(self.data, at - self.base)
        while zeros and zeros.end() == len(self.data) and self._grow():
            at = self.base + zeros.end()
            self._forget(at)
            zeros = _ZEROS.match(self.data, at - self.base)
        at = self.base + (zeros.end() if zeros else 0)
        while self.searched <= at + _HEADER_BYTES and self._grow():
            pass
        begin = at - self.base
        head = bytes(self.data[begin : begin + _HEADER_BYTES + _MARK_BITS // 8])
        if head and head not in _STREAM_STARTS:
            if any(start.startswith(head) for start in _STREAM_STARTS):
                raise EOFError
            raise OSError("Invalid data after a stream")
        self.drop(bisect_left(self.found, (8 * (at + _HEADER_BYTES), False)))
        return bool(head)

    def _grow(self) -> bool:
        if self.is_over:
            return False
        more = self.file.read(_STEP)
        self.is_over = not more
        self.data += more
        end = self.base + len(self.data)
        stop = max(self.searched, end - (0 if self.is_over else 8))  # a mark is in at most 7 bytes
        for mark, shift, inside in _INSIDE:
            at = self.data.find(inside, self.searched - self.base)
            while at >= 0:
                # The mark starts in the byte before its five whole ones, hence `_forget` keeps one
                # more.
                bit = 8 * (self.base + at - 1) + shift
                if (
                    self.searched <= bit // 8 < stop
                    and bit + _MARK_BITS <= 8 * end
                    and self.bits(bit, bit + _MARK_BITS) == mark
                ):
                    self.found.append((bit, mark == _BLOCK))
                at = self.data.find(inside, at + 1)
        self.found.sort()  # sixteen patterns were searched one after another
        self.searched = stop
        return not self.is_over


def _decompress_block(value: int, bits: int) -> bytes | None:
    """The content of a block of so many bits; None if it is not one whole block."""
    if bits < _MARK_BITS + _CHECKSUM_BITS:
        return None
    checksum = value >> (bits - _MARK_BITS - _CHECKSUM_BITS) & (1 << _CHECKSUM_BITS) - 1
    # The combined checksum of a stream of one block is that block's own.
    value = (value << _MARK_BITS | _END) << _CHECKSUM_BITS | checksum
    try:
        return _decompress(value, bits + _MARK_BITS + _CHECKSUM_BITS)
    except OSError:
        return None


def _decompress(value: int, bits: int) -> bytes | None:
    """The content of a stream without header; None if it does not end. OSError if damaged."""
    padding = -bits % 8
    stream = bz2.BZ2Decompressor()
    packed = (value << padding).to_bytes((bits + padding) // 8, "big")
    content = stream.decompress(b"BZh9" + packed)  # 9 is the largest block size, so it fits any
    return content if stream.eof else None
