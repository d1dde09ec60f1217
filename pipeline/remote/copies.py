"""Copies of published files: whole or not at all, politely fetched, removed when they are used.

A copy that is kept has the file's published path below the downloads, so a mirror made by other
means (rsync, `aws s3 sync`) is found there. A copy that is needed for a while has a hidden name in
the same folder; if its process is killed, the next one uses it, or removes it if it was all done.

1. One process fetches a file; others that need it wait for its lock.
2. `connection` limits how many files come from one host at a time, over all processes that share
   the downloads.
3. The copy grows under a name with a mark of the version. A transfer that was cut continues where
   it stopped, in this process or in the next: the rest is asked for with Range, and with If-Range
   where the version is known, so two versions of a file are never joined.
4. It gets its own name once its length and its published hash are right.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.base.errors import DataError
from pipeline.base.files import (
    digest_of,
    make_directory,
    one_at_a_time,
    open_lock,
    sync_directory,
    temporary_path,
    try_lock,
)
from pipeline.base.shown_urls import show_url
from pipeline.config.settings import fingerprint
from pipeline.execution.workers import Executor, Stage
from pipeline.remote.http import blocks, is_gone, length_of, open_url, read_start, version_of
from pipeline.remote.kept_lists import LIST, PublishedFile
from pipeline.remote.retries import TryAgainError, patiently

_POLL_SECONDS = 0.2
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_HASHES = {32: "md5", 40: "sha1", 64: "sha256"}
"""Kinds of hashes, by the number of hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One published file to fetch and keep."""

    file: PublishedFile

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.file.size

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"fetch {self.file.place.name}"

    @property
    def marker(self) -> str:
        """Its path, which is in no directory's listing: only missing files become tasks."""
        return self.file.path


def is_here(file: PublishedFile) -> bool:
    """True if a file has a copy that is kept. Raises DataError if that has another size."""
    if not file.place.exists():
        return False
    size = file.place.stat().st_size
    if size != file.size:
        raise DataError(
            f"{file.place} has {size:,} bytes, and {file.size:,} are published; remove it to fetch "
            "it again"
        )
    return True


def read_beginning(file: PublishedFile, size: int) -> tuple[bytes, float]:
    """The first bytes of a file, from its copy or its server, and the seconds they took."""
    if not is_here(file):
        return read_start(file.url, size)
    began_at = time.perf_counter()
    with file.place.open("rb") as copy:
        return copy.read(size), time.perf_counter() - began_at


def fetch_all(files: list[PublishedFile], executor: Executor) -> None:
    """Fetch the files of a publisher that have no copy, and keep them."""
    tasks = [FetchTask(file) for file in files if not is_here(file)]
    if tasks:
        downloads = tasks[0].file.downloads
        make_directory(downloads)
        executor.run(Stage(downloads, _start), tasks)


def _start() -> Callable[[FetchTask], None]:
    return lambda task: fetch_file(task.file, task.file.place)


def fetched(file: PublishedFile) -> Path:
    """A copy to read. Several processes may ask for it: one fetches it."""
    if is_here(file):
        return file.place
    place = file.place if file.is_kept else passing_path(file)
    fetch_file(file, place)
    return place


def passing_path(file: PublishedFile) -> Path:
    """Path of a copy that is not to be kept."""
    return partial_path(file).with_suffix(".copy")


def remove_copies(files: Iterable[PublishedFile]) -> None:
    """Remove copies that are not to be kept, and what killed processes left of them."""
    folders: dict[Path, list[PublishedFile]] = {}
    for file in files:
        folders.setdefault(file.place.parent, []).append(file)
    for folder, its in folders.items():
        # One listing a folder: there may be thousands of files, and mostly nothing to remove.
        there = {path.name for path in folder.glob(".*")} if folder.exists() else set()
        for file in its:
            copy = passing_path(file)
            for path in (copy, copy.with_suffix(".part")):
                if path.name in there:
                    path.unlink(missing_ok=True)


def fetch_file(file: PublishedFile, target: Path) -> None:
    """Make `target`, in the folder of the file's place, if it does not exist.

    Raises DataError if the file differs from the published length or hash, or cannot be fetched.
    """
    make_directory(target.parent)
    # 1.
    with one_at_a_time(target.with_name(f".{file.place.name}.lock")) as lock:
        if target.exists():
            return
        partial = partial_path(file)
        if lock is None:  # another process may be fetching the same file
            partial = temporary_path(partial)
        with connection(file.downloads, file.url, file.connections):  # 2.
            _fill(file, partial)
        if target.exists():  # another process made it, where locks have no effect, and reads it
            partial.unlink(missing_ok=True)
            return
        try:
            with partial.open("rb") as whole:
                os.fsync(whole.fileno())  # or a crash could leave the name of an empty file
            partial.replace(target)  # 4.
        except FileNotFoundError:  # that process has renamed it just now
            if not target.exists():
                raise
        sync_directory(target.parent)


