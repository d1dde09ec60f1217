"""Folders that appear whole: written under a name of their own, synced, then renamed.

Several processes may write the same folder, even where locks exclude none (Lustre mounted without
flock, or with localflock): the kernel does not rename a folder onto one that holds files, so the
first rename wins, and the others get TakenError. What a killed process left is removed by the next
one that writes the same folder.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.base.errors import DataError, PipelineError
from pipeline.base.files import sync_directory, temporary_path, why_not_written
from pipeline.base.process_scope import is_abandoned, name_when_whole

# POSIX allows either of the first two for a folder that holds files; the third is for a file.
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class TakenError(PipelineError):
    """Another process published the folder first."""


@contextmanager
def whole_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """An empty folder to write in; it is synced and becomes `path` if the block succeeds.

    replaces: put it in place of an earlier folder. Raises TakenError if `path` holds files by then,
    and DataError if the disk is full or not writable.
    """
    with scratch_folder(path) as written, _naming(path, written):
        yield written
        if not replaces:
            publish_folder(written, path)
            return
        with scratch_folder(path) as earlier:
            publish_folder(written, path, earlier / "replaced")


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """An empty folder next to `path` under a name of its own, removed at the end.

    Raises DataError if it cannot be made.
    """
    place = path.resolve()  # `path` may be `.`, or a link to an empty folder
    scratch = temporary_path(place)
    try:
        scratch.mkdir(parents=True)
    except OSError as error:
        raise DataError(why_not_written(path, error)) from error
    try:
        with suppress(OSError):  # leftovers do no harm
            _remove_abandoned(place, scratch.stat().st_mtime)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def publish_folder(written: Path, path: Path, replaced: Path | None = None) -> None:
    """Sync a folder with all that it holds, and rename it to `path`.

    replaced: gets an earlier folder at `path`, and gives it back if the rename fails. Raises
    TakenError if files are there nevertheless, and OSError.
    """
    place = path.resolve()
    _sync_all(written)
    if replaced is not None and place.exists():
        with suppress(FileNotFoundError):  # another process did it just now
            place.rename(replaced)
    try:
        written.rename(place)
    except OSError as error:
        if error.errno not in _TAKEN:
            if replaced is not None:
                with suppress(FileNotFoundError):
                    replaced.rename(place)
            raise
        raise TakenError(
            f"{path} was written by another process meanwhile, and is kept; name another one if "
            "you want both"
        ) from error
    sync_directory(place.parent)


@contextmanager
def _naming(path: Path, scratch: Path) -> Iterator[None]:
    """Errors inside name `path` instead of `scratch`, which no longer exists when they are read."""
    try:
        yield
    except OSError as error:
        raise DataError(why_not_written(path, error)) from error
    except DataError as error:
        raise DataError(str(error).replace(str(scratch), str(path)), error.file) from error


def _sync_all(folder: Path) -> None:
    """Make a folder survive a power failure; files that are synced already cost no wait."""
    for directory, _, files in os.walk(folder, topdown=False):
        for name in files:
            descriptor = os.open(Path(directory, name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(directory))


def _remove_abandoned(path: Path, now: float) -> None:
    """Remove scratch folders of killed processes; now: by the clock of their file system."""
    for folder in path.parent.iterdir():
        is_ours = name_when_whole(folder) == path.name
        if is_ours and is_abandoned(folder, now - _last_write(folder)):
            shutil.rmtree(folder, ignore_errors=True)


def _last_write(folder: Path) -> float:
    """Time of the last change in a folder; files that vanish meanwhile do not count."""
    newest = 0.0
    for directory, _, files in os.walk(folder):
        for path in (Path(directory), *(Path(directory, name) for name in files)):
            with suppress(FileNotFoundError):
                newest = max(newest, path.lstat().st_mtime)
    return newest
