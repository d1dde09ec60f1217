"""Estimates what preparing a corpus yields and costs, from a few megabytes of it.

The sample is read at evenly spaced places, the same ones every time. Real workers prepare it in a
temporary directory. What grows with the text is divided by the sample's share of the files; what a
part costs however short it is, as a pass over one short document shows, is counted for each part.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.base.errors import DataError
from pipeline.costs.preparation.stage_time import Work
from pipeline.data.preparation.assemble import read_parts
from pipeline.data.preparation.holdout import MINIMUM_DOCUMENTS
from pipeline.data.preparation.later_masks import draw_later, need_counts
from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.giants import in_pieces
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression.codecs import decompressed
from pipeline.ingest.documents.byte_blocks import CountedFile
from pipeline.ingest.documents.csv_tables import bytes_of_rows
from pipeline.ingest.documents.read import TABLES, cut, is_readable, read, read_whole, rows_of
from pipeline.ingest.documents.records import Extract, Piece, Record, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.units import SlowFormat, cut_units, format_of, is_extracted

PLACES = 16
"""Places sampled in a corpus's files of one kind."""
SAMPLE_BYTES = 4 << 20
"""Bytes sampled from a corpus's files of one kind, over all places."""
CHOICE = "the choice of held-out documents"
_LONG = 2  # times the bytes of a place; of longer documents, only as many bytes are prepared
_SHORT_CHARACTERS = 100
_PASSES = 3
_ENOUGH_SECONDS = 1.0
"""CPU time of passes that need no other, as what disturbs them is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEstimate:
    """What a corpus, or several, will come to."""

    documents: float
    text: float
    """Bytes of cleaned text."""
    tokens: float
    sequences: float
    disk: float
    """Bytes of shards with their masks."""
    seconds: float
    """CPU time to extract and prepare."""
    characters: float = 0.0
    """Of cleaned text."""
    unknown: float = 0.0
    """Characters behind unknown tokens."""
    units: tuple[Work, ...] = ()
    """The same by unit of work, and the choice of held-out documents."""

    def times(self, factor: float) -> CorpusEstimate:
        """Every number multiplied by `factor`, with as many times the units.

        Held-out documents are chosen from the first few thousand, of however many.
        """
        numbers = [name for name in self.__slots__ if name != "units"]
        scaled = {name: getattr(self, name) * factor for name in numbers}
        units = tuple(
            work if work.stage == "hold out" else replace(work, count=work.count * factor)
            for work in self.units
        )
        return replace(self, **scaled, units=units)

    def plus(self, other: CorpusEstimate) -> CorpusEstimate:
        """The sum of two estimates, with the units of both."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__}
        return replace(self, **sums)


def estimate_corpora(
    sources: list[Source], job: PrepareJob, vocabulary: Vocabulary
) -> dict[str, CorpusEstimate]:
    """An estimate for each corpus; nothing is written to the job's directory.

    Files of each kind are sampled separately, as a byte of a compressed file holds more text.
    """
    kinds: dict[tuple[str, str, str], list[Source]] = {}
    for source in sources:
        kinds.setdefault((source.corpus, source.format, source.compression), []).append(source)
    found: dict[str, CorpusEstimate] = {}
    worker = Worker.create(replace(job, thresholds=dict.fromkeys(job.corpora, 0)), vocabulary)
    for (corpus, *_), alike in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            about = _try_out(worker, corpus, alike, Path(folder))
        found[corpus] = found[corpus].plus(about) if corpus in found else about
    for corpus, about in found.items():
        if not about.documents:
            raise DataError(
                f"corpus {corpus}: no text at any of the places sampled; give other files, or name "
                "the field with --text-field"
            )
    return found


