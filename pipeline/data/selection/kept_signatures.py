"""`--keep-signatures`: a selection's surveys and decisions -> a store of signatures.

A file of the store is a task, so that processes, ranks and parts of an array share them. Nothing is
computed but surveys that were removed meanwhile: the signatures of the documents that are kept are
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.files import make_directory, one_at_a_time, whole_file
from pipeline.data.selection.decisions import Decisions
from pipeline.data.selection.select import Selection, decide, make_surveys
from pipeline.data.selection.signature_store import (
    complete_store,
    is_stored,
    read_store,
    write_signatures,
)
from pipeline.data.selection.survey import BUDGET, SurveyTask
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.ledger import lock_of
from pipeline.execution.workers import Executor, Stage

_ROWS = 1 << 16
"""Documents that are copied at once: 17 MB."""


@dataclass(frozen=True, slots=True)
class KeepTask:
    """The signatures of a survey's documents that are kept, written to one file."""

    survey: SurveyTask
    decided: SplitTask
    """The task with its decisions."""
    target: Path

    @property
    def weight(self) -> int:
        """Expected bytes of text."""
        return self.survey.weight

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"signatures of {self.decided.name}"

    @property
    def marker(self) -> str:
        """Name of the file."""
        return self.target.name


def keep_signatures(
    selection: Selection, directory: Path, executor: Executor, part: tuple[int, int] = (1, 1)
) -> None:
    """Make the store of the documents that a selection keeps, unless it exists.

    directory: of the store; part: as `Executor.take` takes it.
    """
    if is_stored(directory):
        if taken := len(read_store(directory).index.taken_down):
            print(
                f"signatures: {directory} already exists; {taken} takedowns removed documents "
                "from it",
                flush=True,
            )
        return
    decide(selection, executor, part)
    # someone may have removed surveys of decisions that still exist
    make_surveys(selection, executor, part)
    make_directory(directory)
    pairs = zip(selection.surveys, selection.decided_tasks(), strict=True)
    tasks = [
        KeepTask(survey, decided, directory / f"{decided.number:06d}.parquet")
        for survey, decided in pairs
    ]
    executor.take(Stage(directory, _start), tasks, part)
    with one_at_a_time(lock_of(directory)):
        if is_stored(directory):  # another part completed it while this one waited
            return
        store = complete_store(directory, [task.target for task in tasks])
    print(f"signatures: {store.documents:,} documents in {directory}", flush=True)


def _start() -> Callable[[KeepTask], None]:
    return _keep


def _keep(task: KeepTask) -> None:
    with whole_file(task.target, replaces=False) as temporary:
        write_signatures(temporary, task.decided.corpus, _kept(task))


def _kept(task: KeepTask) -> Iterator[pa.Table]:
    """The rows of the survey that are kept."""
    assert task.decided.decisions is not None
    with (
        Decisions.open(task.decided.decisions) as decided,
        pq.ParquetFile(task.survey.target, pre_buffer=False) as file,
    ):
        # a file that changed would give signatures of other texts than the shards have
        decided.check_content(task.decided.pieces)
        names = [name for name in file.schema_arrow.names if name not in BUDGET]
        for rows in file.iter_batches(_ROWS, columns=names):
            reasons = pa.array(decided.of_next(rows["id"].to_pylist()), pa.string())
            yield pa.Table.from_batches([rows]).filter(reasons.is_null())
        decided.check_end()
