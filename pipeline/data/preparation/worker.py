"""Turns one task, a range of a corpus's files, into finished parts of shards.

Tasks do not depend on the number of workers. Each gives parts of at most `split_bytes` of cleaned
text: one for a byte range of a plain file, several for a large compressed file, which can only be
read from its start. A part is finished once its marker exists, which is written after its files.
Parts are independent: in any order, on any machine, a part made twice has the same bytes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.config.data_settings import DataSettings
from pipeline.data.preparation.holdout import are_below
from pipeline.data.rows.masks import Masking
from pipeline.data.rows.pack import count_packing, pack
from pipeline.data.selection.decisions import read_kept
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import (
    DOCUMENTS,
    DOCUMENTS_SCHEMA,
    REPEATED,
    document_table,
)
from pipeline.data.shards.manifest import TRAIN, VALIDATION, stored_masks
from pipeline.data.shards.token_counts import count_ids
from pipeline.data.text.documents import DocumentBatch, DocumentCounts, add_counts
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.text.text_tasks import SplitTask
from pipeline.data.tokenizers.document_encoder import CHECKED_SHARE, FAST, TextEncoder
from pipeline.data.tokenizers.gigatoken_engine import return_memory
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.token_ids import Tokens, join_tokens, select
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.threads import on_threads
from pipeline.execution.workers import Stage
from pipeline.ingest.documents.records import ReadSpan, Source, State
from pipeline.ingest.documents.time_limit import TOO_SLOW
from pipeline.ingest.documents.unchanged import compare, reading, state_of
from pipeline.kernels.bits import count_characters, count_spaced_words

SPLITS_VERSION = 1
"""Goes into the fingerprint, as the ends of splits and parts determine the rows and their ids."""
_MOST_PARTS = 1 << 15  # 1 TB of text in one compressed file


class _PartDiffersError(Exception):
    """A finished part has other documents: others were too slow when it was made."""


@dataclass(frozen=True, slots=True)
class PrepareJob:
    """The settings that all tasks of one `prepare` share."""

    directory: Path
    """Finished parts are written here."""
    data: DataSettings
    """The recipe's data section."""
    corpora: tuple[str, ...]
    thresholds: dict[str, int]
    """Per corpus: documents whose 64-bit hash is below this go to validation."""
    split_bytes: int
    compression: arrow_files.Compression
    engine: str
    """"fast", which is checked against `tokenizers`, or "tokenizers"."""


def sequence_base(task: int, part: int, validation: bool) -> int:
    """The first sequence id of a part's train or validation rows: split << 32."""
    # from the top: 16 bits of task, 15 of part, 1 of split (see `is_held_out`), 32 of row
    return ((task * _MOST_PARTS + part) * 2 + int(validation)) << 32


@dataclass(slots=True)
class _Side:
    """A part's documents for one split, train or validation, until they are packed."""

    tokens: list[Tokens] = field(default_factory=list)
    documents: list[list[str]] = field(default_factory=lambda: [[], [], []])
    hashes: list[npt.NDArray[np.uint64]] = field(default_factory=list)
    words: int = 0
    """Words between white space."""

    def add(self, tokens: Tokens, batch: DocumentBatch, chosen: npt.NDArray[np.bool_]) -> None:
        if chosen.any():
            self.words += int(count_spaced_words(batch.buffer, batch.offsets)[chosen].sum())
            self.tokens.append(tokens if chosen.all() else select(tokens, chosen))
            named = (batch.ids, batch.origins, batch.licences)
            for column, values in zip(self.documents, named, strict=True):
                column.extend(itertools.compress(values, chosen.tolist()))
            self.hashes.append(batch.hashes[chosen])