def _try_out(worker: Worker, corpus: str, sources: list[Source], folder: Path) -> CorpusEstimate:
    """Prepare a sample of `sources` in `folder`, and scale the result."""
    sample = folder / "sample.jsonl"
    written = _write_sample(sources, sample)
    share, reading = written.share, written.reading
    if not sample.stat().st_size:
        return CorpusEstimate(documents=0, text=0, tokens=0, sequences=0, disk=0, seconds=0)
    short = folder / "short.jsonl"
    with sample.open() as lines:
        text = json.loads(next(lines))["text"][:_SHORT_CHARACTERS]
    short.write_text(json.dumps({"text": text}) + "\n")
    name = f"sample of {corpus}"
    of_sample, of_short = (sniff(path, corpus, name, text_field="text") for path in (sample, short))
    _measure(worker, of_sample, folder)  # compiles kernels and fills the encoder's cache
    fixed = _quickest(worker, of_short, folder).seconds
    about = _quickest(worker, of_sample, folder)
    about = replace(about, seconds=max(0.0, about.seconds - fixed)).times(1 / share)
    about = replace(about, documents=about.documents * written.documents)
    parts = max(len(cut_tasks(sources)), math.ceil(about.text / SPLIT_BYTES))
    about = replace(about, seconds=about.seconds + fixed * parts)
    (piece,) = cut(of_sample, sys.maxsize)
    extracted = is_extracted(sources[0])
    if not extracted:
        reading -= _time_to_read(piece)[0]  # of JSON lines, which was measured
    choice = _time_to_clean(piece)
    if not extracted and not _is_plain_jsonl(sources[0]):
        choice += reading
    # One process chooses held-out documents, see `validation_thresholds`.
    read = MINIMUM_DOCUMENTS / max(worker.job.data.validation_fraction, 1e-9)
    choice = max(0.0, choice) / share * min(1.0, read / max(1.0, about.documents))
    about = _with_units(about, reading / share, sources)
    return replace(about, units=(*about.units, Work("hold out", CHOICE, choice)))


def _time_to_clean(piece: Piece) -> float:
    """CPU time of reading and cleaning a piece."""
    started_at = time.process_time()
    for _ in read_batches((piece,), 0, DocumentCounts()):
        pass
    return time.process_time() - started_at


def _quickest(worker: Worker, source: Source, folder: Path) -> CorpusEstimate:
    """The quickest of a few passes: in others the encoder starts again, or the machine is busy."""
    passes: list[CorpusEstimate] = []
    while len(passes) < _PASSES and sum(each.seconds for each in passes) < _ENOUGH_SECONDS:
        passes.append(_measure(worker, source, folder))
    return min(passes, key=lambda each: each.seconds)


def _with_units(about: CorpusEstimate, reading: float, sources: list[Source]) -> CorpusEstimate:
    """The estimate with its units of work.

    Slow formats are extracted in units of their own, and then cut again. Others are read in the
    pieces that they are prepared in. reading: CPU time to extract `sources`, or how much longer
    than JSON lines they take to read.
    """
    seconds = max(0.0, about.seconds + (0.0 if _is_plain_jsonl(sources[0]) else reading))
    if is_extracted(sources[0]):
        size = sum(source.size for source in sources)
        units = [
            Work("extract", file.name, reading * (unit.stop - unit.start) / size)
            for file in sources
            for unit in cut_units(file)
        ]
        count = math.ceil(about.text / SPLIT_BYTES)
        units.append(Work("prepare", "a split", about.seconds / count, count))
        return replace(about, seconds=seconds, units=tuple(units))
    tasks = cut_tasks(sources)
    weight = sum(task.weight for task in tasks)
    units = [
        Work("prepare", task.pieces[0].source.name, seconds * task.weight / weight)
        for task in tasks
    ]
    return replace(about, seconds=seconds, units=tuple(units))


def _is_plain_jsonl(source: Source) -> bool:
    return source.format == "jsonl" and not source.compression


def _measure(worker: Worker, source: Source, folder: Path) -> CorpusEstimate:
    """One pass over `source`; its parts are made in a new directory in `folder`."""
    worker.job = replace(worker.job, directory=Path(tempfile.mkdtemp(dir=folder)))
    tasks = cut_tasks([source])
    started_at = time.process_time()  # CPU time: disks may be slower, which the user is told
    for task in tasks:
        worker.do(task)
    parts = read_parts(worker.job.directory, tasks)
    if need_counts(worker.job.data):
        parts = draw_later(worker.job, worker.vocabulary, tasks, parts, local_executor(1))
    seconds = time.process_time() - started_at
    entries = [entry for part in parts for entry in part.shards]
    files = [file for entry in entries for file in (entry, *entry["masks"])]
    return CorpusEstimate(
        documents=sum(part.counts.documents for part in parts),
        text=sum(part.counts.bytes for part in parts),
        tokens=sum(entry["tokens"] for entry in entries),
        sequences=sum(entry["sequences"] for entry in entries),
        disk=sum(file["bytes"] for file in files),
        characters=sum(part.counts.characters for part in parts),
        unknown=sum(part.counts.unknown.get("characters", 0) for part in parts),
        seconds=seconds,
    )


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """What was written of a corpus's files."""

    share: float
    """Of the files' bytes."""
    reading: float
    """CPU time of reading it from the files."""
    documents: float
    """How many documents each one that was written stands for: less than 1 if they were cut."""


