"""Atomic file writes: a file is written under a temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from pipeline.base.errors import DataError
from pipeline.base.process_scope import is_abandoned, temporary_ending

_ADVICE = {
    errno.ENOSPC: "free some space", errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit of ulimit -f",
}  # fmt: skip
_BLOCK_BYTES = 1 << 20
MISSING, NOT_A_FILE = -1, -2
"""Stand for the size of a file that has none."""
_PLAIN_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


def temporary_path(path: Path) -> Path:
    """A name next to `path` that nothing else has, until it is renamed to `path`."""
    return path.with_name(f".{path.name}{temporary_ending()}")


def write_whole(path: Path, content: bytes | memoryview, *, lasting: bool = True) -> None:
    """Write `path` so that a crash leaves the old file, no file, or the complete new one.

    lasting=False skips the sync of the directory, which saves a wait for the disk; a later file in
    the same directory then makes the name survive a power failure.
    """
    with _renamed(path, lasting=lasting) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def whole_file(
    path: Path, *, lasting: bool = True, size: int = 0, replaces: bool = True
) -> Iterator[Path]:
    """A temporary path to write to; it is synced and renamed to `path` if the block succeeds.

    size: bytes that it takes, if they are known, for the message; replaces: False keeps a file that
    another process has written meanwhile. Raises DataError if the disk is full or not writable.
    """
    with _renamed(path, lasting=lasting, size=size, replaces=replaces) as temporary:
        yield temporary
        # Any descriptor will do: fsync writes out all of the file, whoever wrote it.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())


@contextmanager
def _renamed(path: Path, *, lasting: bool, size: int = 0, replaces: bool = True) -> Iterator[Path]:
    """`whole_file` for a block that syncs what it writes, without opening it again."""
    temporary = temporary_path(path)
    try:
        yield temporary
        # No lock: a file that appears after this test is replaced by an equally whole one.
        if not replaces and path.exists():
            temporary.unlink()
            return
        temporary.replace(path)  # atomic: readers see either file
        if lasting:
            sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(why_not_written(path, error, size)) from error
    except BaseException:  # Ctrl-C, too
        temporary.unlink(missing_ok=True)
        raise


def why_not_written(path: Path, error: OSError, size: int = 0) -> str:
    """Message for the user if `path` cannot be written; size: bytes it takes, 0 if unknown."""
    advice = _ADVICE.get(error.errno or 0, "fix this")
    needed = f", which takes {size / 1e6:,.1f} MB" if size else ""
    reason = error.strerror or error
    return f"cannot write {path}{needed}: {reason}; {advice} and rerun: nothing is lost"


def size_of(path: Path | int) -> int:
    """Bytes of a plain file, else MISSING or NOT_A_FILE; asks the file system once.

    path: a path, or an open descriptor.
    """
    try:
        found = os.stat(path)  # noqa: PTH116, as Path has no descriptors
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # a link to itself
            raise
        return MISSING
    return found.st_size if stat.S_ISREG(found.st_mode) else NOT_A_FILE


def read_plain(path: Path, most: int = 1 << 28) -> bytes:
    """The content of a small file.

    Raises ValueError for a pipe, which may never end, a device or a folder, and for more than
    `most` bytes; OSError if it cannot be read.
    """
    size = size_of(path)
    if size == NOT_A_FILE:
        raise ValueError(f"{path.name} is not a plain file")
    if size > most:
        raise ValueError(f"{path.name} has {size:,} bytes, more than the {most:,} that are read")
    return path.read_bytes()


def bytes_in(folder: Path) -> int:
    """The size of all files below a folder, 0 if it is missing; a link counts as itself."""
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # renamed meanwhile
                size += Path(directory, name).lstat().st_size
    return size


def is_plain_name(name: str) -> bool:
    """True if this is the name of a file, not a path that could leave a directory."""
    return bool(_PLAIN_NAME.fullmatch(name))


def make_directory(directory: Path, remedy: str = "set TENFOLD_ROOT") -> None:
    """Create the directory if needed. Raises DataError with the remedy if that fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to {directory}: {error.strerror}; {remedy}") from error


def remove_temporaries(directory: Path) -> None:
    """Remove files that were not renamed yet when their processes ended."""
    for path in directory.glob(".*.tmp"):
        with suppress(OSError):  # another process removes it, or it stays and does no harm
            if path.is_file() and is_abandoned(path, time.time() - path.stat().st_mtime):
                path.unlink()


def digest_of(path: Path, digest: hashlib._Hash) -> str:
    """The hexadecimal digits of `digest` once it has read all of a file."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def one_at_a_time(path: Path, seconds: float | None = None) -> Iterator[IO[Any] | None]:
    """Hold an exclusive lock on the file `path`.

    Yields the open file, for child processes to keep the lock; None on a file system without
    locks, where several processes may be inside. seconds: how long to wait for the lock, None for
    ever. Raises DataError if that is too short.
    """
    is_alone: bool | None = True
    with open_lock(path) as lock:
        if seconds is None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:  # a file system without locks
                is_alone = False
        else:
            end = time.monotonic() + seconds
            while (is_alone := try_lock(lock)) is False:  # None: without locks, do not wait
                if time.monotonic() > end:
                    raise DataError(f"{path} is locked by another process; rerun when it has ended")
                time.sleep(0.1)
        yield lock if is_alone else None


def open_lock(path: Path) -> BinaryIO:
    """The lock file `path`, opened and made if needed; what it holds is not changed.

    Raises DataError if it is a link: another user of the directory could have set it, and
    whatever it leads to would be opened for writing.
    """
    return _open_lock(path, os.O_CREAT)


def _open_lock(path: Path, flags: int) -> BinaryIO:
    try:  # for writing, because NFS has no exclusive locks on files that are only read
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DataError(
            f"{path} is a link, but a lock must be a plain file; see where it leads, "
            "remove it and rerun"
        ) from error
    return os.fdopen(descriptor, "r+b", buffering=0)


def try_lock(file: IO[Any]) -> bool | None:
    """Take the exclusive lock on an open file, or False if another process holds it.

    None on a file system without locks. The lock ends when the file is closed.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_locked(path: Path) -> bool:
    """True if a process holds the lock on the file `path` now; False if that is unknown.

    Changes nothing. Raises DataError if `path` is a link.
    """
    try:
        with _open_lock(path, 0) as lock:
            return try_lock(lock) is False
    except (FileNotFoundError, PermissionError):
        return False
