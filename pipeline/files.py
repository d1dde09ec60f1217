"""Files that are either whole or absent: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.errors import DataError


def write_whole(path: Path, content: bytes | memoryview, *, lasting: bool = True) -> None:
    """Write `path` so that a crash leaves the old file, or none, or the whole new one.

    lasting=False leaves it to a later file of the same directory to make the name survive a power
    cut, which is one wait for the disk less.
    """
    with whole_file(path, lasting=lasting) as temporary, temporary.open("wb") as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, lasting: bool = True) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path`, on disk, when the block ends well.

    DataError when the disk is full or cannot be written.
    """
    # not the process number: another node, or container, has the same ones
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        if lasting:
            sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(_why(path, error)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _why(path: Path, error: OSError) -> str:
    advice = "free some space" if error.errno == errno.ENOSPC else "mend that"
    reason = error.strerror or error
    return f"cannot write {path}: {reason}; {advice} and run again: nothing is lost"


def make_directory(directory: Path) -> None:
    """Have it there; DataError when it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write to {directory}: {error.strerror}; set TENFOLD_ROOT"
        ) from error


def remove_temporaries(directory: Path) -> None:
    """Remove what crashed writers left in `directory`; only where nobody else writes."""
    for path in directory.glob(".*.tmp"):
        path.unlink()


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until this process alone holds the file `path`; on a file system without locks, hope."""
    with path.open("w") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def only_once(target: Path) -> Iterator[Path | None]:
    """A temporary path, which becomes `target` as `files.whole_file` says; None when it is there.

    Of several that want the same file one makes it, and the others wait.
    """
    with one_at_a_time(target.with_name(f".{target.stem}.lock")):
        if target.exists():
            yield None
            return
        with whole_file(target) as temporary:
            yield temporary
