"""Copies of published files: fetched when they are needed, and removed when they are used.

A copy that is kept has the file's published path below the downloads, so a mirror made by other
means (rsync, `aws s3 sync`) is found there. A copy that is needed for a while has a hidden name in
the same folder; if its process is killed, the next one uses it, or removes it if it was all done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory
from pipeline.execution.workers import Executor, Stage
from pipeline.remote.http import is_gone
from pipeline.remote.http_files import fetch_file, partial_path
from pipeline.remote.kept_lists import LIST, PublishedFile


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One published file to fetch and keep."""

    file: PublishedFile

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.file.size

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"fetch {self.file.place.name}"

    @property
    def marker(self) -> str:
        """Its path, which is in no directory's listing: only missing files become tasks."""
        return self.file.path


def is_here(file: PublishedFile) -> bool:
    """Whether a file has a copy that is kept. Raises DataError if that has another size."""
    if not file.place.exists():
        return False
    size = file.place.stat().st_size
    if size != file.size:
        raise DataError(
            f"{file.place} has {size:,} bytes, and {file.size:,} are published; remove it to fetch "
            "it again"
        )
    return True


def fetch_all(files: list[PublishedFile], executor: Executor) -> None:
    """Fetch the files of a publisher that have no copy, and keep them."""
    tasks = [FetchTask(file) for file in files if not is_here(file)]
    if tasks:
        downloads = tasks[0].file.downloads
        make_directory(downloads)
        executor.run(Stage(downloads, _start), tasks)


def _start() -> Callable[[FetchTask], None]:
    return _fetch_and_keep


def _fetch_and_keep(task: FetchTask) -> None:
    _fetch(task.file, task.file.place)


def fetched(file: PublishedFile) -> Path:
    """A copy to read. Several processes may ask for it: one fetches it."""
    if is_here(file):
        return file.place
    place = file.place if file.is_kept else passing_path(file)
    _fetch(file, place)
    return place


def passing_path(file: PublishedFile) -> Path:
    """Where a copy is that is not to be kept."""
    return partial_path(file, file.place).with_suffix(".copy")


def remove_copies(files: Iterable[PublishedFile]) -> None:
    """Remove copies that are not to be kept, and what killed processes left of them."""
    folders: dict[Path, list[PublishedFile]] = {}
    for file in files:
        folders.setdefault(file.place.parent, []).append(file)
    for folder, its in folders.items():
        # One listing a folder: there may be thousands of files, and mostly nothing to remove.
        there = {path.name for path in folder.glob(".*")} if folder.exists() else set()
        for file in its:
            copy = passing_path(file)
            for path in (copy, copy.with_suffix(".part")):
                if path.name in there:
                    path.unlink(missing_ok=True)


def _fetch(file: PublishedFile, place: Path) -> None:
    try:
        fetch_file(file, place)
    except DataError as error:
        if not is_gone(error):
            raise
        raise DataError(
            f"{error}; it was there when it was listed: remove {file.place.parent / LIST} and "
            "rerun, with --skip-missing to go on without a file of --months"
        ) from error
