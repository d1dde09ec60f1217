"""The bytes of a raw file: its blocks, decompressed, and where its lines start.

A truncated or damaged file raises a DataError with its name. Memory is a few blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from pipeline.ingest.compression.codecs import (
    BLOCK_BYTES,
    Compression,
    decompressed,
    naming,
)

PART_BYTES = 1 << 24
"""Size of the parts in which giant documents are decoded; War and Peace has 3.3 MB."""
OVERRUN_BYTES = 1 << 16  # per read past the requested range, to finish its last record
_AGAIN_BYTES = 1 << 24
"""Longest line that Python's parser gets, which takes a dozen times its size in memory."""
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\f\v"
_ONLY_IN_PYTHON = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
"""Marks of JSON that Python's parser may accept and orjson rejects."""


def parse_again(line: bytes) -> Any:
    """Parse a line that `orjson.loads` rejected. Raises ValueError if it is invalid JSON.

    Accepts what orjson does not: a byte order mark, as in concatenated files, the NaN and Infinity
    that Python's json writes, which become None, and lone surrogates (`\\ud800`), which become "?".
    """
    line = line.removeprefix(BOM)
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # Ordinary damage ends here, without the slow parser.
        if len(line) > _AGAIN_BYTES or not _ONLY_IN_PYTHON.search(line):
            raise
    try:
        value = json.loads(line.decode(), parse_constant=lambda constant: None)
        # Encoded once more: a lone surrogate becomes "?", however deep it is nested.
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


class CountedFile:
    """A file that counts the bytes that were read from it, and can be decompressed."""

    def __init__(
        self,
        file: BinaryIO,
        take: Callable[[bytes], None] | None = None,
    ) -> None:
        """take: is shown all bytes in order."""
        self.file = file
        self.taken = 0
        self._take = take

    def read(self, size: int = -1) -> bytes:
        """Read as from the file."""
        block = self.file.read(size)
        self.taken += len(block)
        if self._take:
            self._take(block)
        return block

    def seek(self, position: int) -> int:
        """Read on from there."""
        return self.file.seek(position)


def plain_blocks(file: BinaryIO, wanted: int) -> Iterator[bytes]:
    """Yield `wanted` bytes of an open file, then the rest of it in small blocks.

    The first blocks are small, too: a sample of a file ends soon.
    """
    size = min(OVERRUN_BYTES, BLOCK_BYTES)
    while wanted > 0 and (block := file.read(min(size, wanted))):
        wanted -= len(block)
        yield block
        size = min(size + size // 2, BLOCK_BYTES)
    size = OVERRUN_BYTES
    # Past the piece, usually only the end of one record is wanted.
    while block := file.read(size):
        yield block
        size = min(2 * size, BLOCK_BYTES)


def first_line_start(path: str, position: int) -> int:
    """Start of the first line at or after `position` of an uncompressed file."""
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
    """True if the line before the one at `line` is blank, or the file starts there."""
    end = line - 1  # the newline between them
    with Path(path).open("rb") as file:
        while end > 0:
            start = end - OVERRUN_BYTES
            start = start if start > len(BOM) else 0  # or the read would begin inside the mark
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


def parts_of(document: bytes) -> Iterator[tuple[int, bytes]]:
    """A document and 0; of a giant one parts of at most PART_BYTES, and where they start.

    A decoded text can take four times its bytes. Parts end at a blank line, else at a line, else
    between characters.
    """
    start = 0
    while len(document) - start > PART_BYTES:
        most = start + PART_BYTES
        for mark in (b"\n\n", b"\n", b" "):
            # In the last quarter, so that parts stay large.
            if (last := document.rfind(mark, most - PART_BYTES // 4, most)) >= 0:
                stop = last + len(mark)
                break
        else:
            stop = most
            while stop > most - 3 and document[stop] >> 6 == 0b10:  # inside a character of UTF-8
                stop -= 1
        yield start, document[start:stop]
        start = stop
    yield start, document[start:] if start else document
