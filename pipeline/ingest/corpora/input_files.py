"""The files that an input names: directories are walked, globs expanded, each real file read once.

Files are found with one call each, which tells their size and time, too, and their formats with
three more (`sniff`): to open, read and close. Threads share this, since each call waits where files
are on a network. A corpus can have a million files, so they come one after another, by name. Those
of one folder are Python's objects at a time; of the others, a few bytes are kept (`packed_rows`).
Only if two have the same name, or are the same, all are objects once.

A file has the name, in ids and messages, that it has below the given directory, or its own name if
it is given itself. If two files would have the same name, all names are paths below the directory
that holds all of them. Names do not contain the machine's directories, and are one line of what
prints, see `shown_name`.
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
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from pipeline.base.errors import DataError, shown_name
from pipeline.base.skipped_names import SkippedNames, is_skipped_name
from pipeline.execution.threads import on_threads
from pipeline.ingest.corpora.dataset_folders import (
    CARD,
    JSON_DESCRIPTIONS,
    DatasetFolder,
    find_datasets,
)
from pipeline.ingest.corpora.found_files import FoundFiles, InputFile
from pipeline.ingest.documents.records import State

THREADS = 8
"""Threads that ask the file system at the same time."""

Folders = dict[str, int]
"""When the folders in which files are looked for were last changed: nanoseconds, by path."""
_FOLDERS_AT_ONCE = 4 * THREADS
"""Folders whose entries are in memory at the same time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def find_files(inputs: list[str], folders: Folders | None = None) -> Iterator[InputFile]:
    """The files of `inputs`, by name, each real file once; a file that was named may not exist.

    All are found before the first is yielded. An empty file in a directory is skipped, and what
    `skipped_names` lists, which is reported. folders: gets those that are looked in. Raises
    DataError for a directory that cannot be read, a broken link, and a name that is not UTF-8.
    """
    folders, skipped = {} if folders is None else folders, SkippedNames()
    found = _named(_once(_without_other_splits(inputs, folders, skipped)))
    skipped.tell(" ".join(inputs[:1]) + (" ..." if inputs[1:] else ""))
    if not found.is_printable:
        found = FoundFiles.of(map(_shown, found))
    before = None
    for file in found.by_name():
        if before and before.name == file.name:
            raise DataError(
                f"{before.path!r} and {file.path!r} would both be called {file.name}; rename one"
            )
        yield file
        before = file


_name_of = attrgetter("name")


def _shown(file: InputFile) -> InputFile:
    """The file under the name that ids show. Raises DataError if its name is not UTF-8."""
    try:
        file.name.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"input file {file.name!r} has a name that is not UTF-8; rename it"
        ) from error
    return file if file.name.isprintable() else replace(file, name=shown_name(file.name))


def files_of(given: str, skipped: SkippedNames) -> Iterator[InputFile]:
    """A file, or the files of a directory or glob; the file may not exist.

    skipped: gets what is skipped.
    """
    return _without_cards(_files_and_cards(given, {}, skipped), skipped)


def _files_and_cards(given: str, folders: Folders, skipped: SkippedNames) -> Iterator[InputFile]:
    """The same, with the README.md of folders, which may describe a dataset."""
    path = Path(given)
    if path.is_dir():
        return _walk(path, folders, skipped)
    found = [] if path.exists() else in_threads(_named_file, map(Path, _glob(given)))
    return iter([file for file in found if file.state] or [_named_file(path)])


def _without_cards(files: Iterable[InputFile], skipped: SkippedNames) -> Iterator[InputFile]:
    for file in files:
        if file.is_given or file.base_name != CARD:
            yield file
        else:
            skipped.add([file.name])


def in_threads(
    do: Callable[[Item], Result], items: Iterable[Item], at_once: int = 64
) -> Iterator[Result]:
    """The results of a function that waits for the file system, in order.

    at_once: items that a thread takes at a time.
    """

    def do_some(some: list[Item]) -> list[Result]:
        return [do(item) for item in some]

    results = on_threads(do_some, _batches(items, at_once), THREADS)
    return itertools.chain.from_iterable(results)


