"""Files of public archives over HTTP: whole or not at all, and politely.

A file grows under a hidden name and gets its own name once its length and its published hash are
right. A transfer that is cut continues where it stopped, in this process or in the next: the rest
is asked for with Range, and with If-Range where the version is known, so two versions of a file are
never joined.

Archives ask clients to be polite. Every request names Tenfold. `connection` limits how many files
come from one host at a time, over all processes that share a directory. 429 and 503 are waited out,
for as long as Retry-After asks within limits, and pauses double.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import TypeVar
from urllib.parse import urlsplit

from pipeline.base.errors import DataError, one_line
from pipeline.base.files import make_directory, open_lock, sync_directory, try_lock
from pipeline.base.shown_urls import shown_text, shown_url
from pipeline.config.settings import fingerprint
from pipeline.remote.http import TryAgainError, blocks, length_of, opened
from pipeline.remote.kept_lists import PublishedFile

_ATTEMPTS = 30
"""Failures in a row before a file is given up; with pauses, about 50 minutes."""
_FIRST_ATTEMPTS = 5
"""The same for a list or a look at a file, if no server answers; about 15 seconds."""
_PAUSE_SECONDS = 1.0
"""After the first failure; doubled after each further one. Common Crawl asks for 1 s at least."""
_LONGEST_PAUSE_SECONDS = 120.0
_LONGEST_WISH_SECONDS = 600.0
"""The longest Retry-After that is waited for."""
_GAIN = 0.01
"""Share of a file that must arrive between two failures for them not to be in a row."""
_LONG_SECONDS = 8.0
"""A pause that the user is told of."""
_POLL_SECONDS = 0.2
_BLOCK_BYTES = 1 << 20
_MOST_LIST_BYTES = 16 << 20
"""Of a list as it is sent; the lists of dumps and months have up to about a megabyte."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_HASHES = {32: "md5", 40: "sha1", 64: "sha256"}
"""By the number of hexadecimal digits."""

Answer = TypeVar("Answer")


def read_small(url: str) -> bytes:
    """A list or another small file. Raises DataError if it cannot be fetched."""

    def attempt() -> bytes:
        with opened(url) as response:
            stated = length_of(response.headers.get("Content-Length", ""))
            content = bytearray()
            for block in blocks(response):
                content += block
                if max(len(content), stated or 0) > _MOST_LIST_BYTES:
                    raise DataError(
                        f"{shown_url(url)} is no list: it has over {_MOST_LIST_BYTES >> 20} MiB; "
                        "check the address, or use another mirror"
                    )
            if stated is not None and len(content) != stated:
                raise TryAgainError(f"cut after {len(content):,} of {stated:,} bytes")
            return bytes(content)

    return _patiently(url, attempt)


def look_up(url: str) -> tuple[int, str]:
    """The length and version (ETag or date) of a file that the server states, "" for none."""

    def attempt() -> tuple[int, str]:
        with opened(url, method="HEAD") as response:
            length = length_of(response.headers.get("Content-Length", ""))
            if length is None:
                raise DataError(
                    f"{shown_url(url)}: the server does not state its length; use another mirror"
                )
            return length, _version(response)

    return _patiently(url, attempt)


def read_start(url: str, size: int) -> tuple[bytes, float]:
    """The first `size` bytes of a file, or all if it is shorter, and the seconds they took."""

    def attempt() -> tuple[bytes, float]:
        with opened(url, headers={"Range": f"bytes=0-{size - 1}"}) as response:
            began_at = time.perf_counter()
            content = b""
            for block in blocks(response):
                content += block
                if len(content) >= size:  # a server without ranges sends all of it
                    break
            return content[:size], time.perf_counter() - began_at

    return _patiently(url, attempt)


def fetch_file(file: PublishedFile, target: Path) -> None:
    """Make `target` if it does not exist; a transfer that was cut continues.

    If several processes want it, one fetches it and the others wait. Raises DataError if the file
    differs from the published length or hash, or cannot be fetched.
    """
    make_directory(target.parent)
    with _alone(target.with_name(f".{Path(file.path).name}.lock")) as is_alone:
        if target.exists():
            return
        partial = partial_path(file, target)
        if not is_alone:  # another process may be fetching the same file
            partial = partial.with_suffix(f".{secrets.token_hex(8)}.tmp")
        with connection(file.downloads, file.url, file.connections):
            _fetch(file, partial)
        with partial.open("rb") as whole:
            os.fsync(whole.fileno())
        partial.replace(target)
        sync_directory(target.parent)


def partial_path(file: PublishedFile, target: Path) -> Path:
    """Where the file grows; another version of it has another path."""
    mark = fingerprint({"size": file.size, "hash": file.hash, "version": file.version})
    return target.with_name(f".{Path(file.path).name}.{mark}.part")


