"""Rows of values in few bytes, since a corpus can have a million files.

Python's objects for a file's path, name, size and time take half a kilobyte. The same as text,
column by column and compressed, takes about 40 bytes.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

BLOCK_ROWS = 1 << 12
"""Most rows of a queue that are Python objects at a time."""


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows of strings, numbers and None, all of one length. Strings need not be UTF-8."""
    # JSON in ASCII escapes lone surrogates, which stand for bytes of names that are not UTF-8.
    return zlib.compress(json.dumps([*zip(*rows)]).encode(), 1)


def unpack_rows(packed: bytes) -> Iterator[tuple[Any, ...]]:
    """The rows that were packed, as tuples."""
    return zip(*json.loads(zlib.decompress(packed)))


@dataclass(slots=True)
class RowQueue:
    """Rows that are added at the end, and read from the start, all of one length."""

    _blocks: deque[bytes] = field(default_factory=deque)
    _last: list[Sequence[Any]] = field(default_factory=list)

    def append(self, row: Sequence[Any]) -> None:
        """Add a row."""
        self._last.append(row)
        if len(self._last) == BLOCK_ROWS:
            self.pack()

    def pack(self) -> None:
        """Pack the last rows, too."""
        if self._last:
            self._blocks.append(pack_rows(self._last))
            self._last = []

    def __iter__(self) -> Iterator[Sequence[Any]]:
        self.pack()
        return itertools.chain.from_iterable(map(unpack_rows, self._blocks))

    def take(self) -> Iterator[Sequence[Any]]:
        """All rows, each of which is gone once it is read."""
        self.pack()
        while self._blocks:
            yield from unpack_rows(self._blocks.popleft())  # freed block by block, not at the end
