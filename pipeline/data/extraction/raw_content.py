"""Whether a raw file still holds what was extracted: its state first, then a hash of its bytes.

A file is hashed before it is extracted, and again whenever it is in a state (size and modification
time) that is new. Known states are kept beside the extracted file, so a state is hashed only once.
A unit is of use if it was extracted in a known state. A file in which a state changes while it is
read is an error. The extracted file keeps the hash alone: equal raw files give equal files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.data.documents.content import hash_bytes, joint_state, state_now, state_of
from pipeline.data.documents.parquet import extraction_content
from pipeline.data.documents.records import Source

PlacedState = tuple[str, int, int]
"""Path, size and modification time in nanoseconds."""


@dataclass(frozen=True, slots=True)
class RawContent:
    """The bytes of a raw file, or of the files of a group, and the states in which it has them."""

    hashes: list[str]
    """xxh3_64 of each file."""
    states: list[PlacedState]


def raw_file(source: Source) -> Source | None:
    """The raw file of an extracted one; None if it is not here, as with published files."""
    raw = source.raw
    return None if raw is None or (raw.published and not Path(raw.path).exists()) else raw


def must_be_hashed(source: Source, target: Path) -> bool:
    """Whether `identify` takes as long as reading the file; target: what is extracted from it."""
    known = _known(target)
    return not known or _placed(source) not in known.states


def identify(source: Source, target: Path) -> RawContent:
    """The content of a raw file; it is hashed if its state is new.

    Raises DataError if `target` was extracted from other content.
    """
    known = _known(target)
    if known and _placed(source) in known.states:
        return known
    with unchanged(source) as state:
        hashes = [hash_bytes(path, 0, sys.maxsize) for path in source.paths]
    if target.exists():
        _require_same(source, hashes, extraction_content(str(target)), target)
    before = known.states if known and known.hashes == hashes else []
    content = RawContent(hashes, [*before, state])
    with suppress(OSError, DataError):  # the folder may be read-only
        write_whole(_known_path(target), json.dumps([hashes, content.states]).encode())
    return content


def _require_same(source: Source, now: list[str], before: list[str], target: Path) -> None:
    if now != before:
        changed = (path for path, *two in zip(source.paths, now, before) if two[0] != two[1])
        raise DataError(
            f"{next(changed, source.path)} has changed since it was extracted to {target}; restore "
            f"it, or remove {target} and name another --output to prepare it as it is now"
        )


@contextmanager
def unchanged(source: Source) -> Iterator[PlacedState]:
    """The state of a file. Raises DataError if it changes in the block, whatever fails there."""
    before = [state_of(path) for path in source.paths]
    size, mtime_ns = joint_state(before)
    if size != source.size:
        raise change_error(source.path)
    try:
        yield source.path, size, mtime_ns
    except (DataError, OSError) as error:
        _require_states(source, before, error)
        raise
    _require_states(source, before, None)


def _require_states(source: Source, before: list[tuple[int, int]], error: Exception | None) -> None:
    for path, state in zip(source.paths, before, strict=True):
        if state_of(path) != state:
            raise change_error(path) from error


def change_error(path: str) -> DataError:
    """The error of a file that is not what it was when the command started."""
    return DataError(f"{path} changed while it was extracted; rerun when nothing writes to it")


def _placed(source: Source) -> PlacedState:
    return source.path, *state_now(source)


def _known_path(target: Path) -> Path:
    return target.with_name(f".{target.stem}.content.json")


def _known(target: Path) -> RawContent | None:
    """What is kept beside an extracted file, or beside its units."""
    with suppress(OSError, ValueError, TypeError):
        hashes, states = json.loads(_known_path(target).read_bytes())
        return RawContent(hashes, [(path, size, mtime_ns) for path, size, mtime_ns in states])
    return None
