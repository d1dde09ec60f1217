"""The bytes of a raw file: its blocks, decompressed, and where its lines start.

A truncated or damaged file raises a DataError with its name. Memory is a few blocks.
"""

from __future__ import annotations

import json
import re
from collections import deque
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
from pipeline.kernels.characters import INVISIBLE, SPACES

PART_BYTES = 1 << 24
"""Size of the parts in which giant documents are decoded; War and Peace has 3.3 MB."""
OVERRUN_BYTES = 1 << 16  # per read past the requested range, to finish its last record
_AGAIN_BYTES = 1 << 24
"""Longest line that Python's parser gets, which takes a dozen times its size in memory."""
BOM = b"\xef\xbb\xbf"


def _blank_pattern() -> bytes:
    """A pattern of one character that cleaning takes for a space or removes, such as U+200B."""
    codes = {*range(0x80, 0xA0), *SPACES}
    for ranges in INVISIBLE.values():
        codes.update(*(range(first, last + 1) for first, last in ranges))
    ends: dict[bytes, bytes] = {}
    for character in (chr(code).encode() for code in sorted(codes)):
        ends[character[:-1]] = ends.get(character[:-1], b"") + character[-1:]
    more = [re.escape(start) + b"[" + re.escape(last) + b"]" for start, last in ends.items()]
    return b"(?:" + b"|".join([rb"[\x00-\x09\x0b-\x20\x7f]", *more]) + b")"


BLANK = _blank_pattern()
_BLANK_LINE = re.compile(BLANK + b"*")
_CONTINUED = bytes(range(0x80, 0xC0))  # what continues a character of UTF-8
_LONE_CR = re.compile(rb"\r(?!\r?\n)")
_MORE_ENDS = (b"\v", b"\f", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
_CONTEXT = 2
"""Bytes before and after a byte that decide whether it ends a line."""
_UNFINISHED = (b"\r", b"\xc2", b"\xe2", b"\xe2\x80")
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


def with_newlines(content: bytes, *, of_text: bool) -> bytes:
    """The content with a newline at each end of a line, at the same positions.

    A CR without LF ends a line. of_text: VT, FF, NEL, U+2028 and U+2029 do as well, as in cleaning;
    in JSON they can be part of a string. CR LF stays, as CR is blank.
    """
    if b"\r" in content:
        content = _LONE_CR.sub(b"\n", content)
    if of_text:
        for end in _MORE_ENDS:
            if end[-1:] in content:  # a byte is found five times as fast as two or three
                content = content.replace(end, b"\n".rjust(len(end)))
    return content


def blocks_with_newlines(blocks: Iterator[bytes], *, of_text: bool) -> Iterator[bytes]:
    """The same blocks of a file with a newline at each end of a line, see `with_newlines`."""
    before, ahead = b"", deque[bytes]()
    while block := ahead.popleft() if ahead else next(blocks, b""):
        around = before + block[-_CONTEXT:]
        if around.endswith(_UNFINISHED):  # else nothing is read ahead: readers stop early
            while sum(map(len, ahead)) < _CONTEXT and (more := next(blocks, b"")):
                ahead.append(more)
        if of_text or b"\r" in block:
            context = before + block + b"".join(ahead)[:_CONTEXT]
            yield with_newlines(context, of_text=of_text)[len(before) :][: len(block)]
        else:
            yield block
        before = around[-_CONTEXT:]


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


def first_line_start(path: str, position: int, *, of_text: bool = False) -> int:
    """Start of the first line at or after `position` of an uncompressed file.

    of_text: as for `with_newlines`.
    """
    if position == 0:
        return 0
    # With a newline just before it, a line starts at the position itself.
    skipped = min(position - 1, _CONTEXT)
    position -= 1 + skipped
    blocks = read_blocks(path, "", position, position)
    for block in blocks_with_newlines(blocks, of_text=of_text):
        newline = block.find(b"\n", skipped)
        if newline >= 0:
            return position + newline + 1
        position += len(block)
        skipped = max(0, skipped - len(block))
    return position


def follows_blank_line(path: str, line: int) -> bool:
    """True if the line before the one at `line` is blank, or the file starts there."""
    end, size = line - 1, OVERRUN_BYTES  # the newline between them
    with Path(path).open("rb") as file:
        while True:
            start = end - size
            start = start if start > len(BOM) else 0  # or the read would begin inside the mark
            file.seek(start)
            text = with_newlines(file.read(end - start + 1 + _CONTEXT), of_text=True)
            text = text[: max(0, end - start)]
            text = text.lstrip(_CONTINUED) if start else text.removeprefix(BOM)
            before = text.rfind(b"\n") + 1
            if not _BLANK_LINE.fullmatch(text, before):
                return False
            if before or not start:
                return True
            size *= 2  # a blank line that is longer than that


def count_lines(path: str, end: int, *, of_text: bool = False) -> int:
    """Lines that end before position `end` of an uncompressed file; of_text: as above."""
    lines = 0
    for block in blocks_with_newlines(read_blocks(path, "", 0, end), of_text=of_text):
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
