"""Whether a file still is what was read: size and modification time first, then hashes of content.

A reader hashes the bytes of a piece as it takes them: each piece leaves a `ReadSpan`. A file whose
size and modification time are those of its `Source` is taken as unchanged. Otherwise its spans are
hashed again: a copy or a fresh download of the same content is the same file.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import xxhash

from pipeline.base.errors import DataError
from pipeline.data.compression.codecs import BLOCK_BYTES, decompressed, naming
from pipeline.data.documents.arrow_tables import batch_span
from pipeline.data.documents.byte_blocks import CountedFile, plain_blocks
from pipeline.data.documents.parquet import extraction_content, group_span
from pipeline.data.documents.records import EXTRACTED, Piece, ReadSpan, Source


def finish_reading(piece: Piece) -> None:
    """Hash what a reader that takes no blocks has read: row groups of tables."""
    source, reading = piece.source, piece.reading
    if reading is None or reading.size:
        return
    if source.format == EXTRACTED:
        reading.extraction = _raw_hash(source)
        return
    start, stop = piece.start, piece.stop
    if source.format == "parquet":
        start, stop = group_span(source.path, range(start, stop))
    elif source.format == "arrow":
        start, stop = batch_span(source.path, range(start, stop))
    reading.start = start
    for block in _span_blocks(source.path, start, stop):
        reading.take(block)


def watched(piece: Piece) -> Iterator[bytes]:
    """`watched_from` the start of the piece."""
    return watched_from(piece, piece.start, piece.stop)


def watched_from(piece: Piece, start: int, stop: int) -> Iterator[bytes]:
    """The blocks that `read_blocks` yields, for a piece; they are hashed for its `reading`.

    Raises DataError if the file does not end where it did when it was found.
    """
    source, reading = piece.source, piece.reading
    with naming(source.path), Path(source.path).open("rb") as file:
        if source.compression:
            raw = CountedFile(file, reading.take if reading else None)
            yield from decompressed(cast(BinaryIO, raw), source.compression)
            end = raw.taken
        else:
            file.seek(start)
            end = start
            if reading:
                reading.start = start
            for block in plain_blocks(file, stop - start):
                end += len(block)
                if reading:
                    reading.take(block)
                yield block
    if end != source.size:
        raise DataError(
            f"{source.path} changed while it was read: {end:,} bytes, {source.size:,} when the "
            "command started; rerun when nothing writes to it"
        )


State = tuple[int, int]
"""Size and modification time in nanoseconds: what tells at once that a file may have changed.

Of a group of files: the sum of sizes, and a hash of all the times.
"""


def found_state(source: Source) -> State:
    """The state of a file when it was found."""
    return source.size, source.mtime_ns


def state_now(source: Source) -> State:
    """The state of a file at this moment. Raises DataError if it is gone."""
    return joint_state([state_of(path) for path in source.paths])


def state_of(path: str) -> State:
    """The state of the file at a path. Raises DataError if there is none."""
    with naming(path):
        now = Path(path).stat()
    return now.st_size, now.st_mtime_ns


def joint_state(states: list[State]) -> State:
    """The state of a group of files; of one file its own."""
    if len(states) == 1:
        return states[0]
    times = array("q", [mtime for _, mtime in states])
    return sum(size for size, _ in states), xxhash.xxh3_64_intdigest(times.tobytes())


def changed_files(sources: Iterable[Source]) -> list[Source]:
    """The files whose state is not the one in which they were found."""
    return [source for source in sources if state_now(source) != found_state(source)]


def has_content(source: Source, spans: Iterable[ReadSpan]) -> bool:
    """Whether a file holds the bytes that were read earlier; spans: all of this file."""
    return all(_hash_span(source, span.start, span.stop) == span.xxh3_64 for span in spans)


def _hash_span(source: Source, start: int, stop: int) -> str:
    if source.format == EXTRACTED:
        return _raw_hash(source)
    return hash_bytes(source.path, start, stop)


def _raw_hash(source: Source) -> str:
    """One hash of what was extracted to a file."""
    hashes = extraction_content(source.path)
    return hashes[0] if len(hashes) == 1 else xxhash.xxh3_64_hexdigest("".join(hashes).encode())


def hash_bytes(path: str, start: int, stop: int) -> str:
    """xxh3_64 of the bytes [start, stop) of a file, 16 hex digits."""
    digest = xxhash.xxh3_64()
    for block in _span_blocks(path, start, stop):
        digest.update(block)
    return digest.hexdigest()


def _span_blocks(path: str, start: int, stop: int) -> Iterator[bytes]:
    with naming(path), Path(path).open("rb") as file:
        file.seek(start)
        while start < stop and (block := file.read(min(BLOCK_BYTES, stop - start))):
            start += len(block)
            yield block
