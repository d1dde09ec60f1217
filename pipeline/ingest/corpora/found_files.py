"""The files that an input names, in few bytes each, as a corpus can have a million."""

from __future__ import annotations

import heapq
import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from pipeline.ingest.corpora.dataset_folders import is_of_dataset
from pipeline.ingest.documents.packed_rows import BLOCK_ROWS, RowQueue
from pipeline.ingest.documents.records import State


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input."""

    path: str
    name: str
    """Label in ids and messages."""
    folder: str
    """The given directory that holds it, or its own directory if it was given itself."""
    is_given: bool
    """True if it was named itself or by a glob, not found in a directory."""
    is_linked: bool
    """True if a symbolic link leads to it."""
    place: int | None
    """Device and inode, which are of one file; None if it was named and does not exist."""
    state: State | None
    """Size and time when it was found; None unless it is a plain file."""

    @property
    def base_name(self) -> str:
        """Its name in its own directory."""
        return self.path.rpartition("/")[2]


@dataclass(slots=True)
class FoundFiles:
    """Files in the order in which they were found, in few bytes."""

    runs: list[RowQueue] = field(default_factory=list)
    """Each of files by name, as a level of folders is; see `InputFile`."""
    last: str = ""
    """The name of the last file."""
    names: array[int] = field(default_factory=lambda: array("q"))
    """Their hashes."""
    places: array[int] = field(default_factory=lambda: array("q"))
    """Hashes of what tells real files apart."""
    is_printable: bool = True
    """True if all names are printable."""
    has_dataset: bool = False
    """True if a file, found in a directory, may be one of a dataset's."""

    @classmethod
    def of(cls, files: Iterable[InputFile]) -> FoundFiles:
        """The files, in this order."""
        found = cls()
        for file in files:
            found.add(file)
        return found

    def add(self, file: InputFile) -> None:
        """Add a file at the end."""
        # A run is in order by construction, so that `by_name` merges runs and sorts nothing.
        if not self.runs or file.name < self.last:
            if self.runs:
                self.runs[-1].pack()
            self.runs.append(RowQueue())
        self.runs[-1].append(
            (file.path, file.name, file.folder, file.is_given, file.is_linked, file.place,
             file.state)
        )  # fmt: skip
        self.last = file.name
        self.names.append(hash(file.name))
        # As a pair: Python hashes an integer modulo 2^61 - 1, where devices could collide.
        self.places.append(hash(divmod(file.place, 1 << 64) if file.place else file.path))
        self.is_printable &= file.name.isprintable()
        self.has_dataset |= not file.is_given and is_of_dataset(file.base_name)

    def join(self, other: FoundFiles) -> None:
        """Add the files of another."""
        if len(other.names) <= BLOCK_ROWS:  # perhaps they need no run of their own
            for file in other:
                self.add(file)
            return
        self.runs += other.runs
        self.last = other.last
        self.names += other.names
        self.places += other.places
        self.is_printable &= other.is_printable

    def __iter__(self) -> Iterator[InputFile]:
        return map(_file, itertools.chain.from_iterable(self.runs))

    def by_name(self) -> Iterator[InputFile]:
        """All files by name, each of which is gone once it is read."""
        by_name = attrgetter("name")
        return heapq.merge(*(map(_file, run.take()) for run in self.runs), key=by_name)

    def have_different_names(self) -> bool:
        """True if no two have the same name; False also if two hashes are equal by chance."""
        return _differ(self.names)

    def are_different(self) -> bool:
        """True if no two are the same real file; False also if two hashes are equal by chance."""
        return _differ(self.places)


def _file(row: Sequence[Any]) -> InputFile:
    path, name, folder, is_given, is_linked, place, state = row
    state = state and (state[0], state[1])
    return InputFile(path, name, folder, is_given, is_linked, place, state)


def _differ(hashes: array[int]) -> bool:
    # Sorted hashes of eight bytes each, not a set of a million strings.
    return len(np.unique(np.asarray(hashes))) == len(hashes)
