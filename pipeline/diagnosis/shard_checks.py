"""Shards as a rank sees them: every file with its size, a sample of hashes, the recipe's settings,
and the room to stage them on the node's own disk.

The ranks of a node share its files. The quick form stops after a second and says how far it came.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.config.run import Run
from pipeline.data.shards.manifest import Manifest, Shard, check_size, hash_file, read_manifest
from pipeline.diagnosis.checks import FAIL, WARN, Check, judge, judge_error
from pipeline.diagnosis.own_rank import LaunchPlace
from pipeline.execution.threads import on_threads
from pipeline.loading import compatibility
from pipeline.loading.staging import staged_bytes

GB = 1e9
QUICK_SECONDS = 1.0
_COPY = "copy them again, or run pipeline.prepare into a new directory"


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """A prepared directory that is looked at, not opened."""

    directory: Path
    manifest: Manifest

    def files(self) -> list[tuple[str, int, str]]:
        """Path, bytes and xxh3_64 of every file that the manifest names."""
        other = [(name, e["bytes"], e["xxh3_64"]) for name, e in self.manifest.files.items()]
        shards = [file for shard in self.manifest.shards for file in shard.files()]
        return other + [(file.file, file.bytes, file.xxh3_64) for file in shards]


def check_shard_files(
    directories: Sequence[Path], placement: LaunchPlace, run: Run | None, seconds: float
) -> tuple[list[Check], dict[str, str]]:
    """The checks of this rank's part, and the fingerprint of each directory as this node sees it.

    run: the settings to train with, if they are known; seconds: per directory, for sizes and for
    hashes each.
    """
    found, fingerprints, folders = [], {}, []
    for directory in directories:
        try:
            folders.append(ShardFolder(directory, read_manifest(directory)))
        except (DataError, OSError) as error:
            found.append(judge(f"shards {directory}", str(error), FAIL, "complete", _COPY))
            fingerprints[str(directory)] = "missing"
            continue
        fingerprints[str(directory)] = folders[-1].manifest.fingerprint
        is_skipped = run is not None and run.data.damaged == "skip"
        wrong = WARN if is_skipped else FAIL
        found += _check_files(folders[-1], placement, seconds, wrong)
    if run and folders and len(folders) == len(directories):
        found.append(_check_settings(folders, run))
    return found, fingerprints


def _check_files(
    folder: ShardFolder, placement: LaunchPlace, seconds: float, wrong: str
) -> list[Check]:
    every = folder.files()
    mine = every[placement.local_rank :: placement.local_size]
    name = f"shards {folder.directory}"
    end, looked = time.monotonic() + seconds, 0
    # on threads, as a network file system takes its time for each size
    for error in on_threads(lambda file: _size_error(folder, file[0], file[1]), mine):
        if error:
            return [judge(name, error, wrong, "every file, with its size", _COPY)]
        looked += 1
        if time.monotonic() > end:
            break
    hashed, damaged = _hash_sample(folder, mine, seconds)
    if damaged:
        return [judge(name, damaged, wrong, "the manifest's hashes", _COPY)]
    whole = looked == len(mine)
    value = f"{looked:,} of {len(mine):,} files have their size, {hashed} their hash"
    return [
        judge(
            name,
            value,
            "" if whole else WARN,
            "all files",
            "verify once: pipeline.inspect --verify",
        )
    ]


def _size_error(folder: ShardFolder, file: str, size: int) -> str:
    try:
        check_size(folder.directory, file, size)
    except (DataError, OSError) as error:
        return str(error)
    return ""


def _hash_sample(
    folder: ShardFolder, files: Sequence[tuple[str, int, str]], seconds: float
) -> tuple[int, str]:
    """Number of files, in random order, that have their hash; and the first that has another."""
    end, hashed, spent = time.monotonic() + seconds, 0, 0
    # unseeded, so that every doctor hashes other files
    for file, size, expected in random.sample(files, len(files)):
        rate = spent / max(1e-3, seconds - (end - time.monotonic()))
        if hashed and (time.monotonic() > end or size > rate * (end - time.monotonic())):
            break
        if not hashed and size > 256 << 20:  # seconds on a slow file system
            continue
        found = hash_file(folder.directory / file)
        if found != expected:
            path = folder.directory / file
            return hashed, f"{path} is damaged: xxh3_64 {found}, the manifest says {expected}"
        hashed, spent = hashed + 1, spent + size
    return hashed, ""


def _check_settings(folders: Sequence[ShardFolder], run: Run) -> Check:
    name = "shards fit the recipe"
    try:
        compatibility.check_shards(run, folders, "")
    except DataError as error:
        return judge_error(name, error, "the recipe's settings")
    return judge(name, run.name, "")


def compare_fingerprints(found: Sequence[dict[str, str]]) -> list[Check]:
    """Check that all ranks see the same shards; found: those of each rank."""
    checks = []
    for directory in found[0]:
        seen = [fingerprints.get(directory, "missing") for fingerprints in found]
        others = [rank for rank, value in enumerate(seen) if value != seen[0]]
        value = f"{seen[0][:16]} on all ranks"
        if others:
            value = f"{seen[others[0]][:16]} on rank {others[0]}, {seen[0][:16]} on rank 0"
        checks.append(
            judge(
                f"fingerprint {directory}",
                value,
                FAIL if others else "",
                "the same on all ranks",
                "give every node the same copy of the shards",
            )
        )
    return checks


def check_staging(directories: Sequence[Path], stage: Path) -> list[Check]:
    """Check that the rows, and the masks of a pass and the next, fit on the node's disk."""
    found: list[Shard] = []
    for directory in directories:
        try:
            found += read_manifest(directory).of("train")
        except DataError:  # reported with the shards
            continue
    needed = staged_bytes(found)
    # the parent counts for a directory that pipeline.train has yet to make
    place = next(level for level in (stage.absolute(), *stage.absolute().parents) if level.is_dir())
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize  # not f_bfree, of which a part is root's
    return [
        judge(
            "room for --stage", f"{free / GB:.3g} GB free in {place}",
            WARN if free < needed else "", f"at least {needed / GB:.3g} GB",
            "free some space; without it the rest is read from the shared file system",
        )
    ]  # fmt: skip