def partial_path(file: PublishedFile) -> Path:
    """Path at which the file grows; another version of it has another path."""
    mark = fingerprint({"size": file.size, "hash": file.hash, "version": file.version})
    return file.place.with_name(f".{file.place.name}.{mark}.part")


@contextmanager
def connection(directory: Path, url: str, most: int) -> Iterator[None]:
    """Wait until fewer than `most` processes that share `directory` fetch from the URL's host.

    No limit on a file system without locks.
    """
    places = directory / ".connections" / re.sub(r"[^\w.-]", "_", urlsplit(url).netloc)
    make_directory(places)
    while True:
        for number in range(most):
            with open_lock(places / str(number)) as place:  # a killed process gives its place back
                if try_lock(place) is not False:
                    yield
                    return
        time.sleep(_POLL_SECONDS)


def _fill(file: PublishedFile, partial: Path) -> None:
    """Have `partial` hold the whole file."""
    wrong: list[str] = []
    stated = file.hash or _md5(file.version)
    kind = _HASHES.get(len(stated), "")

    def attempt() -> None:
        have = _size(partial)
        if have and not (file.version or stated):
            have = 0  # the rest could be another version's
        if have < file.size or not partial.exists():
            _continue(file, partial, have)
        if not stated:
            return
        found = digest_of(partial, hashlib.new(kind, usedforsecurity=False))
        if found == stated:
            return
        partial.unlink()
        wrong.append(found)
        # Once may be a bad transfer; twice, the server itself has another file.
        if len(wrong) > 1:
            raise DataError(
                f"{show_url(file.url)}: fetched twice, its {kind} is {found}, and {stated} is "
                "published; use another mirror"
            )
        raise TryAgainError("the hash differs")

    try:
        patiently(show_url(file.url), attempt, lambda: _size(partial), file.size)
    except DataError as error:
        if not is_gone(error):
            raise
        raise DataError(
            f"{error}; it was there when it was listed: remove {file.place.parent / LIST} and "
            "rerun, with --skip-missing to continue without a file of --months"
        ) from error


def _continue(file: PublishedFile, partial: Path, have: int) -> None:
    """Append what is missing after `have` bytes; starts over if the server gives all of it."""
    headers = {}
    if have:
        headers["Range"] = f"bytes={have}-"
        if file.version:
            headers["If-Range"] = file.version  # 3. or the server sends all of another version
    with open_url(file.url, headers=headers) as response:
        start = _offset(file, response, have)
        with partial.open("r+b" if start else "wb") as place:  # from 0 if the server ignores Range
            place.seek(start)
            place.truncate()
            for block in blocks(response):
                place.write(block)
                if place.tell() > file.size:  # or an endless answer would fill the disk
                    break
    found = _size(partial)
    if found > file.size:
        partial.unlink()
        raise DataError(_differs(file, f"more than {file.size:,} bytes"))
    if found < file.size:
        raise TryAgainError(f"cut after {found:,} of {file.size:,} bytes")


def _offset(file: PublishedFile, response: http.client.HTTPResponse, have: int) -> int:
    """Position of the answer's first byte. Raises DataError for bytes of another file."""
    start, whole = 0, response.headers.get("Content-Length", "")
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not found or length_of(found[1]) != have:
            raise DataError(
                f"{show_url(file.url)}: asked for bytes from {have:,}, got others; use a mirror"
            )
        start, whole = have, found[3]
    version = version_of(response)
    if file.version and version and version != file.version:
        raise DataError(_differs(file, f"version {version}, not {file.version}"))
    if (length := length_of(whole)) is not None and length != file.size:
        raise DataError(_differs(file, f"{length:,} bytes, not {file.size:,}"))
    return start


def _differs(file: PublishedFile, what: str) -> str:
    return (
        f"{show_url(file.url)} has {what} as listed: it has changed, or is damaged; use another "
        "mirror, or remove the list in its folder of the downloads to read it again"
    )


def _md5(version: str) -> str:
    """The MD5 that an ETag of S3 is for a file that was uploaded in one piece."""
    found = re.fullmatch(r'"([0-9a-f]{32})"', version)
    return found[1] if found else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