def _write_sample(sources: list[Source], path: Path) -> WrittenSample:
    """Write some documents as JSON lines, of long ones the start."""
    pieces = [piece for task in cut_tasks(sources, SPLIT_BYTES) for piece in task.pieces]
    chosen = [pieces[i * len(pieces) // PLACES] for i in range(PLACES)]
    if len(pieces) < PLACES:
        chosen = pieces
    quota = SAMPLE_BYTES // len(chosen)
    passed = taken = reading = 0.0  # bytes on disk of what is read, and of what is written
    found = written = characters = 0
    next(_read_start(chosen[0], 1))  # imports the reader's packages
    with path.open("w") as file:
        for piece in chosen:
            seconds, whole, size = 0.0, 0, 0
            started_at = time.process_time()
            for item in _read_start(piece, quota):
                if isinstance(item, float):
                    kept = size / whole if whole else 1.0
                    passed, taken, reading = (
                        passed + item,
                        taken + item * kept,
                        reading + seconds * kept,
                    )
                else:
                    seconds += time.process_time() - started_at
                    text = item.text if len(item.text) <= _LONG * quota else item.text[:quota]
                    print(json.dumps({"text": text}), file=file)
                    whole, size = whole + len(item.text), size + len(text)
                    found, written = found + sum(1 for _ in in_pieces(item)), written + 1
                started_at = time.process_time()
            characters += size
    if chosen[0].source.format in TABLES:
        # Rows are decoded many at a time, so the first of a place cost as much as all these.
        seconds, size = _time_to_read(pieces[len(pieces) // 2])
        reading = seconds * characters / max(1, size)
    return WrittenSample(
        share=taken / sum(source.size for source in sources),
        reading=reading,
        documents=found / max(1, written) * taken / max(1.0, passed),
    )


def _time_to_read(piece: Piece) -> tuple[float, int]:
    """CPU time of reading a piece, or the start of a large one, and the characters read."""
    size = 0
    started_at = time.process_time()
    for record in _records(piece):
        size += len(record.text)
        if size >= SPLIT_BYTES:
            break
    return time.process_time() - started_at, size


def _read_start(piece: Piece, quota: int) -> Iterator[Record | float]:
    """Records that start in a piece, `quota` bytes or a little more; then their size on disk.

    One record after them is read too: its position is where the last one ended.
    """
    source = piece.source
    if not is_readable(source):
        yield from _first_extracts(piece, quota)
        return
    is_cut = source.format not in TABLES and not read_whole(source)
    size, start, end = 0, piece.start, 0
    is_empty = True  # so a document of an earlier piece goes through all of it
    for record in read(piece):
        is_empty = False
        if not isinstance(record, Record):
            continue
        position = int(record.id.rpartition("@")[2])
        if size >= quota:
            yield float(position - start) if is_cut else _bytes_before(piece, position)
            return
        if not size and piece.start:  # a document of an earlier piece ends here
            start = position
        size += len(record.text)
        end = position + len(record.text.encode())
        yield record
    if is_cut and end:
        yield float(max(piece.stop, end) - start)  # the last one may end in a later piece
    else:
        yield 0.0 if is_cut and is_empty else float(piece.weight)


def _first_extracts(piece: Piece, quota: int) -> Iterator[Record | float]:
    size, source = 0, piece.source
    format = format_of(source)
    assert isinstance(format, SlowFormat)
    for extract in format.begin(source):
        if not isinstance(extract, Extract):
            continue
        if not extract.dropped:
            size += len(extract.text)
            yield Record(extract.id, extract.url, extract.text)
        if size >= quota:
            yield _bytes_before(piece, extract.position)
            return
    yield float(piece.weight)


def _records(piece: Piece) -> Iterator[Record]:
    return (record for record in read(piece) if isinstance(record, Record))


def _bytes_before(piece: Piece, position: int) -> float:
    """Bytes on disk before a record, from the piece's start; position: as in the record's id."""
    source = piece.source
    if source.format in TABLES:
        rows = rows_of(piece)
        return float(piece.weight * (position - rows.start) / len(rows))
    if source.format == "csv":
        position = bytes_of_rows(piece, position)
    if not source.compression:
        return float(position)
    with Path(source.path).open("rb") as file:
        packed, before = CountedFile(file), 0
        for block in decompressed(cast(BinaryIO, packed), source.compression):
            if position <= len(block):
                return before + (packed.taken - before) * position / len(block)
            position -= len(block)
            before = packed.taken
        return float(before)
