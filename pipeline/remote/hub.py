"""Repositories of the Hugging Face Hub -> files of one commit, each compared with the Hub's list.

`huggingface_hub` does the requests: tokens, mirrors (HF_ENDPOINT), attempts, and transfers that
continue. What it leaves to us: a revision is resolved to a commit first, only files that were
chosen are asked for, an answer that is far larger than the list says is cut, and every file has the
listed length and hash or is an error.
"""

from __future__ import annotations

import glob
import hashlib
import importlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partialmethod
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import digest_of, why_not_written
from pipeline.remote.http import OF_THE_DISK, require_network

MARKER = ".fetched.json"
"""File that says what a folder holds and when it was fetched."""
COMMIT = re.compile(r"[0-9a-f]{40}")
_MIRROR = "if HF_ENDPOINT is set, unset it or name another mirror"


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
    first: str = "the same command with --fetch"
    """What fetches it for jobs of Slurm."""


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
        # Git's name of a file: the hash of a header and its content.
        blob = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return digest_of(path, hashlib.sha256() if len(self.hash) == 64 else blob) == self.hash


def list_files(repository: Repository, pattern: str = "") -> tuple[str, list[ListedFile]]:
    """The commit of a repository's revision and its files by path, with one request.

    pattern: a glob whose `*` matches no slash; empty: all files. Raises ConfigError for what the
    Hub does not give to this user, DataError if it cannot be reached or has no such file.
    """
    with _explaining(repository) as client:
        found = client.repo_info(
            repository.name, repo_type=repository.kind, revision=repository.revision or None,
            files_metadata=True,
        )  # fmt: skip
    # A mirror may ignore the revision and answer with its newest commit.
    pinned = repository.revision if COMMIT.fullmatch(repository.revision) else found.sha
    if not COMMIT.fullmatch(found.sha or "") or found.sha != pinned:
        raise DataError(f"{repository.shown}: the Hub answers with commit {found.sha}; {_MIRROR}")
    depth = pattern.count("/")  # fnmatch's * matches slashes, too
    files = [
        ListedFile(entry.rfilename, entry.size or 0, _hash(entry))
        for entry in sorted(found.siblings or (), key=lambda entry: entry.rfilename)
        if not pattern
        or (entry.rfilename.count("/") == depth and fnmatchcase(entry.rfilename, pattern))
    ]
    if pattern and not files:
        raise DataError(f"{repository.shown}: the Hub has no {pattern}; name another revision")
    return found.sha, files


def _hash(entry: Any) -> str:
    return (entry.lfs.sha256 if entry.lfs else entry.blob_id) or ""


def download(
    repository: Repository, commit: str, files: Sequence[ListedFile], folder: Path
) -> list[Path]:
    """Have files at their paths below a folder, as they are listed. Raises as `list_files` does.

    Where the folder is the same, files that are there stay and a transfer that was cut continues.
    """
    if unstated := [file.path for file in files if len(file.hash) not in (40, 64)]:
        raise DataError(
            f"{repository.shown}: the Hub states no length or hash of {unstated[0]}, so damage "
            f"would not be seen; {_MIRROR}"
        )
    with _explaining(repository, folder) as client:
        client.snapshot_download(
            repository.name, repo_type=repository.kind, revision=commit, local_dir=folder,
            allow_patterns=[glob.escape(file.path) for file in files],
            tqdm_class=_bounded(sum(file.size for file in files)),
        )  # fmt: skip
    for file in files:
        if not file.is_at(folder / file.path):
            (folder / file.path).unlink(missing_ok=True)  # or it would be taken as complete
            raise DataError(
                f"{repository.shown}: {file.path} differs from what the Hub lists ({file.size:,} "
                f"bytes, hash {file.hash}); run the same command again; {_MIRROR}"
            )
    return [folder / file.path for file in files]


def _bounded(most: int) -> Any:
    """A progress bar, on terminals only, that raises ValueError if far more than `most` bytes come.

    huggingface_hub unpacks an encoded answer, which can be of any size.
    """

    def update(bar: Any, n: float | None = 1) -> Any:
        bar.seen += int(n or 0)
        if bar.seen > 2 * most + (1 << 20):  # a transfer may start over
            raise ValueError(f"more than twice the {most:,} bytes that are listed; {_MIRROR}")
        return tqdm.update(bar, n)

    start = partialmethod(tqdm.__init__, disable=None)
    return type("Bounded", (tqdm,), {"seen": 0, "update": update, "__init__": start})


def _client(repository: Repository) -> Any:
    """The client of the Hub, or of the mirror that HF_ENDPOINT names."""
    require_network(repository.shown, repository.first)
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ConfigError(
            f"{repository.shown} needs the package huggingface_hub: pip install '.[hub]', "
            f"{repository.instead}"
        ) from error
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs each of its attempts
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), headers={"Accept-Encoding": "identity"})


@contextmanager
def _explaining(repository: Repository, folder: Path | None = None) -> Iterator[Any]:
    """Yields the client; errors of huggingface_hub, of its client and of the disk become ours."""
    client = _client(repository)
    from huggingface_hub import errors, get_session

    # requests before huggingface_hub 1.0, httpx since.
    transport = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    try:
        yield client
    except (OSError, ValueError, transport.HTTPError) as error:
        if folder and isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise DataError(why_not_written(folder.parent, error)) from error
        status = getattr(getattr(error, "response", None), "status_code", 0)
        known: dict[type[Exception], str] = {
            errors.GatedRepoError: "is gated: ask its owner for access on its page, then set "
            "HF_TOKEN to your access token",
            errors.RepositoryNotFoundError: "is not on the Hub, or is private: check the name, or "
            "set HF_TOKEN to an access token that may read it",
            errors.RevisionNotFoundError: f"has no revision {repository.revision or 'main'}",
        }
        advice = known.get(type(error))
        if not advice and status in (401, 403):
            advice = "is refused: set HF_TOKEN to an access token that may read it, or unset it"
        if advice:
            raise ConfigError(f"{repository.shown} {advice} (HTTP {status})") from error
        raise DataError(
            f"{repository.shown} cannot be fetched ({error.__cause__ or error}); run the same "
            f"command again to continue, {repository.instead}"
        ) from error
