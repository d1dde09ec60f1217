"""The files that an input names: directories are walked, globs expanded, each real file read once.

A file has the name, in ids and messages, that it has below the given directory, or its own name if
it is given itself. If two files would have the same name, all names are paths below the directory
that holds all of them. Names do not contain the machine's directories, and are one line of what
prints, see `shown_name`.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.ingest.corpora.dataset_folders import JSON_DESCRIPTIONS, DatasetFolder, find_datasets
from pipeline.ingest.documents.records import shown_name


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input."""

    path: Path
    name: str
    """Label in ids and messages."""
    folder: str
    """The given directory that holds it, or its own directory if it was given itself."""
    is_given: bool
    """Whether it was named itself or by a glob, not found in a directory."""
    is_linked: bool
    """Whether a symbolic link leads to it."""


def find_files(inputs: list[str]) -> list[InputFile]:
    """The files of `inputs`, by name, each real file once; a file that was named may not exist.

    An empty file in a directory is skipped. Raises DataError for a directory that cannot be read,
    a broken link, and a name that is not UTF-8.
    """
    files = [_shown(file) for file in _named(_once(_without_other_splits(inputs)))]
    first = {file.name: file for file in reversed(files)}
    for file in files:
        if first[file.name] is not file:
            raise DataError(
                f"{str(first[file.name].path)!r} and {str(file.path)!r} would both be called "
                f"{file.name}; rename one"
            )
    return sorted(files, key=lambda file: file.name)


def _shown(file: InputFile) -> InputFile:
    """The file under the name that ids show. Raises DataError if its name is not UTF-8."""
    try:
        file.name.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"input file {file.name!r} has a name that is not UTF-8; rename it"
        ) from error
    return replace(file, name=shown_name(file.name))


def files_of(given: str) -> list[InputFile]:
    """A file, or the files of a directory or glob; the file may not exist."""
    path = Path(given)
    if path.is_dir():
        real = Path(os.path.realpath(path))
        return [
            InputFile(
                path=file,
                name=file.relative_to(path).as_posix(),
                folder=str(path),
                is_given=False,
                is_linked=Path(os.path.realpath(file)) != real / file.relative_to(path),
            )
            for file in _walk(path)
        ]
    matches = [] if path.exists() else _glob(given)
    return [
        InputFile(file, file.name, str(file.parent), is_given=True, is_linked=file.is_symlink())
        for file in matches or [path]
    ]


def is_path(given: str) -> bool:
    """Whether a path exists or a glob matches a file."""
    return Path(given).exists() or bool(_glob(given))


def _without_other_splits(inputs: list[str]) -> list[InputFile]:
    """The files without those that datasets in the inputs skip, which are told on stderr."""
    found: list[InputFile] = []
    datasets: list[DatasetFolder] = []
    for given in inputs:
        files = files_of(given)
        if any(file.is_given for file in files):
            found += files
            continue
        here = find_datasets(Path(given), [file.path for file in files])
        read = set[Path]().union(*(dataset.train() for dataset in here))
        other = set[Path]().union(*(dataset.skipped() | {*dataset.about} for dataset in here))
        # The Hub's own cache holds each file once more, as a blob that links lead to.
        blobs = {*map(os.path.realpath, other)} - {*map(os.path.realpath, read)}
        found += [
            file
            for file in files
            if file.path not in other
            and file.path.name not in JSON_DESCRIPTIONS
            and not (blobs and os.path.realpath(file.path) in blobs)
        ]
        datasets += here
    paths = {file.path for file in found}
    for note in (dataset.note(paths) for dataset in datasets):
        if note:
            print(note, file=sys.stderr, flush=True)
    return found


def _once(files: list[InputFile]) -> list[InputFile]:
    """Each real file once, under its real name, else under the first of its names."""
    kept: dict[object, InputFile] = {}
    for file in sorted(files, key=lambda file: (file.is_linked, file.name, str(file.path))):
        try:
            found = file.path.stat()
        except OSError:  # `sniff` names the problem
            kept[file.path] = file
        else:
            kept.setdefault((found.st_dev, found.st_ino), file)
    if left_out := len({file.path for file in files}) - len(kept):
        print(f"note: each file is read once; {left_out:,} more link(s) to them are skipped")
    return list(kept.values())


def _named(files: list[InputFile]) -> list[InputFile]:
    """The files under different names."""
    if len({file.name for file in files}) == len(files):
        return files
    paths = [Path(os.path.abspath(file.path)) for file in files]  # noqa: PTH100 (keeps links)
    base = os.path.commonpath([path.parent for path in paths])
    return [
        replace(file, name=path.relative_to(base).as_posix()) for file, path in zip(files, paths)
    ]


def _walk(directory: Path) -> Iterator[Path]:
    """Non-empty, non-hidden files below a directory; a folder that is linked comes last, once."""
    seen: set[str] = set()
    tops = [directory]
    while tops:
        links: list[Path] = []
        for top in tops:
            for folder, folders, names in os.walk(top, onerror=_refuse):
                if os.path.realpath(folder) in seen:
                    folders.clear()
                    continue
                seen.add(os.path.realpath(folder))
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                links += [path for path in map(Path(folder).joinpath, folders) if path.is_symlink()]
                for path in (Path(folder, name) for name in names if not name.startswith(".")):
                    if path.is_symlink() and not path.exists():
                        raise DataError(f"{path} is a broken link; fix or remove it")
                    if path.is_file() and path.stat().st_size:
                        yield path
        tops = links


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error


def _glob(pattern: str) -> list[Path]:
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    return [path for path in map(Path, sorted(found)) if path.is_file()]
