"""Selection: which documents of several corpora are kept, decided before any is packed.

First each document is surveyed by itself (`survey`, in parallel): filters and decontamination drop
documents, and the others get a signature. Then all signatures are compared (`join`, in parallel by
words), and the first document of each cluster of copies is kept: first corpus, first file, first
position, with the corpora in the given order. With a budget of words (`--most-words`), the
documents that are left are kept in the order of a hash of their text, up to the last one within the
budget; equal texts are kept or dropped together. The result does not depend on workers, on the
order of files in a directory, or on interruptions.

The decisions are a directory of Parquet files, one per task, under
`$TENFOLD_ROOT/documents/decisions/`. It is named by a fingerprint of the files, rules and versions,
and appears only when it is complete. `decisions.read_kept` applies it. Every document is kept, or
counted as dropped with a reason.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, one_at_a_time, whole_file
from pipeline.base.publish import TakenError, publish_folder, scratch_folder
from pipeline.config.settings import fingerprint
from pipeline.data.selection.clusters import EXACT, LIKENESS_VERSION, NEAR, Likeness, Numbers
from pipeline.data.selection.contamination import Evaluation
from pipeline.data.selection.decisions import SCHEMA, read_spans, spans_metadata
from pipeline.data.selection.filters import filters_by_corpus
from pipeline.data.selection.join import Join
from pipeline.data.selection.minhash import SHINGLES_VERSION
from pipeline.data.selection.survey import (
    BUDGET,
    SURVEY_LAYOUT,
    SURVEY_VERSION,
    Rules,
    SurveyTask,
    read_contents,
    remove_stale,
    survey_stage,
)
from pipeline.data.text.cleaning import CLEANING_VERSION
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.workers import Executor
from pipeline.ingest.documents.read import READING_VERSION, file_identity
from pipeline.ingest.documents.records import Source

DEDUP: dict[str, Likeness | None] = {"none": None, "exact": EXACT, "near": NEAR}
"""Values of `--dedup`."""
_REASONS = {"exact": "exact copy", "near": "near-duplicate"}
_OVER_BUDGET = "over the budget of words"


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
    tasks: list[SplitTask],
    dedup: str,
    filters: list[str],
    evaluation: list[str],
    place: Path,
    most_words: int = 0,
) -> Selection:
    """Plan the selection; reads the evaluation files, and the ends of the corpora's files.

    filters: as `filters_by_corpus` takes them; evaluation: files to decontaminate against;
    most_words: see `Rules`.
    """
    by_corpus = filters_by_corpus(filters, dict.fromkeys(task.corpus for task in tasks))
    rules = Rules(DEDUP[dedup], by_corpus, Evaluation.read(evaluation), most_words)
    if rules.let_all_pass:
        return Selection(tasks, dedup, rules, place, [], "")
    decided_by = {
        "survey": SURVEY_VERSION, "shingles": SHINGLES_VERSION, "reading": READING_VERSION,
        "cleaning": CLEANING_VERSION, "unicode": unicodedata.unidata_version,
        "dedup": dedup, "evaluation": rules.evaluation.mark,
    }  # fmt: skip
    if most_words:
        decided_by["columns"] = BUDGET
    files: dict[Source, list[object]] = {}
    surveys, marks = [], []
    for task in tasks:
        for piece in task.pieces:
            if piece.source not in files:
                files[piece.source] = file_identity(piece.source)
        pieces = [[files[piece.source], piece.start, piece.stop] for piece in task.pieces]
        # only this corpus's filters, so that another corpus's rule leaves the survey usable
        about = {"pieces": pieces, "filters": by_corpus[task.corpus].describe()}
        marks.append(fingerprint(decided_by | about))
        # the layout is in the name, not in the mark: a new layout changes no decision
        path = place / "surveys" / f"{marks[-1]}.{SURVEY_LAYOUT}.parquet"
        surveys.append(SurveyTask(task, path))
    # absent without the options, so that the marks of other selections stay
    more: dict[str, object] = {}
    if most_words:
        more["most words"] = most_words
    mark = fingerprint({"likeness": LIKENESS_VERSION, "surveys": marks} | more)
    return Selection(tasks, dedup, rules, place, surveys, mark)


def make_surveys(selection: Selection, executor: Executor, part: tuple[int, int]) -> None:
    """Make the surveys that are missing or stale; part: as `Executor.take` takes it."""
    directory = selection.place / "surveys"
    make_directory(directory)
    remove_stale(selection.surveys)
    executor.take(survey_stage(directory, selection.rules), selection.surveys, part)


def decide(selection: Selection, executor: Executor, part: tuple[int, int] = (1, 1)) -> None:
    """Make the decisions unless they exist; part: as `Executor.take` takes it."""
    if not selection.mark or selection.directory.exists():
        return
    make_surveys(selection, executor, part)
    for name in ("joins", "decisions"):
        make_directory(selection.place / name)
    ends, content = read_contents(selection.surveys)
    roots = None
    if likeness := selection.rules.likeness:
        join = Join(
            [survey.target for survey in selection.surveys], ends[-1], likeness,
            selection.place / "joins", content, selection.directory,
        )  # fmt: skip
        roots = join.find_roots(executor, part)
    with one_at_a_time(selection.directory.with_name(f".{selection.mark}.lock")):
        counts = _publish(selection, ends, roots)
    if roots:  # last: slower processes find the decisions, not missing files
        join.remove()
    if counts:
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if reason)
        print(
            f"selection: {sum(counts.values()):,} documents; dropped {dropped or 'none'}",
            flush=True,
        )


def _publish(selection: Selection, ends: list[int], roots: Path | None) -> Counter[str] | None:
    """Make the decisions' directory unless another process did; see `_write_decisions`."""
    if selection.directory.exists():
        return None
    try:
        with (
            # open until the end: a faster process removes the file
            roots.open("rb") if roots else nullcontext() as found,
            scratch_folder(selection.directory) as scratch,
        ):
            (scratch / "decisions").mkdir()
            counts = _write_decisions(selection, ends, found, scratch / "decisions")
            publish_folder(scratch / "decisions", selection.directory)
        return counts
    except (OSError, TakenError) as error:
        if not selection.directory.exists():
            assert isinstance(error, OSError)
            raise DataError(
                f"cannot write to {selection.directory.parent}: {error.strerror}; free about 100 "
                "bytes per document and rerun"
            ) from error
    # where locks have no effect: both decide the same, and the first one removed the join's files
    print(f"selection: another process made {selection.directory} first", flush=True)
    return None


