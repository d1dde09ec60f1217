"""Selection: which documents of several corpora are kept, decided before any is packed.

First each document is surveyed by itself (`survey`, in parallel): filters and decontamination drop
documents, and the others get a signature. Then all signatures are compared (`clusters`), and the
first document of each cluster of copies is kept: first corpus, first file, first position, with the
corpora in the given order. The result does not depend on workers, on the order of files in a
directory, or on interruptions.

The decisions are a directory of Parquet files, one per task, under
`$TENFOLD_ROOT/documents/decisions/`. It is named by a fingerprint of the files, rules and versions,
and appears only when it is complete. `decisions.read_kept` applies it. Every document is kept, or
counted as dropped with a reason.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, one_at_a_time, whole_file
from pipeline.base.publish import TakenError, publish_folder, scratch_folder
from pipeline.config.settings import fingerprint
from pipeline.data.documents.read import READING_VERSION, file_identity
from pipeline.data.documents.records import Source
from pipeline.data.selection.clusters import (
    EXACT,
    LIKENESS_VERSION,
    NEAR,
    Likeness,
    Numbers,
    find_roots,
)
from pipeline.data.selection.contamination import Evaluation
from pipeline.data.selection.decisions import SCHEMA, SPANS
from pipeline.data.selection.filters import Filters
from pipeline.data.selection.minhash import SHINGLES_VERSION
from pipeline.data.selection.survey import (
    SURVEY_VERSION,
    Rules,
    SurveyTask,
    remove_stale,
    signed_documents,
    survey_stage,
)
from pipeline.data.text.clean import CLEANING_VERSION
from pipeline.data.text.tasks import SplitTask
from pipeline.execution.workers import Executor, share

DEDUP: dict[str, Likeness | None] = {"none": None, "exact": EXACT, "near": NEAR}
"""Values of `--dedup`."""
_REASONS = {"exact": "exact copy", "near": "near-duplicate"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents that are deduplicated together, and the rules that select them."""

    tasks: list[SplitTask]
    dedup: str
    """A key of DEDUP."""
    rules: Rules
    place: Path
    """$TENFOLD_ROOT/documents."""
    surveys: list[SurveyTask]
    mark: str
    """Fingerprint of documents, rules and versions; empty if every document is kept."""

    @property
    def directory(self) -> Path:
        """Directory of the decisions."""
        return self.place / "decisions" / self.mark

    def decided_tasks(self) -> list[SplitTask]:
        """The tasks, with the decisions that drop documents from them."""
        if not self.mark:
            return self.tasks
        return [replace(task, decisions=_decisions(self.directory, task)) for task in self.tasks]


def plan_selection(
    tasks: list[SplitTask], dedup: str, filters: list[str], evaluation: list[str], place: Path
) -> Selection:
    """Plan the selection; reads the evaluation files, and the ends of the corpora's files.

    filters: as `Filters.parse` takes them; evaluation: files to decontaminate against.
    """
    rules = Rules(DEDUP[dedup], Filters.parse(filters), Evaluation.read(evaluation))
    if rules.let_all_pass:
        return Selection(tasks, dedup, rules, place, [], "")
    decided_by = {
        "survey": SURVEY_VERSION, "shingles": SHINGLES_VERSION, "reading": READING_VERSION,
        "cleaning": CLEANING_VERSION, "unicode": unicodedata.unidata_version,
        "dedup": dedup, "filters": rules.filters.describe(), "evaluation": rules.evaluation.mark,
    }  # fmt: skip
    files: dict[Source, list[object]] = {}
    surveys = []
    for task in tasks:
        for piece in task.pieces:
            if piece.source not in files:
                files[piece.source] = file_identity(piece.source)
        pieces = [[files[piece.source], piece.start, piece.stop] for piece in task.pieces]
        mark = fingerprint(decided_by | {"pieces": pieces})
        surveys.append(SurveyTask(task, place / "surveys" / f"{mark}.parquet"))
    marks = [survey.target.stem for survey in surveys]
    mark = fingerprint({"likeness": LIKENESS_VERSION, "surveys": marks})
    return Selection(tasks, dedup, rules, place, surveys, mark)


