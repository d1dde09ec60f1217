"""Repositories of the Hugging Face Hub -> files of one commit, each compared with the Hub's list.

`huggingface_hub` does the requests: tokens, mirrors (HF_ENDPOINT), attempts, and transfers that
continue. What it leaves to us: a revision is resolved to a commit first, only files that were
chosen are asked for, and every file has the listed length and hash or is an error.

A model becomes a folder, fetched once:

    MODELS/ORG--NAME/COMMIT/           one commit, whole; never changed again
    MODELS/ORG--NAME/.COMMIT.part/     whole files of a fetch that was cut, named by their hashes

A name without a revision is the commit that was fetched first, without any request: a command that
runs again, also on a node without a network, has the same weights. `NAME@main` asks.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import importlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import (
    digest_of,
    make_directory,
    one_at_a_time,
    why_not_written,
    write_whole,
)
from pipeline.base.progress import calling_each, counting
from pipeline.base.publish import TakenError, publish_folder, scratch_folder
from pipeline.remote.retries import TryAgainError, patiently

MARKER = ".fetched.json"
"""What a folder is and when it was fetched."""
COMMIT = re.compile(r"[0-9a-f]{40}")
_DISK = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
"""Errors of writing; others come from the network."""
_MIRROR = "if HF_ENDPOINT is set, unset it or name another mirror"
_ATTEMPTS = 8
"""Of a download without a gain, on top of those of huggingface_hub; about two minutes."""
_LOOK_SECONDS = 0.5
"""Between two looks at how much of a file has arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A model or dataset of the Hub."""

    kind: Literal["model", "dataset"]
    name: str
    """ORG/NAME."""
    revision: str
    """A commit, branch, tag or `refs/pr/N`; "" if none is given."""
    shown: str
    """For messages."""
    instead: str
    """What to do without the Hub, as the end of a message."""

    @property
    def page(self) -> str:
        """Its address."""
        return f"{_client(self).endpoint}/{'datasets/' * (self.kind == 'dataset')}{self.name}"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in the Hub's list."""

    path: str
    size: int
    """In bytes."""
    hash: str
    """SHA-256 of a large file (64 digits); of others the SHA-1 of a Git blob (40)."""

    def is_at(self, path: Path) -> bool:
        """Whether a file is there with the listed length and hash."""
        if not path.is_file() or path.is_symlink() or path.stat().st_size != self.size:
            return False
        if len(self.hash) == 64:
            digest = hashlib.sha256()
        else:
            digest = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return digest_of(path, digest) == self.hash


Choose = Callable[[list[str]], Iterable[str]]
"""Of all paths in a repository, those to fetch. May raise ConfigError."""


def matching(pattern: str) -> Choose:
    """Chooses the files that match a glob, in order; its `*` matches no slash."""

    def choose(paths: list[str]) -> list[str]:
        found = sorted(
            path
            for path in paths
            if path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
        )
        if not found:
            raise DataError(f"the Hub has no {pattern} in this repository; name another revision")
        return found

    return choose


def list_files(repository: Repository, choose: Choose) -> tuple[str, list[ListedFile]]:
    """The commit of a repository's revision, and the chosen files, with one request.

    Raises ConfigError for what the Hub does not give to this user, DataError if it cannot be
    reached or lists no length or hash.
    """
    client = _client(repository)

    def attempt() -> Any:
        with _plain_errors(repository):
            return client.repo_info(
                repository.name, repo_type=repository.kind, revision=repository.revision or None,
                files_metadata=True,
            )  # fmt: skip

    found = patiently(repository.shown, attempt, attempts=1, advice=repository.instead)
    entries = {entry.rfilename: entry for entry in found.siblings or ()}
    files = [_listed_file(repository, entries[path]) for path in choose([*entries])]
    pinned = repository.revision if COMMIT.fullmatch(repository.revision) else found.sha
    if not COMMIT.fullmatch(found.sha or "") or found.sha != pinned:
        raise DataError(f"{repository.shown}: the Hub answers with commit {found.sha}; {_MIRROR}")
    return found.sha, files


