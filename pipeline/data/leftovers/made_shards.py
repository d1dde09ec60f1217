"""The shards below a directory, and what they were made of.

Shards keep a hash of each span that they read of a file, and of an extracted file the hash of its
raw file (`inputs.parquet`). Extracted files, surveys and decisions keep the same hashes, so equal
hashes tell what was made of what, under whatever name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.typed_json import as_object
from pipeline.data.selection.signature_store import SIGNATURES
from pipeline.data.shards.manifest import INPUTS, MANIFEST, manifest_content
from pipeline.execution.work_directory import WORK

NOT_SHARDS = ("documents", "downloads", "tokenizers", SIGNATURES)
"""Folders of $TENFOLD_ROOT without shards."""


@dataclass(slots=True)
class MadeShards:
    """Shards, complete and unfinished."""

    readers: dict[str, list[str]] = field(default_factory=dict)
    """Directories of shards by the hash of what they were made of, sorted."""
    lineages: dict[str, list[str]] = field(default_factory=dict)
    """Directories by fingerprint of shards: of these, and of those that takedowns made of them."""
    count: int = 0
    """Complete ones."""
    work: list[Path] = field(default_factory=list)
    """Work folders inside complete shards; a run was killed at its very end."""
    doubts: list[str] = field(default_factory=list)
    """Reasons to keep something that no complete shards need."""

    def need(self, hashes: Sequence[str]) -> list[str]:
        """The shards that were made of any of these, sorted."""
        return sorted({name for one in hashes for name in self.readers.get(one, ())})


def read_made_shards(root: Path, others: Sequence[Path]) -> MadeShards:
    """The shards below $TENFOLD_ROOT, and others that the user names.

    Raises ConfigError if one of `others` is not a directory of complete shards.
    """
    for path in others:
        if not (path / MANIFEST).is_file():
            raise ConfigError(f"--data {path} is not a directory of complete shards")
    made = MadeShards()
    for path in sorted({*_shards_below(root), *others}):
        if (path / MANIFEST).exists():
            made.count += 1
            _read(path, made)
            # a link may lead out of the root, where nothing is removed
            if (path / WORK).is_dir() and root.resolve() in (path / WORK).resolve().parents:
                made.work.append(path / WORK)
        else:
            made.doubts.append(f"the unfinished shards in {path} may need it")
    return made


def _shards_below(root: Path) -> Iterator[Path]:
    tops = [path for path in sorted(root.iterdir()) if path.is_dir()]
    for top in tops:
        if top.name in NOT_SHARDS:
            continue
        for folder, names, _ in os.walk(top):  # links below `top` are looked at, not entered
            for path in [Path(folder, name) for name in names] + [top] * (Path(folder) == top):
                if (path / MANIFEST).exists() or (path / WORK).is_dir():
                    names[:] = [name for name in names if name != path.name]  # not below shards
                    yield path


def _read(path: Path, made: MadeShards) -> None:
    try:
        content = as_object(manifest_content(path))
        for one in (content["fingerprint"], *(t["parent"] for t in content.get("takedowns", ()))):
            made.lineages.setdefault(str(one), []).append(str(path))
    except (DataError, ValueError, KeyError, TypeError):
        made.doubts.append(f"{path} does not say which shards they are, and may need it")
    try:
        hashes = pq.read_table(path / INPUTS, columns=["xxh3_64"])["xxh3_64"].unique()
    except (pa.ArrowException, OSError, KeyError):
        made.doubts.append(f"{path} does not say what it was made of, and may need it")
        return
    # distinct: a span of a file may be in many parts
    for one in hashes.to_pylist():
        made.readers.setdefault(one, []).append(str(path))
