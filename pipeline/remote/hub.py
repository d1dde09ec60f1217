"""Repositories of the Hugging Face Hub -> files of one commit, each compared with the Hub's list.

`huggingface_hub` does the requests: tokens, mirrors (HF_ENDPOINT), attempts, and transfers that
continue. What it leaves to us: a revision is resolved to a commit first, only files that were
chosen are asked for, and every file has the listed length and hash or is an error.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import importlib
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import bytes_in, digest_of, why_not_written
from pipeline.remote.retries import TryAgainError, patiently

MARKER = ".fetched.json"
"""File that says what a folder holds and when it was fetched."""
COMMIT = re.compile(r"[0-9a-f]{40}")
_DISK = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
"""Errors of writing; others come from the network."""
_MIRROR = "if HF_ENDPOINT is set, unset it or name another mirror"
_ATTEMPTS = 8
"""Attempts at a download without progress, on top of huggingface_hub's; about two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A model or dataset of the Hub."""

    kind: Literal["model", "dataset"]
    name: str
    """ORG/NAME."""
    revision: str
    """A commit, branch, tag or `refs/pr/N`; "" if none is given."""
    shown: str
    """Its name in messages."""
    instead: str
    """The way to do without the Hub, as the end of a message."""

    @property
    def page(self) -> str:
        """Its address."""
        return f"{_client(self).endpoint}/{'datasets/' * (self.kind == 'dataset')}{self.name}"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in the Hub's list."""

    path: str
    size: int
    """Bytes."""
    hash: str
    """SHA-256 of a large file (64 digits); of others the SHA-1 of a Git blob (40); "": unstated."""

    def is_at(self, path: Path) -> bool:
        """True if a file is there with the listed length and hash."""
        if not path.is_file() or path.is_symlink() or path.stat().st_size != self.size:
            return False
        if len(self.hash) == 64:
            digest = hashlib.sha256()
        else:
            # Git's name of a file: the hash of a header and its content.
            digest = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return digest_of(path, digest) == self.hash


def list_files(repository: Repository) -> tuple[str, list[ListedFile]]:
    """The commit of a repository's revision and its files, with one request.

    Raises ConfigError for what the Hub does not give to this user, DataError if it cannot be
    reached.
    """
    found = _ask(
        repository,
        lambda hub: hub.repo_info(
            repository.name, repo_type=repository.kind, revision=repository.revision or None,
            files_metadata=True,
        ),
    )  # fmt: skip
    # A mirror may ignore the revision and answer with its newest commit.
    pinned = repository.revision if COMMIT.fullmatch(repository.revision) else found.sha
    if not COMMIT.fullmatch(found.sha or "") or found.sha != pinned:
        raise DataError(f"{repository.shown}: the Hub answers with commit {found.sha}; {_MIRROR}")
    return found.sha, [
        ListedFile(entry.rfilename, entry.size or 0, _hash(entry)) for entry in found.siblings or ()
    ]


def _hash(entry: Any) -> str:
    return (entry.lfs.sha256 if entry.lfs else entry.blob_id) or ""


def list_matching(repository: Repository, pattern: str) -> tuple[str, list[ListedFile]]:
    """The same for the files that match a glob, whose `*` matches no slash, in order."""
    commit, files = list_files(repository)
    depth = pattern.count("/")  # fnmatch's * matches slashes, too
    files = [
        file for file in files
        if file.path.count("/") == depth and fnmatch.fnmatchcase(file.path, pattern)
    ]  # fmt: skip
    if not files:
        raise DataError(f"{repository.shown}: the Hub has no {pattern}; name another revision")
    return commit, sorted(files, key=lambda file: file.path)


def download(repository: Repository, commit: str, file: ListedFile, folder: Path) -> Path:
    """Have a file at its path below a folder, as it is listed. Raises as `list_files` does.

    Where the folder is the same, a transfer that was cut continues.
    """
    if len(file.hash) not in (40, 64):
        raise DataError(
            f"{repository.shown}: the Hub states no length or hash of {file.path}, so damage would "
            f"not be seen; {_MIRROR}"
        )
    path = folder / file.path
    _ask(
        repository,
        lambda hub: hub.hf_hub_download(
            repository.name, file.path, repo_type=repository.kind, revision=commit, local_dir=folder
        ),
        folder,
        file.size,
    )
    if not file.is_at(path):
        path.unlink(missing_ok=True)  # or the next attempt would take it as complete
        raise DataError(
            f"{repository.shown}: {file.path} differs from what the Hub lists ({file.size:,} "
            f"bytes, hash {file.hash}); run the same command again; {_MIRROR}"
        )
    return path


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


def _ask(
    repository: Repository,
    request: Callable[[Any], Any],
    folder: Path | None = None,
    size: int = 0,
) -> Any:
    """The result of a client's request; one that adds `size` bytes to a folder has attempts.

    Errors of huggingface_hub, of its client (requests or httpx) and of the disk become ours.
    """
    hub = _client(repository)
    from huggingface_hub import get_session

    # requests before huggingface_hub 1.0, httpx since.
    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])

    def attempt() -> Any:
        try:
            return request(hub)
        except (OSError, ValueError, client.HTTPError) as error:
            # Another attempt does not free the disk.
            if folder and isinstance(error, OSError) and error.errno in _DISK:
                raise DataError(why_not_written(folder.parent, error)) from error
            raise _explained(repository, error) from error

    return patiently(
        repository.shown,
        attempt,
        lambda: bytes_in(folder) if folder else 0,
        size,
        _ATTEMPTS if folder else 1,
        f"{'whole files are kept; ' * bool(folder)}{repository.instead}",
    )


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
