"""The files that an input names: directories are walked, globs expanded, each real file read once.

A file is found with one call, which tells its size and time, too; its format takes three more
(`sniff`): to open, read and close it. Threads share these calls, as each waits where files are on a
network. A corpus can have a million files, so a file is a tuple of at most 300 bytes.

A file has the name, in ids and messages, that it has below the given directory, or its own name if
it is given itself. If two files would have the same name, all names are paths below the directory
that holds all of them. So names do not contain the machine's directories.
"""

from __future__ import annotations

import errno
import glob
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from pipeline.base.errors import DataError, shown_name
from pipeline.base.skipped_names import SkippedNames, is_skipped_name
from pipeline.execution.threads import on_threads
from pipeline.ingest.corpora.dataset_folders import Dataset, find_datasets
from pipeline.ingest.documents.records import State

THREADS = 8
"""Threads that ask the file system at the same time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class InputFile(NamedTuple):
    """A file of the input."""

    prefix: str
    """The path up to the name."""
    name: str
    """The end of the path that tells it from the other files."""
    is_given: bool
    """True if it was named itself or by a glob, not found in a directory."""
    is_linked: bool
    """True if a symbolic link leads to it."""
    place: int | None = None
    """Device and inode, which are of one file; None if it was named and does not exist."""
    size: int = -1
    """Bytes on disk; -1 unless it is a plain file."""
    mtime_ns: int = 0

    @property
    def path(self) -> str:
        """As it was given, or below the directory that was."""
        return self.prefix + self.name

    @property
    def label(self) -> str:
        """The name on one line, for ids and messages. Raises DataError if it is not UTF-8."""
        try:
            self.name.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"input file {self.name!r} has a name that is not UTF-8; rename it"
            ) from error
        return self.name if self.name.isprintable() else shown_name(self.name)

    @property
    def state(self) -> State | None:
        """Size and time when it was found; None unless it is a plain file."""
        return None if self.size < 0 else (self.size, self.mtime_ns)


def find_files(inputs: list[str]) -> list[InputFile]:
    """The files of `inputs`, by label, each real file once; a file that was named may not exist.

    An empty file in a directory is skipped, and what `skipped_names` lists, which is reported, as
    are the splits of datasets other than train. Raises DataError for a directory that cannot be
    read, a broken link, a name that is not UTF-8, and two files with one label.
    """
    skipped = SkippedNames()
    files, datasets = list[InputFile](), list[Dataset]()
    for given in inputs:
        some = [*files_of(given, skipped)]
        for dataset in find_datasets(given, partial(_walked_paths, some)):
            omitted = dataset.omitted()
            some = [file for file in some if Path(file.path) not in omitted]
            datasets.append(dataset)
        files += some
    skipped.tell(" ".join(inputs[:1]) + (" ..." if inputs[1:] else ""))
    if datasets:
        paths = {Path(file.path) for file in files}
        for note in filter(None, (dataset.note(paths) for dataset in datasets)):
            print(note, file=sys.stderr, flush=True)
    files = _with_different_names(_once(files))
    files.sort(key=attrgetter("name"))
    if not all(file.name.isprintable() for file in files):
        files.sort(key=attrgetter("label"))
        for one, other in itertools.pairwise(files):
            if one.label == other.label:
                raise DataError(
                    f"{one.path!r} and {other.path!r} would both be called {one.label}; rename one"
                )
    return files


def _walked_paths(files: list[InputFile]) -> Iterator[str]:
    return (file.path for file in files if not file.is_given)


def files_of(given: str, skipped: SkippedNames) -> Iterator[InputFile]:
    """A file, or the files of a directory or glob; the file may not exist.

    skipped: gets what is skipped.
    """
    if Path(given).is_dir():
        yield from _walk(given, skipped)
        return
    matched = [] if Path(given).exists() else in_threads(_named_file, _glob(given))
    yield from [file for file in matched if file.size >= 0] or [_named_file(given)]


def in_threads(
    do: Callable[[Item], Result], items: Iterable[Item], at_once: int = 64
) -> Iterator[Result]:
    """The results of a function that waits for the file system, in order.

    at_once: items that a thread takes at a time.
    """

    def do_some(some: list[Item]) -> list[Result]:
        return [do(item) for item in some]

    left = iter(items)
    batches = iter(lambda: [*itertools.islice(left, at_once)], [])
    return itertools.chain.from_iterable(on_threads(do_some, batches, THREADS))


def is_path(given: str) -> bool:
    """True if a path exists or a glob matches a file."""
    return Path(given).exists() or any(Path(found).is_file() for found in _glob(given))


def _glob(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)


def _named_file(given: str) -> InputFile:
    """A file that was named itself or by a glob."""
    path = Path(given)
    file = InputFile(os.path.join(path.parent, ""), path.name, is_given=True, is_linked=False)  # noqa: PTH118 (a prefix)
    with suppress(OSError):  # `sniff` names the problem
        found = path.lstat()
        is_linked = stat.S_ISLNK(found.st_mode)
        file = _with_state(file._replace(is_linked=is_linked), path.stat() if is_linked else found)
    return file


def _with_state(file: InputFile, found: os.stat_result) -> InputFile:
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return file._replace(place=_place(found), size=size, mtime_ns=found.st_mtime_ns)


def _place(found: os.stat_result) -> int:
    return found.st_dev << 64 | found.st_ino  # one integer, smaller than a pair


# --- directories


class _Folder(NamedTuple):
    path: str
    is_linked: bool
    """True if a link below the given directory leads to it."""


class _Listing(NamedTuple):
    place: int
    folders: list[os.DirEntry[str]]
    files: list[os.DirEntry[str]]
    skipped: list[str]
    """Names."""


def _walk(given: str, skipped: SkippedNames) -> Iterator[InputFile]:
    """Non-empty files below a directory, without names that are skipped, each folder once."""
    prefix = os.path.join(given, "")  # noqa: PTH118 (a prefix)
    seen = set[int]()  # a link may lead back up
    level, links = [_Folder(given, is_linked=False)], list[_Folder]()

    def files_of_level() -> Iterator[tuple[_Folder, os.DirEntry[str]]]:
        below = list[_Folder]()
        for folder, listing in zip(level, in_threads(_list, level, at_once=1)):
            if listing.place in seen:
                continue
            seen.add(listing.place)
            for entry in listing.folders:
                is_link = entry.is_symlink()
                inner = _Folder(entry.path, folder.is_linked or is_link)
                (links if is_link else below).append(inner)
            skipped.add(os.path.join(folder.path, name)[len(prefix) :] for name in listing.skipped)  # noqa: PTH118 (strings)
            yield from ((folder, entry) for entry in listing.files)
        level[:] = below

    while level:
        for file in in_threads(lambda found: _found(prefix, *found), files_of_level()):
            if file:
                yield file
        if not level:  # links last, so that a folder that is reached both ways has its real name
            level, links = links, []


def _list(folder: _Folder) -> _Listing:
    """The entries of a folder, by name."""
    try:
        listing = _Listing(_place(Path(folder.path).stat()), [], [], [])
        with os.scandir(folder.path) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
                is_folder = is_folder_entry(entry)
                if is_skipped_name(entry.name, is_folder=is_folder):
                    listing.skipped.append(f"{entry.name}/" if is_folder else entry.name)
                else:
                    (listing.folders if is_folder else listing.files).append(entry)
    except OSError as error:
        raise _refusal(error) from error
    if {"blobs", "snapshots"} <= {entry.name for entry in listing.folders}:
        # the Hub's own cache holds each file as a blob, to which a named link leads
        listing.folders[:] = [entry for entry in listing.folders if entry.name != "blobs"]
    return listing


def is_folder_entry(entry: os.DirEntry[str]) -> bool:
    """True for a folder, or a link to one; mostly without asking the file system."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere
        return False