def _batches(items: Iterable[Item], at_once: int) -> Iterator[list[Item]]:
    left = iter(items)
    return iter(lambda: [*itertools.islice(left, at_once)], [])


def _named_file(path: Path) -> InputFile:
    """A file that was named itself or by a glob."""
    found, is_linked = None, False
    with suppress(OSError):  # `sniff` names the problem
        found = path.lstat()
        if is_linked := stat.S_ISLNK(found.st_mode):
            found = None
            found = path.stat()
    folder = str(path.parent)
    return InputFile(str(path), path.name, folder, True, is_linked, *_place_and_state(found))


def _place_and_state(found: os.stat_result | None) -> tuple[int | None, State | None]:
    if found is None:
        return None, None
    is_plain = stat.S_ISREG(found.st_mode)
    state = (found.st_size, found.st_mtime_ns) if is_plain else None
    return found.st_dev << 64 | found.st_ino, state  # one integer, smaller than a pair


def is_path(given: str) -> bool:
    """True if a path exists or a glob matches a file."""
    return Path(given).exists() or any(Path(found).is_file() for found in _glob(given))


def _without_other_splits(inputs: list[str], folders: Folders, skipped: SkippedNames) -> FoundFiles:
    """The files without those that datasets in the inputs skip, which are reported on stderr."""
    found = FoundFiles()
    datasets: list[DatasetFolder] = []
    for given in inputs:
        some = FoundFiles.of(_files_and_cards(given, folders, skipped))
        if some.has_dataset:
            files = [*some]
            here = find_datasets(Path(given), [Path(file.path) for file in files])
            some = FoundFiles.of(_without_cards(_not_skipped(files, here), skipped))
            datasets += here
        found.join(some)
    paths = {Path(file.path) for file in found} if datasets else set()
    for note in (dataset.note(paths) for dataset in datasets):
        if note:
            print(note, file=sys.stderr, flush=True)
    return found


def _not_skipped(files: list[InputFile], datasets: list[DatasetFolder]) -> Iterator[InputFile]:
    read = set[Path]().union(*(dataset.train() for dataset in datasets))
    other = set[Path]().union(*(dataset.skipped() | {*dataset.about} for dataset in datasets))
    # The Hub's own cache holds each file once more, as a blob that links lead to.
    blobs = {*map(os.path.realpath, other)} - {*map(os.path.realpath, read)}
    for file in files:
        path = Path(file.path)
        is_read = path not in other and path.name not in JSON_DESCRIPTIONS
        if is_read and not (blobs and os.path.realpath(path) in blobs):
            yield file


def _once(found: FoundFiles) -> FoundFiles:
    """Each real file once, under its real name, else under the first of its names."""
    if found.are_different():  # nearly always, and no tables are built
        return found
    files = sorted(found, key=lambda file: (file.is_linked, file.name, file.path))
    kept: dict[object, InputFile] = {}
    for file in files:
        kept.setdefault(file.place or file.path, file)
    if left_out := len({file.path for file in files}) - len(kept):
        print(f"note: each file is read once; {left_out:,} more link(s) to them are skipped")
    return FoundFiles.of(kept.values())


def _named(found: FoundFiles) -> FoundFiles:
    """The files under different names."""
    if found.have_different_names():
        return found
    files = [*found]
    if len({file.name for file in files}) == len(files):
        return found
    paths = [Path(os.path.abspath(file.path)) for file in files]  # noqa: PTH100 (keeps links)
    base = os.path.commonpath([path.parent for path in paths])
    return FoundFiles.of(
        replace(file, name=path.relative_to(base).as_posix()) for file, path in zip(files, paths)
    )


