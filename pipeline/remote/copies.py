"""Copies of published files: kept where `--fetch` put them, or as long as they are extracted.

A copy that is kept has the file's published path below the downloads, so a mirror made by other
means (rsync, `aws s3 sync`) is found there. A copy that is needed for a while has a hidden name in
the same folder; if its process is killed, the next one uses it, or removes it if it was all done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, one_at_a_time, remove_temporaries, write_whole
from pipeline.base.typed_json import as_value
from pipeline.execution.workers import Executor, Stage
from pipeline.remote.http import MOST_FILE_BYTES, MOST_LIST_BYTES, download, read_start

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """A file in a publisher's list, to be fetched when it is needed."""

    url: str
    path: str
    """Path below the publisher's address and below the downloads."""
    size: int
    """Bytes."""
    hash: str = ""
    """SHA-1 in hexadecimal digits; empty if none is published."""
    connections: int = 1
    """Most files that `--fetch` takes from the publisher at a time."""
    downloads: Path
    """Absolute."""

    @property
    def place(self) -> Path:
        """Path of a copy that is kept: a mirror made by other means is found there, too."""
        return self.downloads / self.path


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One published file to fetch and keep."""

    file: PublishedFile
    weight: int
    name: str
    marker: str
    """Its path, which is in no directory's listing: only missing files become tasks."""


def is_here(file: PublishedFile) -> bool:
    """True if a file has a copy that is kept. Raises DataError if that has another size."""
    if not file.place.exists():
        return False
    if (size := file.place.stat().st_size) != file.size:
        raise DataError(
            f"{file.place} has {size:,} bytes, and {file.size:,} are published; remove it to fetch "
            "it again"
        )
    return True


def fetch_all(files: list[PublishedFile], executor: Executor) -> None:
    """Fetch the files of a publisher that have no copy, and keep them."""
    missing = [file for file in files if not is_here(file)]
    tasks = [FetchTask(file, file.size, f"fetch {file.place.name}", file.path) for file in missing]
    if tasks:
        make_directory(missing[0].downloads)
        executor.run(Stage(missing[0].downloads, _start), tasks)


def _start() -> Callable[[FetchTask], None]:
    return lambda task: _fetch(task.file, task.file.place)


def fetched(file: PublishedFile) -> Path:
    """A copy to read. Several processes may ask for it: one fetches it."""
    place = file.place if is_here(file) else passing_path(file)
    _fetch(file, place)
    return place


def _fetch(file: PublishedFile, target: Path) -> None:
    make_directory(target.parent)
    with one_at_a_time(target.with_name(f".{file.place.name}.lock")):
        remove_temporaries(target.parent)  # of processes that were killed
        if not target.exists():
            download(file.url, target, file.size, file.hash)


def passing_path(file: PublishedFile) -> Path:
    """Path of a copy that is not to be kept."""
    return file.place.with_name(f".{file.place.name}.copy")


def remove_copies(files: Iterable[PublishedFile]) -> None:
    """Remove copies that are not to be kept."""
    for file in files:
        passing_path(file).unlink(missing_ok=True)


def read_beginning(file: PublishedFile, size: int) -> bytes:
    """The first bytes of a file, from its copy or its server."""
    if not is_here(file):
        return read_start(file.url, size)
    with file.place.open("rb") as copy:
        return copy.read(size)


def published_list(
    path: Path, read: Callable[[], bytes], parse: Callable[[Any], Parsed], *, recording: bool = True
) -> Parsed:
    """What `parse` makes of a publisher's list in JSON, which is kept at `path` if `recording`.

    Several processes that read it at once use the one that is kept first. read: its content, if
    there is none at `path`. Raises DataError if `parse` raises ValueError, TypeError, KeyError or
    AttributeError.
    """
    if path.exists():
        return _parsed(path, path.read_bytes, parse, f"remove {path} to read it again")
    content = read()
    found = _parsed(path, lambda: content, parse, "run the same command again")
    if not recording:
        return found
    make_directory(path.parent)
    with one_at_a_time(path.with_name(f".{path.name}.lock")):
        if not path.exists():
            write_whole(path, content)
            return found
    return published_list(path, read, parse)


def _parsed(
    path: Path, read: Callable[[], bytes], parse: Callable[[Any], Parsed], remedy: str
) -> Parsed:
    try:
        if path.exists() and path.stat().st_size > MOST_LIST_BYTES:
            raise ValueError("too large")
        return parse(as_value(read()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path.name} of {path.parent} is not a list; {remedy}") from error


def is_length(value: object) -> bool:
    """True if a value of a list can be the length of a file in bytes."""
    # Not isinstance, for which True is an int, too.
    return type(value) is int and 0 <= value <= MOST_FILE_BYTES
