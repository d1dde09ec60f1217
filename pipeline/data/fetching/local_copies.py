"""Copies of published files: fetched when they are needed, and removed when they are used.

A copy that is kept has the file's published path below the downloads, so a mirror made by other
means (rsync, `aws s3 sync`) is found there. A copy that is needed for a while has a hidden name in
the same folder; if its process is killed, the next one uses it, or removes it if it was all done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory
from pipeline.data.documents.records import PublishedFile, Source
from pipeline.data.fetching.http_files import fetch_file, partial_path
from pipeline.data.fetching.http_requests import is_gone
from pipeline.data.fetching.kept_lists import LIST
from pipeline.execution.workers import Executor, Stage


@dataclass(frozen=True, slots=True)
class FetchTask:
    """One published file to fetch and keep."""

    source: Source

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.source.size

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"fetch {self.source.name}"

    @property
    def marker(self) -> str:
        """Its path, which is in no directory's listing: only missing files become tasks."""
        return self.source.path


def is_here(source: Source) -> bool:
    """Whether a published file has a copy that is kept. Raises DataError if it has another size."""
    path = Path(source.path)
    if not path.exists():
        return False
    size = path.stat().st_size
    if size != source.size:
        raise DataError(
            f"{path} has {size:,} bytes, and {source.size:,} are published; remove it to fetch it "
            "again"
        )
    return True


def fetch_all(sources: list[Source], downloads: Path, executor: Executor) -> None:
    """Fetch the published files that have no copy, and keep them."""
    make_directory(downloads)
    tasks = [FetchTask(source) for source in sources if not is_here(source)]
    executor.run(Stage(downloads, _start), tasks)


def _start() -> Callable[[FetchTask], None]:
    return _fetch_and_keep


def _fetch_and_keep(task: FetchTask) -> None:
    assert task.source.published
    _fetch(task.source.published, Path(task.source.path), task.source)


def fetched(source: Source) -> Source:
    """The source with a file to read. Several processes may ask for it: one fetches it."""
    file = source.published
    if file is None:
        return source
    if is_here(source):
        return replace(source, mtime_ns=Path(source.path).stat().st_mtime_ns)
    place = Path(source.path) if file.is_kept else passing_path(source)
    _fetch(file, place, source)
    return replace(source, path=str(place), mtime_ns=place.stat().st_mtime_ns)


def remove_copy(source: Source) -> None:
    """Remove the copy of a published file that is not to be kept, or the beginning of one."""
    if source.published:
        for path in _passing(source):
            path.unlink(missing_ok=True)


def passing_path(source: Source) -> Path:
    """Where a copy is that is not to be kept."""
    assert source.published
    return partial_path(source.published, Path(source.path)).with_suffix(".copy")


def remove_copies(sources: list[Source]) -> None:
    """Remove what killed processes left of published files that are no longer needed."""
    folders: dict[Path, list[Source]] = {}
    for source in sources:
        if source.published:
            folders.setdefault(Path(source.path).parent, []).append(source)
    for folder, its in folders.items():
        there = {path.name for path in folder.glob(".*")} if folder.exists() else set()
        for source in its:
            if any(path.name in there for path in _passing(source)):
                remove_copy(source)


def _passing(source: Source) -> tuple[Path, Path]:
    copy = passing_path(source)
    return copy, copy.with_suffix(".part")


def _fetch(file: PublishedFile, place: Path, source: Source) -> None:
    try:
        fetch_file(file, place, Path(source.path.removesuffix(file.path)))
    except DataError as error:
        if not is_gone(error):
            raise
        raise DataError(
            f"{error}; it was there when it was listed: remove {Path(source.path).parent / LIST} "
            "and rerun, with --skip-missing to go on without a file of --months"
        ) from error