@contextmanager
def connection(directory: Path, url: str, most: int) -> Iterator[None]:
    """Wait until fewer than `most` processes that share `directory` fetch from the URL's host.

    No limit on a file system without locks.
    """
    places = directory / ".connections" / re.sub(r"[^\w.-]", "_", urlsplit(url).netloc)
    make_directory(places)
    while True:
        for number in range(most):
            with open_lock(places / str(number)) as place:
                if try_lock(place) is not False:
                    yield
                    return
        sleep(_POLL_SECONDS)


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Wait for an exclusive lock on `path`; False on a file system without locks."""
    with open_lock(path) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


def _fetch(file: PublishedFile, partial: Path) -> None:
    """Have `partial` hold the whole file."""
    wrong: list[str] = []
    stated = file.hash or _md5(file.version)

    def attempt() -> None:
        have = partial.stat().st_size if partial.exists() else 0
        if have and not (file.version or stated):
            have = 0  # the rest could be another version's
        if have < file.size or not partial.exists():
            _continue(file, partial, have)
        if stated and (found := _hash(partial, stated)) != stated:
            partial.unlink()
            wrong.append(found)
            if len(wrong) > 1:
                raise DataError(
                    f"{shown_url(file.url)}: fetched twice, its {_HASHES[len(stated)]} is {found}, "
                    f"and {stated} is published; use another mirror"
                )
            raise TryAgainError("the hash differs")

    _patiently(file.url, attempt, lambda: _size(partial), file.size)


def _continue(file: PublishedFile, partial: Path, have: int) -> None:
    """Append what is missing behind `have` bytes; starts over if the server gives all of it."""
    headers = {}
    if have:
        headers["Range"] = f"bytes={have}-"
        if file.version:
            headers["If-Range"] = file.version
    with opened(file.url, headers=headers) as response:
        start = _start(file, response, have)
        with partial.open("r+b" if start else "wb") as place:
            place.seek(start)
            place.truncate()
            for block in blocks(response):
                place.write(block)
                if place.tell() > file.size:
                    break
    found = _size(partial)
    if found > file.size:
        partial.unlink()
        raise DataError(_differs(file, f"more than {file.size:,} bytes"))
    if found < file.size:
        raise TryAgainError(f"cut after {found:,} of {file.size:,} bytes")


def _start(file: PublishedFile, response: http.client.HTTPResponse, have: int) -> int:
    """Where the answer's bytes belong. Raises DataError if they are not of the published file."""
    start, whole = 0, response.headers.get("Content-Length", "")
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not found or length_of(found[1]) != have:
            raise DataError(
                f"{shown_url(file.url)}: asked for bytes from {have:,}, got others; use a mirror"
            )
        start, whole = have, found[3]
    version = _version(response)
    if file.version and version and version != file.version:
        raise DataError(_differs(file, f"version {version}, not {file.version}"))
    if (length := length_of(whole)) is not None and length != file.size:
        raise DataError(_differs(file, f"{length:,} bytes, not {file.size:,}"))
    return start


def _differs(file: PublishedFile, what: str) -> str:
    return (
        f"{shown_url(file.url)} has {what} as listed: it has changed, or is damaged; use another "
        "mirror, or remove the list in its folder of the downloads to read it again"
    )


def _hash(path: Path, like: str) -> str:
    digest = hashlib.new(_HASHES[len(like)], usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _md5(version: str) -> str:
    """The MD5 that an ETag of S3 is for a file that was uploaded in one piece."""
    found = re.fullmatch(r'"([0-9a-f]{32})"', version)
    return found[1] if found else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _version(response: http.client.HTTPResponse) -> str:
    """What If-Range takes: a strong ETag, or a date."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _patiently(
    url: str,
    attempt: Callable[[], Answer],
    fetched: Callable[[], int] = lambda: 0,
    size: int = 0,
) -> Answer:
    """What `attempt` returns, after as many attempts and pauses as it takes.

    fetched: how many of `size` bytes there are. Raises DataError after too many failures in a row.
    """
    failures, best = 0, fetched()
    while True:
        try:
            return attempt()
        except TryAgainError as error:
            now = fetched()
            if now - best > _GAIN * size:
                failures, best = 0, now
            failures += 1
            shown, why = shown_url(url), shown_text(str(error), url)
            if failures == (_ATTEMPTS if size or error.answered else _FIRST_ATTEMPTS):
                raise DataError(
                    f"{shown} cannot be fetched ({why}; {failures} attempts); run the same command "
                    "again to continue, here or on a machine with network and the same TENFOLD_ROOT"
                ) from error
            pause = min(_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
            pause = max(pause, min(error.wait, _LONGEST_WISH_SECONDS))
            if pause >= _LONG_SECONDS:
                line = one_line(f"{shown}: {why}; next attempt in {pause:.0f} s")
                print(line, file=sys.stderr, flush=True)
            sleep(pause)
