"""Shards on a shared file system -> copies on a node's own disk, made while training reads.

A `Staging` follows one dataset. One process per node copies the rows and the masks of the current
pass, 2.2 bytes per token, then the masks of the next pass, and removes those of earlier passes.
Nobody waits for a copy: a file is read from the shared file system until its copy is there, and
again once the copy is removed. Copies appear whole or not at all, and are hashed on the way, so a
restarted run keeps those that are there.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import open_lock, remove_temporaries, size_of, try_lock, whole_file
from pipeline.base.private_directories import own_directory
from pipeline.data.shards.manifest import Manifest, MaskFile, Shard, check_size

RESERVE = 1 << 30
"""Bytes of the disk that are left free for others."""
MASKS_AT_ONCE = 2
"""Of an epoch, and of the next, which is copied ahead."""
_CHUNK = 1 << 22
_LOCK = ".lock"


def staged_bytes(shards: Sequence[Shard]) -> int:
    """Room that the rows and masks of a split need on a node's disk, with what stays free."""
    return RESERVE + sum(
        shard.bytes + sum(mask.bytes for mask in shard.masks[:MASKS_AT_ONCE]) for shard in shards
    )


class Staging:
    """The copies of one dataset on the disk of this node, see the module."""

    def __init__(
        self,
        shared: Path,
        manifest: Manifest,
        shards: tuple[Shard, ...],
        root: Path,
        tell: Callable[[str], None],
        announce: bool = True,
        reserve: int = RESERVE,
        part: str = "",
    ) -> None:
        """shared: the dataset's directory; shards: those of the split that is read; root: a
        directory on the node's disk, which datasets and runs may share; tell: prints a line about
        a problem, or with `announce` also about copies that are complete; part: `Dataset.part`.
        Raises ConfigError if others can change the copies."""
        self.shared = shared
        name, fingerprint = shared.resolve().name, manifest.fingerprint[:16]
        name = name if fingerprint in name else f"{name}-{fingerprint}"
        self.copies = root / (f"{name}-{part}" if part else name)
        """Directory of the copies, which have the names of the originals in `shared`."""
        with suppress(OSError):  # it cannot be made: `_run` reports this, and there are no copies
            self.copies = own_directory(self.copies, "--stage", "the shards that are read")
        self._shards = shards
        self._tell = tell
        self._announce = announce
        self._reserve = reserve
        self._duplicates: tuple[int, ...] | None = None
        """Masks of this pass and the next; None before the first."""
        self._changed = threading.Condition()
        self._closed = False
        self.is_copying = False
        """Whether this process makes the copies; another run of this node may make them."""
        self._thread: threading.Thread | None = None

    def copy_in_background(self) -> None:
        """Make the copies in this process; call it on one process per node."""
        self._thread = threading.Thread(target=self._run, name="staging", daemon=True)
        self._thread.start()

    def follow(self, pass_number: int) -> None:
        """The loader reads pass `pass_number`, counted from 1."""
        stored = len(self._shards[0].masks)
        soon = () if not stored else ((pass_number - 1) % stored, pass_number % stored)
        if soon != self._duplicates:
            with self._changed:
                self._duplicates = soon
                self._changed.notify()

    def close(self, remove: bool = False) -> None:
        """Stop copying; remove: also remove the copies that this process made."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread:
            self._thread.join()
            if remove and self.is_copying:
                shutil.rmtree(self.copies, ignore_errors=True)

    def _run(self) -> None:
        """Copy what is wanted until `close`."""
        try:
            self.copies.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open_lock(self.copies / _LOCK) as lock:
                if self._locks(lock):
                    remove_temporaries(self.copies)
                    self._copy_until_closed()
        except (OSError, DataError) as error:
            self._tell(f"{self.copies} cannot be written ({error}); reading {self.shared} instead")

    def _locks(self, lock: BinaryIO) -> bool:
        locked = try_lock(lock)
        if locked is None:
            raise DataError("its file system has no locks")
        if not locked:
            self._tell(f"another run copies to {self.copies}; this one reads its copies")
        self.is_copying = locked
        return locked

    def _copy_until_closed(self) -> None:
        done: tuple[int, ...] | None = None
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._has_news, done))
                if self._closed:
                    return
                done = self._duplicates
            assert done is not None
            self._remove_others(done)
            self._copy_all(done)

    def _has_news(self, done: tuple[int, ...] | None) -> bool:
        return self._closed or self._duplicates != done

    def _remove_others(self, duplicates: tuple[int, ...]) -> None:
        kept = {self._shards[0].masks[k].file.partition("/")[0] for k in duplicates}
        for folder in self.copies.glob("mask-*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _copy_all(self, duplicates: tuple[int, ...]) -> None:
        """Copy the rows and the masks `duplicates`, the present pass first."""
        files: list[Shard | MaskFile] = [*self._shards]
        for duplicate in duplicates:
            files += [shard.masks[duplicate] for shard in self._shards]
        missing = [file for file in files if not self._is_there(file)]
        for number, file in enumerate(missing):
            if self._closed:
                return
            rest = sum(file.bytes for file in missing[number:])
            free = shutil.disk_usage(self.copies).free
            if file.bytes + self._reserve > free:
                self._tell(
                    f"{self.copies} has {free / 1e9:.3g} GB free and {self.shared} needs "
                    f"{rest / 1e9:.3g} GB more; reading the rest from {self.shared}"
                )
                return
            self._copy(file)
        if missing and self._announce:
            self._tell(
                f"{self.copies} has the rows and masks of this pass and the next, "
                f"{sum(file.bytes for file in files) / 1e9:.3g} GB"
            )

    def _is_there(self, file: Shard | MaskFile) -> bool:
        return size_of(self.copies / file.file) == file.bytes

    def _copy(self, file: Shard | MaskFile) -> None:
        """Copy one file; an original that is damaged or missing is left to its reader."""
        copy = self.copies / file.file
        copy.parent.mkdir(exist_ok=True)
        digest = xxhash.xxh3_64()
        try:
            source = check_size(self.shared, file.file, file.bytes)
            with whole_file(copy, lasting=False) as temporary, temporary.open("wb") as writer:
                for chunk in _chunks(source):
                    digest.update(chunk)
                    writer.write(chunk)
                    if self._closed:
                        raise DataError("stopped")
                if digest.hexdigest() != file.xxh3_64:
                    raise DataError(f"{source} is damaged: its hash is not the manifest's")
        except DataError as error:
            if not self._closed:
                self._tell(f"not copied: {error}")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as reader:
        while chunk := reader.read(_CHUNK):
            yield chunk