def _listed_file(repository: Repository, entry: Any) -> ListedFile:
    checksum = entry.lfs.sha256 if entry.lfs else entry.blob_id
    if entry.size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", checksum or ""):
        raise DataError(
            f"{repository.shown}: the Hub states no length or hash of {entry.rfilename}, so damage "
            f"would not be seen; {_MIRROR}"
        )
    return ListedFile(entry.rfilename, entry.size, checksum)


def download(repository: Repository, commit: str, file: ListedFile, folder: Path) -> Path:
    """Have a file at its path below a folder, as it is listed. Raises as `list_files` does.

    Where the folder is the same, a transfer that was cut continues.
    """
    path, client = folder / file.path, _client(repository)

    def attempt() -> None:
        with _plain_errors(repository, folder):
            client.hf_hub_download(
                repository.name, file.path, repo_type=repository.kind, revision=commit,
                local_dir=folder,
            )  # fmt: skip

    patiently(
        repository.shown, attempt, lambda: _bytes_in(folder), file.size, _ATTEMPTS,
        f"whole files are kept; {repository.instead}",
    )  # fmt: skip
    if not file.is_at(path):
        path.unlink(missing_ok=True)
        raise DataError(
            f"{repository.shown}: {file.path} differs from what the Hub lists ({file.size:,} "
            f"bytes, hash {file.hash}); run the same command again; {_MIRROR}"
        )
    return path


def fetch_folder(
    repository: Repository,
    place: Path,
    choose: Choose,
    first: str,
    check: Callable[[Path], None],
) -> str:
    """The commit whose chosen files are in `place`/COMMIT; what is missing is fetched.

    first: the file that is fetched before all others, to `check` its folder then. Raises as
    `list_files` does.
    """
    kept = _first_fetched(place)
    if COMMIT.fullmatch(repository.revision) and _is_whole(place / repository.revision):
        return repository.revision
    if not repository.revision and kept:
        _say(
            f"{repository.shown} is commit {kept}, fetched before; {repository.shown}@main fetches "
            f"the newest one, {repository.shown}@COMMIT any other"
        )
        return kept
    bare = repository.shown.partition("@")[0]
    if kept:
        instead = f"{repository.instead}; {bare} without a revision is {kept}, which is here"
        repository = replace(repository, instead=instead)
    commit, files = list_files(repository, choose)
    if repository.revision != commit:
        _say(f"{repository.shown} is commit {commit}; {bare}@{commit} stays at it")
    if not _is_whole(place / commit):
        files.sort(key=lambda file: (file.path != first, file.size, file.path))
        _fetch(repository, commit, files, place, check)
    return commit


