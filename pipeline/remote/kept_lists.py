"""A publisher's list of files, kept next to the files once it was read, and the files in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, one_at_a_time, write_whole
from pipeline.base.typed_json import as_value
from pipeline.remote.http import MOST_FILE_BYTES

LIST = ".list.json"
_MOST_BYTES = 64 << 20
"""Largest list that is kept; what is fetched has at most a quarter of it."""

Entries = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A file in a publisher's list, to be fetched when it is needed."""

    url: str
    path: str
    """Path below the publisher's address, so the same at every mirror."""
    size: int
    """Bytes."""
    hash: str
    """MD5, SHA-1 or SHA-256 in hexadecimal digits; empty if none is published."""
    version: str
    """ETag or date that the server stated when it was listed; empty if none."""
    connections: int
    """Most files fetched from the publisher at a time."""
    downloads: Path
    """Absolute; shared by all processes whose connections are counted together."""
    is_kept: bool
    """True if the copy stays after it was extracted."""

    @property
    def place(self) -> Path:
        """Path of a copy that is kept: a mirror made by other means is found there, too."""
        return self.downloads / self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """The place of lists and copies of files, and which of them are kept."""

    downloads: Path
    is_kept: bool
    """True if copies of files stay after their extraction."""
    recording: bool = True
    """True if lists that are not there yet are kept."""


def published_files(
    folder: str, entries: Entries, keeping: Keeping, *, base: str, connections: int
) -> list[PublishedFile]:
    """The files of a list, which is that of a folder below the publisher's address `base`.

    An entry has the size, a path or else a name in the folder, and the hash and version if there
    are any.
    """
    paths = [entry.get("path") or f"{folder}/{entry['name']}" for entry in entries]
    return [
        PublishedFile(
            url=f"{base}/{path}",
            path=path,
            size=entry["size"],
            hash=entry.get("hash", ""),
            version=entry.get("version", ""),
            connections=connections,
            downloads=keeping.downloads.absolute(),
            is_kept=keeping.is_kept,
        )
        for path, entry in zip(paths, entries)
    ]


def kept_list(
    folder: Path,
    read: Callable[[], Entries],
    check: Callable[[Entries], Entries],
    *,
    recording: bool,
) -> Entries:
    """The list kept in `folder`, or else what `read` returns, which is kept if `recording`.

    check: returns the entries, or raises ValueError, TypeError or KeyError for other ones. If
    several processes need the list, one reads it and the others wait.
    """
    kept = folder / LIST
    if not kept.exists():
        if not recording:
            return check(read())
        make_directory(folder)
        with one_at_a_time(folder / ".list.lock"):
            if not kept.exists():  # another process may have read it meanwhile
                entries = check(read())  # before it is kept
                write_whole(kept, json.dumps(entries, indent=0).encode())
                return entries
    try:
        if kept.stat().st_size > _MOST_BYTES:  # not of ours: it is not read into memory
            raise ValueError(f"over {_MOST_BYTES >> 20} MiB")
        found = as_value(kept.read_bytes())
        if not isinstance(found, list) or not found:
            raise ValueError(found)
        return check(found)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{kept} is damaged; remove it to read the list again") from error


def is_length(value: object) -> bool:
    """True if a value of a list can be the length of a file in bytes."""
    # Not isinstance, for which True is an int, too.
    return type(value) is int and 0 <= value <= MOST_FILE_BYTES
