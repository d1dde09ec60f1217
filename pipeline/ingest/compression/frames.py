"""Where a compressed file can be read from the middle: its frames.

A frame is a part that is decompressed without those before it: a member of gzip, a frame of zstd,
a block of bzip2. Files that were put together, or written in parallel, have many.

1. `frames_from` reads a file from one of its frames on.
2. `guess_frame` finds where a frame seems to start. The same bytes can stand in compressed data by
   chance, so a guess is used only if the frames before it end there.
3. `FrameIndex` has a frame for each few megabytes of content, and where its content starts in that
   of the whole file.
"""

from __future__ import annotations

import functools
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from pipeline.base.errors import DataError
from pipeline.ingest.compression.bzip2 import bzip2_blocks
from pipeline.ingest.compression.codecs import MAGIC, Compression, members, naming

FRAMES_VERSION = 1
"""Increase it when files are cut at other places, which gives other rows."""
FRAMED: tuple[Compression, ...] = ("gz", "zst", "bz2")
STEP_BYTES = 4 << 20
"""Content between two entries of an index, at least."""
_FIRST_BYTES = 4 << 20
"""Start of a file on disk: if no second frame starts in it, the file counts as one frame."""
_SEARCH_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
FRAMES_SCHEMA = pa.schema([("disk", pa.int64()), ("size", pa.int64()), ("ends_line", pa.bool_())])
"""Runs of frames: where the first starts on disk, the bytes that they hold, and whether these end
in a newline."""


def frames_from(
    file: BinaryIO, compression: Compression, start: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the content from the frame at byte `start` on, in non-empty blocks, each after the byte
    at which its frame starts."""
    if compression == "bz2":
        yield from bzip2_blocks(file, start)
    else:
        file.seek(start)
        yield from members(file, compression, start)


def guess_frame(file: BinaryIO, compression: Compression, start: int, stop: int) -> int | None:
    """The first byte in [start, stop) at which a frame seems to start."""
    if compression == "bz2":
        with suppress(*_DAMAGE):
            at = next((at for at, _ in bzip2_blocks(file, start)), stop)  # yields whole blocks only
            return at if at < stop else None
        return None
    magic = MAGIC[compression]
    while start < stop:
        file.seek(start)
        data = file.read(_SEARCH_BYTES)
        at = data.find(magic)
        while at >= 0 and start + at < stop:
            with suppress(*_DAMAGE):
                # Chance bytes rarely decompress to a first block, and `units` compares the guess.
                next(frames_from(file, compression, start + at), None)
                return start + at
            at = data.find(magic, at + 1)
        if len(data) < len(magic):
            return None
        start += len(data) - len(magic) + 1  # overlaps: the magic may lie across two reads
    return None


@functools.lru_cache(maxsize=1 << 16)
def has_frames(path: str, compression: Compression, state: tuple[int, int]) -> bool:
    """True if a file starts with several frames; state: the file's, since answers are cached."""
    if compression not in FRAMED:
        return False
    with naming(path), Path(path).open("rb") as file:
        head = io.BytesIO(file.read(_FIRST_BYTES))
        first = -1
        with suppress(*_DAMAGE):
            for at, _ in frames_from(head, compression, 0):  # the head ends as a damaged file would
                if first >= 0 and at != first:
                    return True
                first = at
    return False


@dataclass(slots=True)
class FrameRuns:
    """The frames that start in a range of a file, in runs of at least STEP_BYTES."""

    begin: int | None = None
    """Start of the first frame in the range or after it; None: there is none."""
    end: int | None = None
    """Start of the first frame after the range; None: there is none."""
    table: pa.Table = field(default_factory=FRAMES_SCHEMA.empty_table)
    """The runs, with FRAMES_SCHEMA."""


def find_frames(
    path: str, compression: Compression, start: int, stop: int, *, is_sure: bool
) -> FrameRuns:
    """The frames that start in bytes [start, stop) of a file; is_sure: one starts at `start`."""
    found = FrameRuns()
    disk: list[int] = []
    sizes: list[int] = []
    ends_line: list[bool] = []
    last = -1
    with naming(path), Path(path).open("rb") as file:
        begin = start if is_sure else guess_frame(file, compression, start, stop)
        if begin is None:
            return found
        for at, block in frames_from(file, compression, begin):
            if found.begin is None:
                found.begin = at
            if at >= stop:
                found.end = at  # compared with where the next range's frames begin
                break
            # A run never ends inside a frame, which cannot be read from its middle.
            if not disk or (at != last and sizes[-1] >= STEP_BYTES):
                disk.append(at)
                sizes.append(0)
                ends_line.append(False)
            last = at
            sizes[-1] += len(block)
            ends_line[-1] = block.endswith(b"\n")
    found.table = pa.table([disk, sizes, ends_line], FRAMES_SCHEMA)
    return found


@dataclass(frozen=True, slots=True)
class FrameIndex:
    """Runs of frames of a whole file, in order."""

    disk: npt.NDArray[np.int64]
    """[runs] the byte on disk where each starts."""
    content: npt.NDArray[np.int64]
    """[runs + 1] where each starts in the content of the file, and the size of that."""
    starts_line: npt.NDArray[np.bool_]
    """[runs] true if a line starts there, too."""

    @classmethod
    @functools.lru_cache(maxsize=64)
    def read(cls, path: str) -> FrameIndex:
        """The index in a file of FRAMES_SCHEMA. Raises DataError if it cannot be read."""
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is missing or damaged; remove it and run again") from error
        disk, sizes, ends_line = (table[name].to_numpy() for name in FRAMES_SCHEMA.names)
        content = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        # A run starts a line if the run before it ended one.
        return cls(disk, content, np.concatenate([[True], ends_line[:-1]]))

    def place_of(self, position: int) -> tuple[int, int]:
        """Where the frame starts on disk that gives a byte of the content, or one before it, and
        the content to skip."""
        run = self._run_of(position)
        return int(self.disk[run]), position - int(self.content[run])

    def starts_line_at(self, position: int) -> bool:
        """True if both a run and a line start there."""
        run = self._run_of(position)
        return bool(self.content[run] == position and self.starts_line[run])

    def _run_of(self, position: int) -> int:
        # Ascending from 0, as blocks are never empty: there is a run for every position.
        return int(np.searchsorted(self.content[:-1], position, "right")) - 1

    def cuts(self, piece_bytes: int) -> list[int]:
        """The runs at which pieces of at least `piece_bytes` of content start, and their number."""
        cuts = [0]
        for run in range(1, len(self.disk)):
            if self.content[run] - self.content[cuts[-1]] >= piece_bytes:
                cuts.append(run)
        return [*cuts, len(self.disk)]