class _Folder(NamedTuple):
    path: Path
    real: str
    """The folder's path without links."""
    prefix: str
    """Prefix of the names of its files."""
    is_linked: bool
    """True if a link below the given directory leads to it."""

    def below(self, name: str) -> _Folder:
        real = os.path.join(self.real, name)  # noqa: PTH118 (a string, to be compared)
        return _Folder(self.path / name, real, f"{self.prefix}{name}/", self.is_linked)


def _walk(directory: Path, folders: Folders, skipped: SkippedNames) -> Iterator[InputFile]:
    """Non-empty files below a directory, without names that are skipped; a folder that is linked
    comes last, once."""
    seen: set[str] = set()
    tops = [_Folder(directory, os.path.realpath(directory), "", is_linked=False)]
    while tops:
        links: list[_Folder] = []
        for top in tops:
            level, mine = [top], list[_Folder]()
            # A link may lead back up.
            while level := [folder for folder in level if folder.real not in seen]:
                seen.update(folder.real for folder in level)
                paths = [os.path.abspath(folder.path) for folder in level]  # noqa: PTH100 (keeps links)
                # Before they are listed: a file that is added meanwhile makes them another.
                folders |= zip(paths, in_threads(time_of_folder, paths, at_once=1))
                below = list[_Folder]()
                for some in _batches(level, _FOLDERS_AT_ONCE):
                    listed = [*zip(some, in_threads(_list, some, at_once=1))]
                    files = (
                        (folder, found.pop())  # so entries are freed as they pass
                        for folder, (_, found, _) in listed
                        for _ in range(len(found))
                    )
                    yield from filter(None, in_threads(partial(_found, str(directory)), files))
                    for folder, (inner, _, others) in listed:
                        skipped.add(f"{folder.prefix}{name}" for name in others)
                        for entry in inner:
                            (mine if entry.is_symlink() else below).append(folder.below(entry.name))
                level = below
            # As a walk from folder to folder finds them, since the first of two names is kept.
            links += sorted(mine, key=lambda link: (link.path.parent.parts, link.path.name))
        # Links last, so that a folder that is found both ways has its real name.
        tops = [link._replace(real=os.path.realpath(link.path), is_linked=True) for link in links]


def time_of_folder(path: str) -> int:
    """When a folder was last changed, in nanoseconds; -1 if it cannot be told."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 (a string)
    except OSError:
        return -1


_Entries = list[os.DirEntry[str]]


def _list(folder: _Folder) -> tuple[_Entries, _Entries, list[str]]:
    """The folders and the files in a folder, the last file first, and the names that are skipped;
    its README.md is among the files."""
    folders, files, skipped = _Entries(), _Entries(), list[str]()
    try:
        with os.scandir(folder.path) as entries:
            for entry in entries:
                is_folder = is_folder_entry(entry)
                if is_skipped_name(entry.name, is_folder=is_folder) and entry.name != CARD:
                    skipped.append(f"{entry.name}/" if is_folder else entry.name)
                else:
                    (folders if is_folder else files).append(entry)
    except OSError as error:
        raise _refusal(error) from error
    folders.sort(key=lambda entry: f"{entry.name}/")  # as the names of their files
    files.sort(key=_name_of, reverse=True)
    return folders, files, sorted(skipped)


def is_folder_entry(entry: os.DirEntry[str]) -> bool:
    """True for a folder, or a link to one; mostly without asking the file system."""
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere
        return False


def _found(given: str, place: tuple[_Folder, os.DirEntry[str]]) -> InputFile | None:
    """A file in a folder; None if it is empty, or no plain file."""
    folder, entry = place
    path = entry.path
    try:
        found = entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise _refusal(error) from error
        if entry.is_symlink():
            raise DataError(f"{path} is a broken link; fix or remove it") from error
        return None  # it was removed just now
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    is_linked = folder.is_linked or entry.is_symlink()
    name = f"{folder.prefix}{entry.name}"
    return InputFile(path, name, given, False, is_linked, *_place_and_state(found))


def _refusal(error: OSError) -> DataError:
    return DataError(f"{error.filename} cannot be read: {error.strerror}")


def _glob(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