def _found(prefix: str, folder: _Folder, entry: os.DirEntry[str]) -> InputFile | None:
    """A file in a folder; None if it is empty, or no plain file."""
    try:
        found = entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise _refusal(error) from error
        if entry.is_symlink():
            raise DataError(f"{entry.path} is a broken link; fix or remove it") from error
        return None  # it was removed just now
    is_linked = folder.is_linked or entry.is_symlink()
    file = _with_state(InputFile(prefix, entry.path[len(prefix) :], False, is_linked), found)
    return file if file.size > 0 else None


def _refusal(error: OSError) -> DataError:
    return DataError(f"{error.filename} cannot be read: {error.strerror}")


# --- one name for each file


def _differ(keys: Iterable[object]) -> bool:
    """False if two keys are equal, or their hashes are by chance."""
    hashes = np.fromiter(map(hash, keys), np.int64)  # a tenth of a set's memory
    return len(np.unique(hashes)) == len(hashes)


def _once(files: list[InputFile]) -> list[InputFile]:
    """Each real file once, under its real name, else under the first of its names."""
    # as a pair: Python hashes an integer modulo 2^61 - 1, where devices could collide
    if _differ(divmod(file.place, 1 << 64) if file.place else file.path for file in files):
        return files
    kept: dict[object, InputFile] = {}
    for file in sorted(files, key=lambda file: (file.is_linked, file.name, file.path)):
        kept.setdefault(file.place or file.path, file)
    if left_out := len({file.path for file in files}) - len(kept):
        print(f"note: each file is read once; {left_out:,} more link(s) to them are skipped")
    return [*kept.values()]


def _with_different_names(files: list[InputFile]) -> list[InputFile]:
    if _differ(file.name for file in files) or len({file.name for file in files}) == len(files):
        return files
    paths = [os.path.abspath(file.path) for file in files]  # noqa: PTH100 (keeps links)
    base = os.path.join(os.path.commonpath([os.path.dirname(path) for path in paths]), "")  # noqa: PTH118, PTH120 (strings)
    return [file._replace(prefix=base, name=path[len(base) :]) for file, path in zip(files, paths)]