def _is_whole(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _first_fetched(place: Path) -> str:
    """The commit that was fetched before all others, "" if none was.

    The first rather than the newest: fetching another one leaves earlier commands as they were.
    """
    fetched = {
        folder.name: json.loads((folder / MARKER).read_bytes())["fetched_at"]
        for folder in (place.iterdir() if place.is_dir() else ())
        if COMMIT.fullmatch(folder.name) and _is_whole(folder)
    }
    return min(fetched, key=lambda commit: (fetched[commit], commit), default="")


def _say(line: str) -> None:
    """Print a line, once for all ranks of a job."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def _fetch(
    repository: Repository,
    commit: str,
    files: Sequence[ListedFile],
    place: Path,
    check: Callable[[Path], None],
) -> None:
    """Have the folder of a commit; if several processes need it, one fetches it.

    Each process fills a folder of its own, as locks can exclude nobody (see base/publish).
    """
    target, kept = place / commit, place / f".{commit}.part"
    make_directory(kept)
    with one_at_a_time(place / ".lock"):
        if not _is_whole(target):
            with scratch_folder(target) as folder:
                missing = [file for file in files if not _is_taken(file, folder, kept)]
                _require_room(repository, missing, folder)
                with (
                    counting(
                        f"fetching {repository.shown}", "bytes", sum(file.size for file in missing)
                    ) as add,
                    _growth(folder, add),
                ):
                    for file in missing:
                        path = download(repository, commit, file, folder)
                        if file is files[0]:
                            check(folder)
                        with suppress(OSError):  # without hard links the next one starts over
                            os.link(path, kept / file.hash)
                shutil.rmtree(folder / ".cache", ignore_errors=True)  # notes of huggingface_hub
                about = {
                    "origin": f"{repository.shown.partition('@')[0]}@{commit}",
                    "fetched_at": datetime.now(timezone.utc).isoformat(),
                }
                write_whole(folder / MARKER, json.dumps(about, indent=1).encode())
                try:
                    publish_folder(folder, target)
                except TakenError as error:
                    if not _is_whole(target):
                        raise DataError(f"{target} is not a fetched model; remove it") from error
        shutil.rmtree(kept, ignore_errors=True)


def _is_taken(file: ListedFile, folder: Path, kept: Path) -> bool:
    """Link a file that an earlier fetch has kept into the folder, if there is one."""
    path = folder / file.path
    path.parent.mkdir(exist_ok=True)
    try:
        os.link(kept / file.hash, path)
    except OSError:
        return False
    if not file.is_at(path):
        path.unlink()
        (kept / file.hash).unlink(missing_ok=True)
    return path.exists()


def _require_room(repository: Repository, files: Sequence[ListedFile], folder: Path) -> None:
    needed, room = sum(file.size for file in files), shutil.disk_usage(folder).free
    if needed > room:
        raise DataError(
            f"{repository.shown} takes {needed / 1e6:,.0f} MB, and {folder.parent} has "
            f"{room / 1e6:,.0f} MB left; free some space, or set TENFOLD_ROOT"
        )


@contextmanager
def _growth(folder: Path, add: Callable[[int], None]) -> Iterator[None]:
    """Call `add` with the bytes by which the files of a folder grow.

    Not by a hook of huggingface_hub: its versions have different ones.
    """
    seen = _bytes_in(folder)

    def look() -> None:
        nonlocal seen
        now = _bytes_in(folder)
        add(now - seen)
        seen = now

    try:
        with calling_each(_LOOK_SECONDS, look):
            yield
    finally:
        look()


def _bytes_in(folder: Path) -> int:
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # renamed meanwhile
                size += Path(directory, name).lstat().st_size
    return size


def _client(repository: Repository) -> Any:
    """The client of the Hub, or of the mirror that HF_ENDPOINT names."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise ConfigError(
            f"{repository.shown} needs the package huggingface_hub to fetch it: pip install "
            f"'.[hub]', {repository.instead}"
        ) from error
    # It would log each of its attempts, and draw a bar for each file.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    disable_progress_bars()
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


@contextmanager
def _plain_errors(repository: Repository, folder: Path | None = None) -> Iterator[None]:
    """Errors of huggingface_hub, of its client (requests or httpx) and of the disk become ours:
    what the Hub refuses is final, and the network may have the next attempt."""
    from huggingface_hub import get_session

    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    try:
        yield
    except (OSError, ValueError, client.HTTPError) as error:
        if folder and isinstance(error, OSError) and error.errno in _DISK:
            raise DataError(why_not_written(folder.parent, error)) from error
        raise _explained(repository, error) from error


def _explained(repository: Repository, error: Exception) -> Exception:
    from huggingface_hub import errors

    shown, name = repository.shown, repository.name
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return ConfigError(
            f"{shown} is gated: its owner gives it to users who ask; ask at {repository.page}, "
            "then set HF_TOKEN to your access token and rerun"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ConfigError(
            f"the Hub has no {repository.kind} {name} ({status}), or it is private; check the "
            "name, or set HF_TOKEN to an access token that may read it"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ConfigError(
            f"{name} has no revision {repository.revision or 'main'}; {repository.page}/commits "
            "lists them"
        )
    if status in (401, 403):
        return ConfigError(
            f"the Hub refuses {shown} ({status}); set HF_TOKEN to an access token that may read "
            "it, or unset it if it has expired"
        )
    return TryAgainError(str(error.__cause__ or error))
