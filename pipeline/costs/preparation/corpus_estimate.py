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
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.files import bytes_in
from pipeline.costs.preparation.raw_sample import (
    Kind,
    WrittenSample,
    find_kinds,
    time_to_read,
    write_sample,
)
from pipeline.costs.preparation.stage_time import Work
from pipeline.data.preparation.assemble import read_parts
from pipeline.data.preparation.holdout import MINIMUM_DOCUMENTS
from pipeline.data.preparation.later_masks import draw_later, need_counts
from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import Piece, Source
from pipeline.ingest.documents.sniff import sniff

CHOICE = "the choice of held-out documents"
_SHORT_CHARACTERS = 100
_PASSES = 3
_ENOUGH_SECONDS = 1.0
"""CPU time of passes that need no other, as what disturbs them is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEstimate:
    """The predicted results and costs of a corpus, or of several."""

    documents: float
    text: float
    """Bytes of cleaned text."""
    tokens: float
    sequences: float
    disk: float
    """Bytes of shards with their masks, and of what is kept with them."""
    seconds: float
    """CPU time to extract and prepare."""
    characters: float = 0.0
    """Characters of cleaned text."""
    unknown: float = 0.0
    """Characters that become unknown tokens."""
    packed: float = 0.0
    """Bytes of the text as samples for tokenizers are compressed."""
    extracted: float = 0.0
    """Bytes of the Parquet files that are extracted from the corpus's files."""
    units: tuple[Work, ...] = ()
    """The CPU time by unit of work, and for the choice of held-out documents."""

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
    sources: list[Source],
    job: PrepareJob,
    vocabulary: Vocabulary,
) -> dict[str, CorpusEstimate]:
    """An estimate for each corpus; nothing is written to the job's directory.

    sources: as `extracted_so_far` returns them. Files of each kind are sampled separately, as a
    byte of a compressed file holds more text.
    """
    found: dict[str, CorpusEstimate] = {}
    if not sources:
        return found
    # Thresholds of 0 hold nothing out, so that the whole sample is prepared as training text.
    worker = Worker.create(replace(job, thresholds=dict.fromkeys(job.corpora, 0)), vocabulary)
    for kind in find_kinds(sources):
        with tempfile.TemporaryDirectory() as folder:
            about = _try_out(worker, kind, Path(folder))
        found[kind.corpus] = found[kind.corpus].plus(about) if kind.corpus in found else about
    return found


def estimate_documents(sources: list[Source]) -> dict[str, CorpusEstimate]:
    """An estimate for each corpus of its text and of the extraction, without preparing any."""
    found: dict[str, CorpusEstimate] = {}
    for kind in find_kinds(sources):
        with tempfile.TemporaryDirectory() as folder:
            sample = Path(folder, "sample.jsonl")
            written = write_sample(kind, sample)
            about = _without_shards(written, sample)
        found[kind.corpus] = found[kind.corpus].plus(about) if kind.corpus in found else about
    return found


def require_text(found: dict[str, CorpusEstimate]) -> None:
    """Raise DataError for a corpus without text."""
    for corpus, about in found.items():
        if not about.documents:
            raise DataError(
                f"corpus {corpus}: no text at any of the places sampled; give other files, or name "
                "the field with --text-field"
            )


def _try_out(worker: Worker, kind: Kind, folder: Path) -> CorpusEstimate:
    """Prepare a sample of a kind of files in `folder`, and scale the result."""
    sample, corpus, sources = folder / "sample.jsonl", kind.corpus, kind.files
    written = write_sample(kind, sample)
    share, reading = written.share, written.reading
    bare = _without_shards(written, sample)
    if not bare.text:
        return bare
    short = folder / "short.jsonl"
    with sample.open() as lines:
        text = json.loads(next(lines))["text"][:_SHORT_CHARACTERS]
    short.write_text(json.dumps({"text": text}) + "\n")
    name = f"sample of {corpus}"
    of_sample, of_short = (sniff(path, corpus, name, text_field="text") for path in (sample, short))
    _measure(worker, of_sample, folder)  # compiles kernels and fills the encoder's cache
    fixed = _quickest(worker, of_short, folder)  # what a part costs, however short it is
    about = _quickest(worker, of_sample, folder)
    about = replace(
        about,
        seconds=max(0.0, about.seconds - fixed.seconds),
        disk=max(0.0, about.disk - fixed.disk),
    ).times(1 / share)
    # Files that are extracted are cut by their text, others by their bytes on disk.
    parts = max(len(cut_tasks(sources)), math.ceil(about.text / SPLIT_BYTES))
    about = replace(
        about,
        documents=about.documents * written.documents,
        seconds=about.seconds + fixed.seconds * parts,
        disk=about.disk + fixed.disk * parts,
        packed=about.text * bare.packed / bare.text,
        extracted=written.extracted,
    )
    (piece,) = cut(of_sample, sys.maxsize)
    if not kind.is_extracted:
        reading -= time_to_read(piece)[0]  # the time for JSON lines, which was measured
    choice = _time_to_clean(piece)
    if not kind.is_extracted and not _is_plain_jsonl(sources[0]):
        choice += reading
    # One process chooses held-out documents, see `validation_thresholds`.
    read = MINIMUM_DOCUMENTS / max(worker.job.data.validation_fraction, 1e-9)
    choice = max(0.0, choice) / share * min(1.0, read / max(1.0, about.documents))
    about = _with_units(about, reading / share, kind)
    return replace(about, units=(*about.units, Work("hold out", CHOICE, choice)))


def _without_shards(written: WrittenSample, sample: Path) -> CorpusEstimate:
    with sample.open() as lines:
        texts = [json.loads(line)["text"].encode() for line in lines]
    text = b"".join(texts)
    packed = len(pa.compress(text, "lz4_raw")) if text else 0  # as samples for tokenizers are
    return CorpusEstimate(
        documents=len(texts) * written.documents / written.share if texts else 0,
        text=len(text) / written.share if text else 0,
        tokens=0, sequences=0, disk=0, seconds=0,
        packed=packed / written.share if text else 0, extracted=written.extracted,
    )  # fmt: skip


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


def _with_units(about: CorpusEstimate, reading: float, kind: Kind) -> CorpusEstimate:
    """The estimate with its units of work.

    Files that are extracted are so in units of their own, and then cut again. Others are read in
    the pieces that they are prepared in. reading: CPU time to extract the files, or how much longer
    than JSON lines they take to read.
    """
    sources = kind.files
    seconds = max(0.0, about.seconds + (0.0 if _is_plain_jsonl(sources[0]) else reading))
    if kind.is_extracted:
        size = sum(source.size for source in sources)
        units = [Work("extract", name, reading * part / size) for name, part in kind.unit_sizes()]
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
    started_at = time.process_time()  # CPU time: disks may be slower, as the output says
    for task in tasks:
        worker.do(task)
    parts = read_parts(worker.job.directory, tasks)
    if need_counts(worker.job.data):
        parts = draw_later(worker.job, worker.vocabulary, tasks, parts, local_executor(1))
    seconds = time.process_time() - started_at
    entries = [entry for part in parts for entry in part.shards]
    return CorpusEstimate(
        documents=sum(part.counts.documents for part in parts),
        text=sum(part.counts.bytes for part in parts),
        tokens=sum(entry["tokens"] for entry in entries),
        sequences=sum(entry["sequences"] for entry in entries),
        disk=bytes_in(worker.job.directory),
        characters=sum(part.counts.characters for part in parts),
        unknown=sum(part.counts.unknown.get("characters", 0) for part in parts),
        seconds=seconds,
    )
