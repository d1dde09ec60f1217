"""A prepared directory -> a copy on a node's own disk, with only the masks a run will read soon.

These are duplicate 0 for validation rows, and the requested duplicates for train rows: none if the
loader draws masks.

One process per node stages. Files appear whole or not at all, and files that are present are not
copied again, so a restarted run resumes the copy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import xxhash

from pipeline.data.shards.manifest import MANIFEST, TRAIN, check_size, read_manifest
from pipeline.errors import DataError

_CHUNK = 1 << 22


def stage(directory: Path, destination: Path, duplicates: Iterable[int]) -> Path:
    """Copy manifest, tokenizer, rows and the masks of `duplicates` below `destination`.

    Returns the copy's directory, for `Dataset.open`. Checks sizes and xxh3_64 while copying. Raises
    DataError naming a file that differs, a missing duplicate, or the disk space needed.
    """
    manifest = read_manifest(directory)
    wanted = sorted(set(duplicates))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < manifest.duplicates:
        raise DataError(f"{directory} has duplicates 0 to {manifest.duplicates - 1}, not {wanted}")
    target = destination / directory.resolve().name
    target.mkdir(parents=True, exist_ok=True)
    described = (directory / MANIFEST).read_bytes()
    copied = target / MANIFEST
    if copied.exists() and copied.read_bytes() != described:
        raise DataError(f"{target} holds a copy of other data; remove it or stage somewhere else")
    files = [(shard.file, shard.bytes, shard.xxh3_64) for shard in manifest.shards]
    for shard in manifest.shards:
        chosen = [shard.masks[k] for k in (wanted if shard.split == TRAIN else [0])]
        files += [(mask.file, mask.bytes, mask.xxh3_64) for mask in chosen]
    missing = [file for file in files if not _is_there(target / file[0], file[1])]
    _check_room(target, sum(size for _, size, _ in missing))
    for name, size, expected in missing:
        _copy(check_size(directory, name, size), target / name, expected)
    if (directory / "tokenizer").is_dir():
        shutil.copytree(directory / "tokenizer", target / "tokenizer", dirs_exist_ok=True)
    _copy(directory / MANIFEST, copied, xxhash.xxh3_64(described).hexdigest())
    return target


def _is_there(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size == size


def _check_room(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target).free
    if needed > free:
        raise DataError(
            f"{target} has {free / 1e9:.1f} GB free, staging needs {needed / 1e9:.1f} GB; "
            "stage fewer duplicates or somewhere else"
        )


def _copy(source: Path, target: Path, expected: str) -> None:
    """Copy one file under a temporary name and rename it, hashing the bytes on the way."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    digest = xxhash.xxh3_64()
    try:
        with source.open("rb") as reader, temporary.open("wb") as writer:
            while chunk := reader.read(_CHUNK):
                digest.update(chunk)
                writer.write(chunk)
        if digest.hexdigest() != expected:
            raise DataError(
                f"{source} is damaged: xxh3_64 {digest.hexdigest()}, the manifest says {expected}; "
                "copy it again or run pipeline.prepare into a new directory"
            )
        temporary.replace(target)
    except OSError as error:
        raise DataError(f"cannot stage {source} to {target}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
