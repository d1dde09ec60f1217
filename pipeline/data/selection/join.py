"""The join of all signatures, cut into tasks: surveys come in, the root of each document goes out.

The steps of `clusters` are tasks of an executor, so processes, ranks and parts of an array share
them: a step that reads words of the signatures is a task per word, or per group of words if there
are few documents. A finished task is a finished file in `$TENFOLD_ROOT/documents/joins/`, named by
the decisions that it is for; a killed join continues with the files that are there.

No step needs a lock to be right, only to save work: every process writes under a name of its own,
renames replace a file by an equal one, and a task whose files are gone has nothing to do, because
they are removed only after the decisions were published.

At 70 M documents in 5,200 surveys, tasks open 333,000 files, 10,400 each on 32 ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.files import whole_file
from pipeline.data.selection.clusters import (
    Likeness,
    merge_candidates,
    write_agreement,
    write_candidates,
    write_roots,
)
from pipeline.data.selection.survey import read_words
from pipeline.execution.workers import Executor, Stage

_TASK_WORDS = 1 << 22
"""Least words of signatures for a task of its own: about a second of work."""
_MOST_DOCUMENTS = 1 << 32  # a pair is two of these numbers in 64 bits


@dataclass(frozen=True, slots=True)
class JoinTask:
    """A step, or what it does for some words of the signatures; writes one file."""

    target: Path
    words: range
    weight: int
    """Bytes of signatures."""

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"join, {self.target.name}"

    @property
    def marker(self) -> str:
        """Name of the file."""
        return self.target.name


@dataclass(frozen=True, slots=True)
class Join:
    """The signed documents of some surveys, and where their clusters are found."""

    surveys: list[Path]
    documents: int
    """Documents in all surveys."""
    likeness: Likeness
    directory: Path
    """$TENFOLD_ROOT/documents/joins."""
    content: str
    """Fingerprint of what was surveyed: files of a join of other text are not taken for these."""
    decisions: Path
    """Directory of the decisions that the join is for; once it exists, there is nothing to do."""

    def find_roots(self, executor: Executor, part: tuple[int, int]) -> Path:
        """Write the file of `clusters.write_roots`, with other processes that do the same.

        part: as `Executor.take` takes it. Returns the path; there is no file if the decisions have
        been made meanwhile. Raises DataError if there are too many documents, or the disk is full.
        """
        if self.documents >= _MOST_DOCUMENTS:
            raise DataError(
                f"{self.documents:,} documents in a group, at most {_MOST_DOCUMENTS:,}; split it"
            )
        for name, step in _STEPS.items():
            stage = Stage(self.directory, partial(_start, self, step))
            executor.take(stage, self._tasks(name), part)
        [roots] = self.files("roots")
        return roots

    def remove(self) -> None:
        """Remove all files of the join, once there are decisions."""
        for hidden in ("", "."):  # files; locks, and what killed processes left
            for path in self.directory.glob(f"{hidden}{self.decisions.name}-*"):
                path.unlink(missing_ok=True)

    def files(self, name: str) -> list[Path]:
        """The files that the step of this name writes."""
        return [task.target for task in self._tasks(name)]

    def _tasks(self, name: str) -> list[JoinTask]:
        """The tasks of the step of this name."""
        every = range(self.likeness.words)
        count = -(-len(every) * self.documents // _TASK_WORDS) if name in _BY_WORD else 1
        step = -(-len(every) // max(1, min(count, len(every))))
        return [
            JoinTask(self._file(f"{name}-{some[0]:02d}"), some, 8 * self.documents * len(some))
            for some in (every[first : first + step] for first in every[::step])
        ]

    def _file(self, name: str) -> Path:
        return self.directory / f"{self.decisions.name}-{self.content}-{name}"


Step = Callable[[Join, range, Path], None]


def _start(join: Join, step: Step) -> Callable[[JoinTask], None]:
    return partial(_do, join, step)


def _do(join: Join, step: Step, task: JoinTask) -> None:
    """Write the file of `task` unless the decisions exist."""
    if join.decisions.exists():  # its files may be gone by now
        return
    try:
        # the first of two equal files stays, because a reader may have it open
        with whole_file(task.target, replaces=False) as temporary:
            step(join, task.words, temporary)
    except (OSError, DataError):
        if not join.decisions.exists():
            raise


def _candidates(join: Join, words: range, path: Path) -> None:
    made, signed = read_words(join.surveys, join.documents, words)
    write_candidates(path, made, signed, words[0])


def _pairs(join: Join, _: range, path: Path) -> None:
    merge_candidates(path, join.files("candidates"), join.documents)


def _agreement(join: Join, words: range, path: Path) -> None:
    [pairs] = join.files("pairs")
    made, _ = read_words(join.surveys, join.documents, words)
    write_agreement(path, pairs, made)


def _roots(join: Join, _: range, path: Path) -> None:
    [pairs] = join.files("pairs")
    agreements = join.files("agreement")
    write_roots(path, pairs, agreements, join.likeness.least, join.documents)


_STEPS: dict[str, Step] = {
    "candidates": _candidates, "pairs": _pairs, "agreement": _agreement, "roots": _roots,
}  # fmt: skip
"""The steps in order; each reads files of the steps before it."""
_BY_WORD = ("candidates", "agreement")
"""Steps that are cut into tasks of some words each."""