@dataclass(slots=True)
class PartInProgress:
    """A part of a task while its documents are read."""

    task: SplitTask
    spans: Callable[[], list[ReadSpan]]
    """Returns the spans that the task has read so far, see `unchanged.reading`."""
    number: int = 0
    """Its number among the parts of the task."""
    counts: DocumentCounts = field(default_factory=DocumentCounts)
    """Counts of the part's documents."""
    sides: tuple[_Side, _Side] = field(default_factory=lambda: (_Side(), _Side()))
    """Documents to train on, and held-out ones."""

    def next(self) -> PartInProgress:
        """The part after this one, still empty."""
        return PartInProgress(self.task, self.spans, self.number + 1)

    def count(self, batch: DocumentBatch) -> None:
        """Count a batch's documents, those without tokens too."""
        self.counts.documents += len(batch.ids)
        self.counts.bytes += int(batch.offsets[-1]) - len(batch.ids)  # a NUL ends each document
        self.counts.characters += count_characters(batch.buffer) - len(batch.ids)

    def require_same(self, made: dict[str, Any]) -> None:
        """Raise _PartDiffersError unless the finished part of this number has these documents.

        made: its marker.
        """
        # content is compared elsewhere: only the time limit can drop other documents
        slow = [dropped.get(TOO_SLOW, 0) for dropped in (made["dropped"], self.counts.dropped)]
        if made["bytes"] != self.counts.bytes or slow[0] != slow[1]:
            raise _PartDiffersError

    def summary(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """The content of the part's marker; entries: its shards."""
        counts = self.counts
        return {
            "corpus": self.task.corpus,
            "shards": entries,
            "documents": counts.documents, "bytes": counts.bytes, "left_out": counts.left_out,
            "characters": counts.characters, "unknown": counts.unknown,
            "dropped": counts.dropped, "examples": counts.examples,
            "bad": counts.bad, "bad_example": counts.bad_example,
            "cut": counts.cut, "noted": counts.noted, "packed": counts.packed,
            "plain_text": counts.plain_text,
            "taken": counts.taken, "read": self.spans(),
        }  # fmt: skip


@dataclass(slots=True)
class Worker:
    """State of a process between tasks; the encoder's cache doubles its speed."""

    job: PrepareJob
    vocabulary: Vocabulary
    encoder: TextEncoder
    masking: Masking | None
    """Masking of the rows; None if masks are drawn later, see `later_masks`."""
    accepted: dict[Source, State] = field(default_factory=dict)
    """States in which files were not found, and in which they have the same content."""

    @classmethod
    def create(cls, job: PrepareJob, vocabulary: Vocabulary) -> Worker:
        masking = None
        if job.data.masks.random_ids == "uniform":
            masking = Masking.of(job.data, vocabulary.special, vocabulary.word_starts)
        encoder = TextEncoder.create(vocabulary, fast=job.engine == FAST)
        return cls(job, vocabulary, encoder, masking)

    def do(self, task: SplitTask) -> None:
        """Make every missing part of `task`, then write the task's marker."""
        directory = self.job.directory
        if (directory / task.marker).exists():
            return
        distrust = directory / f"task-{task.number:06d}.mismatch"
        trusts = not distrust.exists()
        while True:
            encoder = self.encoder if trusts else TextEncoder.create(self.vocabulary, fast=False)
            try:
                self._do(task, encoder)
                return
            except (EngineMismatch, _PartDiffersError) as error:
                # all parts of the task are made again: its ids must be those of one engine
                for path in directory.glob(f"part-{task.number:06d}-*.json"):
                    path.unlink()
                if isinstance(error, EngineMismatch):
                    # Written before the task is redone: a restart must not trust it again.
                    write_whole(distrust, f"{task.pieces[0].source.name}: {error}".encode())
                    trusts = False

    def _do(self, task: SplitTask, encoder: TextEncoder) -> None:
        read = DocumentCounts()  # since the last batch
        with reading(task.pieces, self._accept) as (pieces, spans):
            part = PartInProgress(task, spans)
            threshold = self.job.thresholds[task.corpus]
            for batch in read_kept(pieces, task.decisions, self.job.data.seed, read):
                part.counts.take(read)
                # on a restart finished parts are only counted, to find where the next one begins
                if not self._marker(part).exists():
                    _encode(batch, encoder, threshold, part)
                part.count(batch)
                if part.counts.bytes >= self.job.split_bytes:
                    self._finish(part)
                    part = part.next()
            part.counts.take(read)  # dropped after the last batch
            self._finish(part)
        write_whole(self.job.directory / task.marker, json.dumps(part.number + 1).encode())

    def _accept(self, source: Source) -> None:
        """Raise DataError if a file has other content than finished parts have read of it."""
        if self.accepted.get(source) != (now := state_of(source)):
            work = self.job.directory
            compare([source], read_finished_spans(work), work.parent)
            self.accepted[source] = now

    def _finish(self, part: PartInProgress) -> None:
        """Pack, mask and write one part, then its marker."""
        if part.number >= _MOST_PARTS:
            raise DataError(
                f"{part.task.pieces[0].source.path} has more than {_MOST_PARTS:,} splits of "
                f"{self.job.split_bytes:,} bytes; split the file"
            )
        marker = self._marker(part)
        if marker.exists():
            part.require_same(json.loads(marker.read_bytes()))
            return
        stem = marker.name.removesuffix(".json")
        entries = []
        tables = []
        for validation, side in enumerate(part.sides):
            if not side.tokens:
                continue
            base = sequence_base(part.task.number, part.number, bool(validation))
            split = VALIDATION if validation else TRAIN
            entry, documents, packed = self._write(
                side, part.task.corpus, base, split, f"{stem}.{split}"
            )
            entries.append(entry)
            add_counts(part.counts.packed, packed)
            tables.append(documents)
        sink = pa.BufferOutputStream()
        # a part without documents has its file, too: later stages read one per part
        documents = pa.concat_tables(tables or [DOCUMENTS_SCHEMA.empty_table()])
        pq.write_table(documents, sink, use_dictionary=REPEATED)
        write_whole(self.job.directory / f"{stem}.{DOCUMENTS}", sink.getvalue(), lasting=False)
        write_whole(marker, json.dumps(part.summary(entries)).encode())
        return_memory()

    def _write(
        self, side: _Side, corpus: str, base: int, split: str, stem: str
    ) -> tuple[dict[str, Any], pa.Table, dict[str, int]]:
        """Write the rows of one side, and the masks if it is train, or the counts that they need.

        Returns the manifest's entry, the documents and the counts of packing. Masks of validation
        are drawn when the parts' few rows are merged.
        """
        data, vocabulary, compression = self.job.data, self.vocabulary, self.job.compression
        tokens = join_tokens(side.tokens)
        side.tokens.clear()  # keeps one copy of a part in memory
        draws = data.segments.draws if split == TRAIN else 1
        rows = pack(data, tokens, vocabulary, corpus, base, draws)
        packed = count_packing(data, tokens, rows, draws)
        del tokens  # rows hold copies; makes room for the masks
        sequences = np.arange(base, base + len(rows), dtype=np.uint64)
        entry = arrow_files.write_shard_file(
            self.job.directory / f"{stem}.arrow",
            arrow_files.encode_rows(rows, corpus, list(self.job.corpora), sequences, compression),
        )
        entry |= {"split": split, "sequences": len(rows), "tokens": len(rows.ids), "masks": []}
        entry["words"] = side.words
        if self.masking is None:
            counts = count_ids(rows.ids, vocabulary.special)
            write_whole(counts_file(self.job.directory, stem), counts.tobytes(), lasting=False)
        elif split == TRAIN:
            duplicates = range(stored_masks(data.duplicates, split))
            masks = self.masking.draw_duplicates(
                rows.ids, rows.offsets, corpus, sequences, duplicates
            )
            entry["masks"] = arrow_files.write_masks(self.job.directory, stem, masks, compression)
        hashes = np.concatenate(side.hashes)
        return entry, document_table(corpus, side.documents, hashes, rows, sequences), packed

    def _marker(self, part: PartInProgress) -> Path:
        return part_marker(self.job.directory, part.task.number, part.number)


def _encode(
    batch: DocumentBatch, encoder: TextEncoder, threshold: int, part: PartInProgress
) -> None:
    """Add a batch's documents to the sides of `part`; threshold: see `PrepareJob`."""
    # chosen by hash, so a restart or another worker checks the same documents
    checked = (batch.hashes >> np.uint64(20)) % np.uint64(CHECKED_SHARE) == 0
    sentences = sentence_starts(batch.buffer, batch.offsets)
    tokens, unknown = encoder.encode(batch.buffer, batch.offsets, sentences, checked)
    validation = are_below(batch.hashes, threshold)
    filled = np.diff(tokens.document_offsets) > 0
    for _ in range(len(filled) - int(filled.sum())):
        part.counts.drop("no tokens")  # the tokenizer removes all its characters
        part.counts.documents -= 1
    missing, characters = unknown.sum(0).tolist()
    add_counts(part.counts.unknown, {"tokens": missing, "characters": characters})
    part.sides[0].add(tokens, batch, filled & ~validation)
    part.sides[1].add(tokens, batch, filled & validation)


def prepare_stage(job: PrepareJob, vocabulary: Vocabulary) -> Stage[SplitTask]:
    """The stage that turns documents into parts of shards."""
    return Stage(job.directory, partial(_start, job, vocabulary))


def _start(job: PrepareJob, vocabulary: Vocabulary) -> Callable[[SplitTask], None]:
    return Worker.create(job, vocabulary).do


def read_finished_spans(directory: Path) -> list[ReadSpan]:
    """The spans that finished parts have read, in order of their tasks."""
    # the last part of a task lists what those before it have read, too
    last = {path.name.split("-")[1]: path for path in sorted(directory.glob("part-*.json"))}
    rows = (json.loads(text).get("read", []) for text in on_threads(Path.read_bytes, last.values()))
    return [ReadSpan(*row) for row in itertools.chain.from_iterable(rows)]


def counts_file(directory: Path, stem: str) -> Path:
    """The file with the counts of the ids of a part's rows; stem: that of the rows."""
    return directory / f"{stem}.counts.npy"


def part_marker(directory: Path, task: int, part: int) -> Path:
    """The marker of a finished part, with its counts and shard entries."""
    return directory / f"part-{task:06d}-{part:04d}.json"