def _write_decisions(
    selection: Selection, ends: list[int], roots: BinaryIO | None, directory: Path
) -> Counter[str]:
    """Write all decisions. Returns documents by drop reason, "" for kept ones.

    ends: number of documents up to each survey's end; roots: the file that `Join` made, None: no
    deduplication.
    """
    counts: Counter[str] = Counter()
    starts = [0, *ends]
    over = _over_budget(selection, starts, roots)
    for survey, first in zip(selection.surveys, starts):
        path = _decisions(directory, survey.task)
        with (
            whole_file(path, lasting=False) as temporary,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer,
        ):
            for rows, numbers, clusters in _clustered(survey, first, roots, ["id", "dropped"]):
                reasons = rows["dropped"].to_pylist()
                for row in np.flatnonzero(clusters != numbers).tolist():
                    owner = selection.surveys[bisect_right(ends, clusters[row])].task.corpus
                    reason = _REASONS[selection.dedup]
                    if owner != survey.task.corpus:
                        reason += f" of one in {owner}"
                    reasons[row] = reason
                if over is not None:
                    for row in np.flatnonzero(over[numbers]).tolist():
                        reasons[row] = reasons[row] or _OVER_BUDGET
                counts.update(reason or "" for reason in reasons)
                writer.write_table(_table(survey.task.corpus, rows["id"], reasons, clusters))
            # readers check with these that the files are still those that were surveyed
            writer.add_key_value_metadata(spans_metadata(read_spans(survey.target)))
    assert sum(counts.values()) == ends[-1]
    return counts


def _over_budget(
    selection: Selection, starts: list[int], roots: BinaryIO | None
) -> NDArray[np.bool_] | None:
    """[documents] True for those over the budget of words, by their places, see `survey.BUDGET`;
    dropped ones count no words. None if all are within the budget, or there is none.

    starts: number of the first document of each survey. Memory: 40 bytes per document. Raises
    DataError if the budget keeps no document.
    """
    if not (most := selection.rules.most_words):
        return None
    found = [np.zeros((2, 0), np.uint64)]
    for survey, first in zip(selection.surveys, starts):
        for rows, numbers, clusters in _clustered(survey, first, roots, ["dropped", *BUDGET]):
            left = (clusters == numbers) & rows["dropped"].is_null().to_numpy(zero_copy_only=False)
            found.append(np.stack([rows["place"].to_numpy(), rows["words"].to_numpy() * left]))
    places, words = np.concatenate(found, axis=1)
    order = np.argsort(places)
    ends = np.cumsum(words[order])  # words up to the end of each document, in the order of places
    total = int(ends[-1]) if len(ends) else 0
    if total <= most:
        print(f"selection: {total:,} words, within --most-words {most:,}", flush=True)
        return None
    first_over = order[np.searchsorted(ends, most, "right")]
    over: NDArray[np.bool_] = places >= places[first_over]  # so equal texts share their fate
    words_kept = int(words[~over].sum())
    if not words_kept:
        raise DataError(
            f"--most-words {most:,} keeps no document: the first one by its hash has "
            f"{int(words[first_over]):,} words; give more, or shorter documents"
        )
    print(f"selection: keeps {words_kept:,} of {total:,} words", flush=True)
    return over


def _clustered(
    survey: SurveyTask, first: int, roots: BinaryIO | None, columns: list[str]
) -> Iterator[tuple[pa.RecordBatch, Numbers, Numbers]]:
    """Some columns of a survey's rows, with the number of each document and of the first one of its
    cluster; first: number of the first document; roots: as `_write_decisions` takes it."""
    if roots:
        roots.seek(first * np.dtype(np.uint32).itemsize)
    with pq.ParquetFile(survey.target, pre_buffer=False) as file:
        for rows in file.iter_batches(columns=columns):
            numbers = np.arange(first, first + len(rows), dtype=np.uint32)
            yield rows, numbers, np.fromfile(roots, np.uint32, len(rows)) if roots else numbers
            first += len(rows)


def _table(corpus: str, ids: pa.Array, reasons: list[str | None], roots: Numbers) -> pa.Table:
    corpora = pa.array([corpus] * len(ids)).dictionary_encode()
    dropped = pa.array(reasons, pa.string()).dictionary_encode()
    return pa.table([ids, corpora, dropped, roots], schema=SCHEMA)


def _decisions(directory: Path, task: SplitTask) -> Path:
    return directory / f"{task.number:06d}.parquet"
