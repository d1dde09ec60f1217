"""Survey of single documents: each gets a signature, or a reason for dropping it.

One Parquet file per task has a row for each of its cleaned documents, in order. It is named by a
fingerprint of the files and rules, and appears only when it is complete. Each word of the
signatures is a column of its own, in few row groups, so the join reads a word of all documents
without the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, whole_file
from pipeline.config.settings import fingerprint
from pipeline.data.selection.clusters import EXACT, Likeness, Signed
from pipeline.data.selection.contamination import RUN_WORDS, Evaluation
from pipeline.data.selection.decisions import read_spans, spans_in, spans_metadata
from pipeline.data.selection.filters import Filters
from pipeline.data.selection.minhash import Words, have_run, signatures, word_hashes
from pipeline.data.text.documents import DocumentBatch, DocumentCounts, read_batches
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.ledger import lock_of
from pipeline.execution.workers import Stage
from pipeline.ingest.documents.time_limit import TOO_SLOW, slow_items
from pipeline.ingest.documents.unchanged import has_content, reading
from pipeline.kernels.bits import count_spaced_words

SURVEY_VERSION = 1
"""Increased when the same documents give a different survey."""
SURVEY_LAYOUT = 2
"""Increased when a survey is stored differently, which changes no decision."""
_GROUP_ROWS = 1 << 16
"""Least rows in a group of a file, but the last: 17 MB of signatures in memory."""
_TEXTS = ["id", "dropped"]
"""Columns that every survey has."""
BUDGET = ["place", "words"]
"""Columns with most_words: by the first, a hash of its text, a document has its place in the order
in which documents are kept; the second counts its words."""
_PLACES_SEED = 1 << 63
"""No `data.seed`, whose hashes choose held-out documents: these are independent of those."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that can drop a document."""

    likeness: Likeness | None
    """The condition for copies; None: copies are kept."""
    filters: dict[str, Filters]
    """Filters by corpus."""
    evaluation: Evaluation
    most_words: int = 0
    """Words between white space that are kept of all corpora; 0: all."""

    @property
    def let_all_pass(self) -> bool:
        """True if no rule can drop a document."""
        passed = all(filters.let_all_pass for filters in self.filters.values())
        return passed and not (self.likeness or self.evaluation.mark or self.most_words)


@dataclass(frozen=True, slots=True)
class SurveyTask:
    """The survey of a task's documents, written to one Parquet file."""

    task: SplitTask
    target: Path

    @property
    def weight(self) -> int:
        """Expected bytes of text."""
        return self.task.weight

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"survey of {self.task.name}"

    @property
    def marker(self) -> str:
        """Name of the Parquet file."""
        return self.target.name


def remove_stale(surveys: list[SurveyTask]) -> None:
    """Remove surveys of files that have changed since, so that they are made again."""
    for survey in surveys:
        target = survey.target
        if target.exists() and _is_stale(survey):
            with one_at_a_time(lock_of(target)):
                # asked again under the lock: another process may have remade it meanwhile
                if target.exists() and _is_stale(survey):
                    target.unlink()


def _is_stale(survey: SurveyTask) -> bool:
    spans = zip(survey.task.pieces, read_spans(survey.target))
    return any(not has_content(piece.source, [span]) for piece, span in spans)


def read_contents(surveys: list[SurveyTask]) -> tuple[list[int], str]:
    """Documents up to the end of each survey, and a fingerprint of what was read for all."""
    ends, read = [0], []
    for survey in surveys:
        # the footer has the count and the spans, so no row is read
        about = pq.read_metadata(survey.target)
        ends.append(ends[-1] + about.num_rows)
        read.append([span.xxh3_64 for span in spans_in(about)])
    return ends[1:], fingerprint({"read": read})


def survey_stage(directory: Path, rules: Rules) -> Stage[SurveyTask]:
    """The stage of all surveys under `directory`."""
    return Stage(directory, partial(_start, rules))


