"""Checks that a file still is what was read of it: one answer for all stages.

1. A file is found in a state: its size and modification time (`Source.state`). Fingerprints cover
   its size and its ends (`file_identity`); the next steps find other changes.
2. A task starts in that state, or in one that holds what finished tasks have read (`reading`).
3. The bytes of a piece are hashed once, as they are read (`Piece.blocks`). Tables give no blocks:
   their bytes are hashed when they are recorded.
4. Before anything is recorded, and when the task ends, the state must be the one of step 2
   (`unchanged`). So nothing that survives a kill is made of two states of a file.
5. What is finished keeps a `ReadSpan` of each piece: the bytes, their hash and the file's state.
6. What builds on it compares (`compare`): a run that resumes, the process that publishes, a
   later command that finds the shards complete. In the recorded state a file passes. In another
   state its spans are hashed again: equal content costs no work, other content is refused. A run
   that resumes takes the state of step 1, so no part of an array asks for all files once more.
7. The raw file of an extracted one is compared at the same times (`identify`). The extracted file
   keeps only hashes, so that equal raw files give equal files. The states that are known to have
   this content are kept next to it, so each is hashed once.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.ingest.compression.codecs import naming
from pipeline.ingest.documents.parquet import extracted_hash, extraction_content
from pipeline.ingest.documents.read import span_of
from pipeline.ingest.documents.records import (
    EXTRACTED,
    Piece,
    PieceReading,
    ReadSpan,
    Source,
    State,
)

CHANGED = "{} changed while it was read; rerun when nothing writes to it"


def state_of(source: Source) -> State:
    """The state of a file now; of a group: see `joint_state`. DataError if gone."""
    return joint_state([_stat(path) for path in source.paths])


def found_state(source: Source) -> State:
    """The state in which a file was found."""
    return source.state


def joint_state(states: list[State]) -> State:
    """The state of one file, or of a group: the sum of sizes, a hash of times."""
    if len(states) == 1:
        return states[0]
    times = array("q", [mtime for _, mtime in states])
    return sum(size for size, _ in states), xxhash.xxh3_64_intdigest(times.tobytes())


def _stat(path: str) -> State:
    with naming(path):
        now = Path(path).stat()
    return now.st_size, now.st_mtime_ns


@contextmanager
def unchanged(sources: list[Source]) -> Iterator[Callable[[], None]]:
    """Step 4; yields its check. Raises DataError if a file changes, whatever fails with it."""
    before = {path: _stat(path) for source in sources for path in source.paths}
    for source in sources:
        # 2. It changed between being found and now.
        if sum(before[path][0] for path in source.paths) != source.size:
            raise DataError(CHANGED.format(source.path))

    def check(error: Exception | None = None) -> None:
        for path, state in before.items():
            if _stat(path) != state:
                raise DataError(CHANGED.format(path)) from error

    try:
        yield check
    except (DataError, OSError) as error:
        check(error)  # a change explains the error better than the error itself
        raise
    check()


@contextmanager
def reading(
    pieces: tuple[Piece, ...], accept: Callable[[Source], object] = lambda source: None
) -> Iterator[tuple[tuple[Piece, ...], Callable[[], list[ReadSpan]]]]:
    """Steps 2 to 5. Yields the pieces to read, and what gives their spans so far, to be recorded.

    accept: raises DataError if a file that is not as it was found has other content.
    """
    sources = list(dict.fromkeys(piece.source for piece in pieces))
    for source in sources:
        _compare_raw(source)
        if state_of(source) != source.state:
            accept(source)
    # 3. One for each piece, filled by its `blocks`.
    readings = [PieceReading() for _ in pieces]
    with unchanged(sources) as check:

        def spans() -> list[ReadSpan]:
            check()
            states = [state_of(piece.source) for piece in pieces]
            found = zip(pieces, readings, states)
            return [span_of(piece, read, state) for piece, read, state in found]

        yield tuple(replace(piece, reading=read) for piece, read in zip(pieces, readings)), spans


def compare(
    sources: list[Source], spans: Iterable[ReadSpan], output: Path, *, as_found: bool = False
) -> list[Source]:
    """Step 6, for what is in `output`. Returns the files that are not as they were found.

    as_found: take each file to be in that state. Raises DataError if one, or its raw file, has
    other content than was read of it.
    """
    state = found_state if as_found else state_of
    index: dict[tuple[str, str], list[ReadSpan]] = {}
    for span in spans:
        index.setdefault((span.corpus, span.file), []).append(span)
    for source in sources:
        if not as_found:
            _compare_raw(source)
        if not has_content(source, index.get((source.corpus, source.name), []), state):
            raise DataError(
                f"{(source.raw or source).path} has changed since {output} was made from it; "
                "restore it, or name another --output to prepare it as it is now"
            )
    return [source for source in sources if state(source) != source.state]


def has_content(
    source: Source, spans: Iterable[ReadSpan], state: Callable[[Source], State] = state_of
) -> bool:
    """True if a file holds the bytes that were read of it; state: gives the one it is in."""
    now = state(source)
    # The hash is only taken if the state is another: it reads the span once more.
    return now[0] == source.size and all(
        span[-2:] == now or span.xxh3_64 == _hash(source, span.start, span.stop) for span in spans
    )


def _hash(source: Source, start: int, stop: int) -> str:
    """Hash of the bytes [start, stop) of a file; of an extracted one, of all its raw files."""
    if source.format != EXTRACTED:
        return PieceReading().take_file(source.path, start, stop).digest
    return extracted_hash(source.path)


class RawContent(NamedTuple):
    """xxh3_64 of a raw file, or of the files of a group, and their states."""

    hashes: list[str]
    states: list[list[object]]


def placed_state(source: Source) -> list[object]:
    """Path, size and modification time in nanoseconds, at this moment."""
    return [source.path, *state_of(source)]


def _compare_raw(source: Source) -> None:
    """Step 7, unless the raw file is not here: a published one may be removed."""
    raw = source.raw
    if raw and (not raw.published or Path(raw.path).exists()) and state_of(raw) != raw.state:
        identify(raw, Path(source.path))


def is_known(source: Source, target: Path) -> bool:
    """True if `identify` need not read the file as it was found; target: the file that is
    extracted from it."""
    return [source.path, *source.state] in known_content(target).states


def identify(source: Source, target: Path) -> RawContent:
    """Step 7: the content of a raw file, which is hashed if its state is new.

    Raises DataError if `target` was extracted from other content.
    """
    known = known_content(target)
    if placed_state(source) in known.states:
        return known
    # 7. States are taken before the hashes, and must still hold after them.
    with unchanged([source]):
        states = [placed_state(source)]
        hashes = [PieceReading().take_file(path).digest for path in source.paths]
    made_of = extraction_content(str(target)) if target.exists() else hashes
    for path, now, before in zip(source.paths, hashes, made_of, strict=True):
        if now != before:
            raise DataError(
                f"{path} has changed since it was extracted to {target}; restore it, or remove "
                f"{target} and name another --output to prepare it as it is now"
            )
    # States in which the file had other content must not pass later.
    content = RawContent(hashes, (known.states if known.hashes == hashes else []) + states)
    with suppress(OSError, DataError):  # the folder may be read-only
        write_whole(content_file(target), json.dumps(content).encode())
    return content


def content_file(target: Path) -> Path:
    """The file in which `identify` keeps what is known of an extracted file's raw file."""
    return target.with_name(f".{target.stem}.content.json")


def known_content(target: Path) -> RawContent:
    """The content that `identify` kept; empty if there is none, or none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        hashes, states = json.loads(content_file(target).read_bytes())
        return RawContent([*hashes], [*states])
    return RawContent([], [])
