"""`--exclude FILE`: documents that are dropped by name, such as those that someone wants removed.

FILE has an id or a URL per line: the `id` or the `origin` of documents.parquet, spelled as there.
A file's hash is part of the fingerprint, so other names give other shards.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.ingest.documents.records import Rewriting

EXCLUDED = "excluded"
"""Reason of documents that are dropped so."""


def find_excluded(rewriting: Rewriting, file: Path) -> Rewriting:
    """The rewriting that also drops the documents named in `file`.

    Raises ConfigError if it is not a plain file of text that names a document.
    """
    path = file.absolute()
    if not path.is_file():
        raise ConfigError(f"--exclude {file}: no such file; give one with an id or URL per line")
    content = path.read_bytes()
    found = rewriting._replace(excluded=str(path), excluded_hash=_hash(content))
    if not load_excluded(found):
        raise ConfigError(f"--exclude {file} is empty; give an id or URL per line, or omit it")
    return found


def load_excluded(rewriting: Rewriting) -> frozenset[str]:
    """The ids and URLs that a rewriting drops; empty if it drops none.

    Raises ConfigError if the file is not UTF-8, or has changed since `find_excluded`.
    """
    if not rewriting.excluded:
        return frozenset()
    return _read_names(rewriting.excluded, rewriting.excluded_hash)


# once per worker, not once per batch
@lru_cache(maxsize=1)
def _read_names(path: str, expected: str) -> frozenset[str]:
    content = Path(path).read_bytes()
    if _hash(content) != expected:
        raise ConfigError(f"--exclude: {path} changed while the command ran; run it again")
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"--exclude: {path}:{line} is not UTF-8; give an id or URL per line"
        ) from error
    return frozenset(name for line in lines if (name := line.strip()))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