def _start(rules: Rules) -> Callable[[SurveyTask], None]:
    return Surveyor(rules).do


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Does tasks; keeps nothing between them."""

    rules: Rules

    def do(self, task: SurveyTask) -> None:
        """Make the file of `task`."""
        packed = {"compression": dict.fromkeys(_TEXTS, "zstd"), "use_dictionary": _TEXTS}
        with (
            whole_file(task.target, replaces=False) as temporary,
            pq.ParquetWriter(temporary, self._schema(), write_statistics=False, **packed) as writer,
            reading(task.task.pieces) as (pieces, spans),
        ):
            group: list[pa.Table] = []
            # the hashes and counts that matter are made when documents are packed
            for batch in read_batches(pieces, _PLACES_SEED, DocumentCounts()):
                group.append(self._table_in_time(batch, self.rules.filters[task.task.corpus]))
                if sum(map(len, group)) >= _GROUP_ROWS:
                    writer.write_table(pa.concat_tables(group))
                    group = []
            if group:
                writer.write_table(pa.concat_tables(group))
            writer.add_key_value_metadata(spans_metadata(spans()))

    def _schema(self) -> pa.Schema:
        words = word_names(range(self.rules.likeness.words if self.rules.likeness else 0))
        fields = [pa.field(name, pa.string()) for name in _TEXTS]
        numbers = [*(BUDGET if self.rules.most_words else []), *words]
        return pa.schema(fields + [pa.field(name, pa.uint64()) for name in numbers])

    def _table_in_time(self, batch: DocumentBatch, filters: Filters) -> pa.Table:
        """The table of a batch, where documents that take too long are dropped."""
        began_at = time.thread_time()  # CPU time: a busy machine or a slow disk drops no document
        table = self._table(batch, filters)
        numbers = np.arange(len(batch.ids))
        slow = slow_items(
            began_at,
            lambda index: self._table(batch.only(numbers == index), filters),
            len(numbers),
        )
        for index in slow:
            reasons = table["dropped"].to_pylist()
            reasons[index] = TOO_SLOW
            column = pa.array(reasons, pa.string())
            table = table.set_column(1, table.schema.field(1), column)
        return table

    def _table(self, batch: DocumentBatch, filters: Filters) -> pa.Table:
        columns = [pa.array(batch.ids), pa.array(self._reasons(batch, filters), pa.string())]
        if self.rules.most_words:
            words = count_spaced_words(batch.buffer, batch.offsets).astype(np.uint64)
            columns += [pa.array(batch.hashes), pa.array(words)]
        if self.rules.likeness:
            sign = word_hashes if self.rules.likeness == EXACT else signatures
            columns += [pa.array(word) for word in sign(batch.buffer, batch.offsets).T]
        return pa.table(columns, schema=self._schema())

    def _reasons(self, batch: DocumentBatch, filters: Filters) -> list[str | None]:
        """The first drop reason of each document, filters before contamination; None: kept."""
        reasons = filters.first_reasons(batch.buffer, batch.offsets)
        if len(self.rules.evaluation.table):
            held = have_run(batch.buffer, batch.offsets, RUN_WORDS, self.rules.evaluation.table)
            reasons[held & (reasons == None)] = "contaminated"  # noqa: E711
        return list(reasons)


def word_names(words: range) -> list[str]:
    """Columns of words of the signatures."""
    return [f"word-{word:02d}" for word in words]


def read_words(surveys: list[Path], documents: int, words: range) -> tuple[Words, Signed]:
    """[documents, words] some words of all signatures, and [documents] False for dropped ones.

    documents: in all. Memory: 8 bytes per word, and 1
    byte, per document. Raises DataError if a file is damaged.
    """
    names = word_names(words)
    made, signed = np.zeros((documents, len(words)), np.uint64), np.zeros(documents, np.bool_)
    first = 0
    for path in surveys:
        for rows in _batches(path, ["dropped", *names]):
            here = slice(first, first + len(rows))
            signed[here] = rows["dropped"].is_null().to_numpy(zero_copy_only=False)
            for index, name in enumerate(names):
                made[here, index] = rows[name].to_numpy()
            first += len(rows)
    assert first == documents
    return made, signed


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            # one column per word, so the other words of the signatures are never read
            yield from file.iter_batches(columns=columns)
    except FileNotFoundError as error:
        raise DataError(f"{path} is gone; rerun") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is damaged: {error}; remove {path.parent} and run the pipeline.prepare that "
            "made it again"
        ) from error
