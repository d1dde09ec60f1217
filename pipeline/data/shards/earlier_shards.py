"""`--against SHARDS...`: directories of earlier shards -> the signatures of their documents.

Signatures are found by fingerprint, not by path, so shards can be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.base.command_line import data_root
from pipeline.base.errors import ConfigError
from pipeline.data.selection.signature_store import (
    SIGNATURES,
    EarlierShards,
    is_stored,
    read_store,
    require_comparable,
)
from pipeline.data.shards.manifest import Manifest, read_manifest


def signatures_of(manifest: Manifest) -> Path:
    """Folder of the signatures of some shards' documents, if they were kept."""
    return signatures_folder(manifest.fingerprint)


def signatures_folder(fingerprint: str) -> Path:
    """Folder of the signatures of shards that `prepare` made."""
    return data_root() / SIGNATURES / fingerprint


def read_earlier(
    directories: Sequence[Path], output: Path | None = None
) -> tuple[EarlierShards, ...]:
    """The shards that --against names, in this order; output: that of --output.

    Raises ConfigError if one cannot be compared with, and DataError if it is damaged.
    """
    found: dict[Path, tuple[Path, EarlierShards]] = {}
    for directory in directories:
        if output is not None and directory.resolve() == output.resolve():
            raise ConfigError(f"--against {directory} is the --output; name another one of them")
        manifest = read_manifest(directory)
        place = signatures_of(manifest)
        if place in found:
            other = found[place][0]
            same = "is named twice" if other == directory else f"has the documents of {other}"
            raise ConfigError(f"--against {directory} {same}; name it once")
        found[place] = (directory, _read(directory, manifest, place))
    return tuple(shards for _, shards in found.values())


def _read(directory: Path, manifest: Manifest, place: Path) -> EarlierShards:
    if not is_stored(place):
        raise ConfigError(
            f"--against {directory}: {place} has no signatures of its documents; prepare it again "
            "with --keep-signatures, which makes only these, or set TENFOLD_ROOT to where they are"
        )
    store = read_store(place)
    require_comparable(store, directory)
    return EarlierShards(manifest.fingerprint, store)
