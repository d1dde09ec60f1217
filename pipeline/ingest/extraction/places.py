"""Where records start on disk, and the blocks of a file from any such place on.

A place is a byte on disk and an offset in what is decompressed from there. The blocks of a file are
the same wherever reading starts, so every process names a record's place alike. Plain files are
read from any byte on; what a compressed one holds is known only from the start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.ingest.compression.codecs import BLOCK_BYTES, Compression, decompressed, naming
from pipeline.ingest.documents.byte_blocks import CountedFile

Place = tuple[int, int]
"""The byte on disk where a block starts, and an offset in the block."""
START: Place = (0, 0)
END: Place = (sys.maxsize, 0)
"""The place after the last record."""


@dataclass(slots=True)
class Block:
    """Decompressed bytes; byte i of them has the place (position, offset + i)."""

    position: int
    offset: int
    content: bytes

    def after(self, offset: int) -> Block:
        """The block without its first bytes."""
        return Block(self.position, self.offset + offset, self.content[offset:])


def starts_anywhere(compression: Compression) -> bool:
    """True if files are read from any byte on."""
    return not compression


def blocks_from(path: str, compression: Compression, place: Place) -> Iterator[Block]:
    """Yield the non-empty blocks of a file from a place on; see `naming` for errors."""
    with naming(path), Path(path).open("rb") as file:
        for block in _blocks(file, compression, place[0]):
            if block.position == place[0] and block.offset < place[1]:
                block = block.after(place[1] - block.offset)
            if block.content:
                yield block


def _blocks(file: BinaryIO, compression: Compression, start: int) -> Iterator[Block]:
    if compression:
        counted, position, size = CountedFile(file), 0, 0
        for content in decompressed(cast(BinaryIO, counted), compression):
            yield Block(position, size, content)
            position, size = counted.taken, size + len(content)
    else:
        # Blocks are at multiples of their size wherever reading starts, so places are always the
        # same.
        position = -(-start // BLOCK_BYTES) * BLOCK_BYTES
        file.seek(position)
        while content := file.read(BLOCK_BYTES):
            yield Block(position, 0, content)
            position += len(content)
