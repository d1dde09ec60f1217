"""Shards on a shared file system -> copies on a node's own disk, made while training reads.

A `Staging` follows the datasets of one directory, such as thousands of corpora. One process per
node copies the rows and the masks of the current pass, 2.2 bytes per token, then the masks of the
next pass, and removes those of earlier passes.
No reader waits for a copy: a file is read from the shared file system until its copy is there, and
again once the copy is removed. Copies appear whole or not at all, and are hashed on the way, so a
restarted run keeps those that are there.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
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
"""Duplicates on the disk at a time: an epoch's, and the next one's, which is copied ahead."""
_CHUNK = 1 << 22
_LOCK = ".lock"


def staged_bytes(shards: Sequence[Shard]) -> int:
    """Room that the rows and masks of a split need on a node's disk, with what stays free."""
    return RESERVE + sum(
        shard.bytes + sum(mask.bytes for mask in shard.masks[:MASKS_AT_ONCE]) for shard in shards
    )


class StagedPart:
    """The copies of a dataset, which may be one of several corpora of its directory."""

    def __init__(self, copies: Path, shards: tuple[Shard, ...], staging: Staging) -> None:
        """Use `Staging.part`."""
        self.copies = copies
        """Directory of the copies, which have the names of the originals."""
        self.shards = shards
        self.duplicates: tuple[int, ...] | None = None
        """Masks of this pass and the next; None before the first, and when no phase reads them."""
        self.is_waiting = False
        """True while the part is in the queue of the copying thread."""
        self._staging = staging

    def follow(self, pass_number: int) -> None:
        """The loader reads pass `pass_number`, counted from 1."""
        stored = len(self.shards[0].masks)
        soon = () if not stored else ((pass_number - 1) % stored, pass_number % stored)
        if soon != self.duplicates:
            self.duplicates = soon
            self._staging.see(self)

    def files(self) -> list[Shard | MaskFile]:
        """The rows and the masks of this pass and the next, which have copies."""
        duplicates = self.duplicates  # once, as the other thread may change it meanwhile
        if duplicates is None:
            return []
        masks = [shard.masks[k] for k in duplicates for shard in self.shards]
        return [*self.shards, *masks]

    def missing(self, files: Iterable[Shard | MaskFile]) -> list[Shard | MaskFile]:
        """The files among `files` without a copy."""
        # A copy is renamed into place when it is complete, so its size is proof enough.
        return [file for file in files if size_of(self.copies / file.file) != file.bytes]

    def remove_others(self, files: Iterable[Shard | MaskFile]) -> None:
        """Remove the folders without any of `files`."""
        kept = {file.file.partition("/")[0] for file in files}
        for folder in (self.copies / "rows", *self.copies.glob("mask-*")):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)  # memory of mapped files stays


class Staging:
    """The copies of one directory's datasets on the disk of this node, see the module.

    One thread makes them and one lock guards them, however many corpora the directory has.
    """

    def __init__(
        self,
        shared: Path,
        manifest: Manifest,
        root: Path,
        tell: Callable[[str], None],
        announce: bool = True,
        reserve: int = RESERVE,
    ) -> None:
        """shared: the directory; root: a directory on the node's disk, which directories and runs
        may share; tell: prints a line about a problem, or with `announce` also about copies that
        are complete. Raises ConfigError if others can change the copies."""
        self.shared = shared
        name, fingerprint = shared.resolve().name, manifest.fingerprint[:16]
        # Directories of equal names but other shards must not share copies.
        self.copies = root / (name if fingerprint in name else f"{name}-{fingerprint}")
        """Directory of the copies, and of the folders of its parts."""
        with suppress(OSError):  # it cannot be made: `_run` reports this, and there are no copies
            self.copies = own_directory(self.copies, "--stage", "the shards that are read")
        self.parts: dict[str, StagedPart] = {}
        """By `Dataset.part`."""
        self._tell = tell
        self._announce = announce
        self._reserve = reserve
        self._waiting: deque[StagedPart] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._is_full = False
        self.is_copying = False
        """True if this process makes the copies; another run of this node may make them."""
        self._thread: threading.Thread | None = None

    def part(self, shards: tuple[Shard, ...], name: str = "") -> StagedPart:
        """The copies of a dataset with these shards; name: its `Dataset.part`."""
        if name not in self.parts:
            self.parts[name] = StagedPart(self.copies / name, shards, self)
        return self.parts[name]

    def keep(self, names: Collection[str]) -> None:
        """Remove the copies of the parts with other names, which no later step reads."""
        for name in self.parts.keys() - names:
            part = self.parts.pop(name)
            part.duplicates = None
            self.see(part)

    def copy_in_background(self) -> None:
        """Make the copies in this process; call it on one process per node."""
        # daemon: a process that dies in a copy leaves only a temporary file.
        self._thread = threading.Thread(target=self._run, name="staging", daemon=True)
        self._thread.start()

    def see(self, part: StagedPart) -> None:
        """Queue a part, whose wanted files have changed, after those that wait."""
        with self._changed:
            if not part.is_waiting:  # queued once, however often it changes
                part.is_waiting = True
                self._waiting.append(part)
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
                    # Under the lock these are of killed processes: no other process writes here.
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                part = self._waiting.popleft()
                part.is_waiting = False
            files = part.files()
            # Old masks go first, so that the disk has room for the new ones.
            part.remove_others(files)
            self._copy_missing(part, part.missing(files))

    def _copy_missing(self, part: StagedPart, missing: list[Shard | MaskFile]) -> None:
        for number, file in enumerate(missing):
            if self._closed:
                return
            # Looked at before each file, since other runs fill the same disk.
            rest = sum(file.bytes for file in missing[number:])
            free = shutil.disk_usage(self.copies).free
            if file.bytes + self._reserve > free:
                if not self._is_full:
                    self._tell(
                        f"{self.copies} has {free / 1e9:.3g} GB free and {self.shared} needs "
                        f"{rest / 1e9:.3g} GB more; reading the rest from {self.shared}"
                    )
                self._is_full = True
                return
            self._copy(file, part.copies / file.file)
        self._is_full = False
        if missing and not self._waiting:
            self._announce_copies()

    def _announce_copies(self) -> None:
        """Report that all copies exist; of many corpora once, as some start a pass at any time."""
        parts = [*self.parts.values()]
        if self._announce:
            size = sum(file.bytes for part in parts for file in part.files())
            self._tell(
                f"{self.copies} has the rows and masks of this pass and the next, "
                f"{size / 1e9:.3g} GB"
            )
        self._announce = self._announce and len(parts) == 1

    def _copy(self, file: Shard | MaskFile, copy: Path) -> None:
        """Copy one file; an original that is damaged or missing is left to its reader."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        digest = xxhash.xxh3_64()
        try:
            source = check_size(self.shared, file.file, file.bytes)
            # A copy need not survive a power failure: not lasting.
            with whole_file(copy, lasting=False) as temporary, temporary.open("wb") as writer:
                for chunk in _chunks(source):
                    digest.update(chunk)
                    writer.write(chunk)
                    if self._closed:  # `whole_file` then removes what it has
                        raise DataError("stopped")
                if digest.hexdigest() != file.xxh3_64:
                    raise DataError(f"{source} is damaged: its hash does not match the manifest")
        except DataError as error:
            if not self._closed:
                self._tell(f"not copied: {error}")


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as reader:
        while chunk := reader.read(_CHUNK):
            yield chunk