def decide(selection: Selection, executor: Executor, part: tuple[int, int] = (1, 1)) -> None:
    """Make the decisions unless they exist; part: of a job array, surveys its share first."""
    if not selection.mark or selection.directory.exists():
        return
    for directory in (selection.place / "surveys", selection.directory.parent):
        make_directory(directory)
    remove_stale(selection.surveys)
    stage = survey_stage(selection.place / "surveys", selection.rules)
    if part != (1, 1):
        executor.run(stage, share(selection.surveys, *part))
    executor.run(stage, selection.surveys)
    with one_at_a_time(selection.directory.with_name(f".{selection.mark}.lock")):
        if selection.directory.exists():
            return
        try:
            with scratch_folder(selection.directory) as scratch:
                (scratch / "decisions").mkdir()
                counts = _join(selection, scratch)
                publish_folder(scratch / "decisions", selection.directory)
        except TakenError:  # where locks exclude nobody; both decide the same
            print(f"selection: another process made {selection.directory} first", flush=True)
            return
        except OSError as error:
            raise DataError(
                f"cannot write to {selection.directory.parent}: {error.strerror}; free about 600 "
                "bytes per document and rerun"
            ) from error
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if reason)
    print(f"selection: {sum(counts.values()):,} documents; dropped {dropped or 'none'}", flush=True)


def _join(selection: Selection, scratch: Path) -> Counter[str]:
    """Write all decisions below `scratch`. Returns documents by drop reason, "" for kept ones."""
    paths = [survey.target for survey in selection.surveys]
    ends = np.cumsum([pq.read_metadata(path).num_rows for path in paths])
    firsts = [0, *ends[:-1].tolist()]
    likeness = selection.rules.likeness
    counts: Counter[str] = Counter()
    with ExitStack() as opened:
        roots = None
        if likeness:
            chunks = signed_documents(paths, firsts, likeness)
            found = find_roots(chunks, int(ends[-1]), likeness, scratch)
            roots = opened.enter_context(found.open("rb"))
        for survey, first in zip(selection.surveys, firsts):
            path = _decisions(scratch / "decisions", survey.task)
            with (
                pq.ParquetFile(survey.target, pre_buffer=False) as file,
                whole_file(path, lasting=False) as temporary,
                pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer,
            ):
                for rows in file.iter_batches(columns=["id", "dropped"]):
                    reasons = rows["dropped"].to_pylist()
                    mine = _take_roots(roots, first, reasons)
                    for row in np.flatnonzero(mine != np.arange(first, first + len(rows))).tolist():
                        task = selection.tasks[int(np.searchsorted(ends, mine[row], "right"))]
                        reason = _REASONS[selection.dedup]
                        if task.corpus != survey.task.corpus:
                            reason += f" of one in {task.corpus}"
                        reasons[row] = reason
                    counts.update(reason or "" for reason in reasons)
                    writer.write_table(_table(survey.task.corpus, rows["id"], reasons, mine))
                    first += len(rows)
                writer.add_key_value_metadata({SPANS: file.metadata.metadata[SPANS]})
    assert sum(counts.values()) == ends[-1]
    return counts


def _take_roots(roots: BinaryIO | None, first: int, reasons: list[str | None]) -> Numbers:
    """The cluster's first document for each document from `first` on; its own number if dropped.

    roots: the file of `find_roots`, read up to here; None: no deduplication.
    """
    numbers = np.arange(first, first + len(reasons), dtype=np.uint32)
    if roots is not None:
        signed = np.array([reason is None for reason in reasons], np.bool_)
        numbers[signed] = np.fromfile(roots, np.uint32, int(signed.sum()))
    return numbers


def _table(corpus: str, ids: pa.Array, reasons: list[str | None], roots: Numbers) -> pa.Table:
    corpora = pa.array([corpus] * len(ids)).dictionary_encode()
    dropped = pa.array(reasons, pa.string()).dictionary_encode()
    return pa.table([ids, corpora, dropped, roots], schema=SCHEMA)


def _decisions(directory: Path, task: SplitTask) -> Path:
    return directory / f"{task.number:06d}.parquet"
