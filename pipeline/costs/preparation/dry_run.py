"""The output of `pipeline.prepare --dry-run`: documents, disk, hours, and what is held out.

A preparation that may not fit on the disks is estimated before it starts, too, and refused.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.command_line import cores, data_root
from pipeline.base.durations import in_words
from pipeline.config.data_settings import DataSettings
from pipeline.config.run import Run
from pipeline.costs.preparation.corpus_estimate import (
    CorpusEstimate,
    estimate_corpora,
    estimate_documents,
    require_text,
)
from pipeline.costs.preparation.disk_room import (
    DiskUse,
    describe_disks,
    disk_use,
    is_ample,
    require_fit_on_disks,
    selection_bytes,
    shards_so_far,
    size_in_words,
)
from pipeline.costs.preparation.stage_time import cpu_seconds, describe_time
from pipeline.data.preparation.corpus_files import FoundCorpus
from pipeline.data.preparation.holdout import describe_hold_outs, expected_hold_outs
from pipeline.data.preparation.prepare_shards import parts_job
from pipeline.data.preparation.tokenizer import read_existing, warn_of_language
from pipeline.data.preparation.tokenizer_training import SAMPLE_BYTES
from pipeline.data.preparation.transfers import beginnings
from pipeline.data.selection.sample import sample_texts
from pipeline.data.selection.select import Selection, plan_selection
from pipeline.data.shards.corpus_warnings import MUCH_UNKNOWN
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.groups import require_size
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.extract import extracted_so_far
from pipeline.ingest.extraction.formats import is_extracted

Estimates = dict[str, CorpusEstimate]
LEAST_SECONDS = 1.0
"""Less cannot be told from what starts with it, such as imports."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The files that an estimate reads."""

    given: list[Source]
    """Files that are here, extracted ones and groups in place of theirs."""
    heads: list[Source]
    """Beginnings of published files."""
    factors: dict[str, float]
    """Size of all published files relative to these, by corpus."""

    @property
    def files(self) -> list[Source]:
        """All of them, one by one; they are made again at each call."""
        return [file for source in self.given for file in source.files] + self.heads


def print_estimate(arguments: argparse.Namespace, found: FoundCorpus, run: Run) -> None:
    """Print the estimate of --dry-run; nothing is written."""
    data, workers = run.data, _workers(arguments)
    sources = extracted_so_far(found.files, data_root() / "documents")
    with _sampled(sources) as sampled:
        files = sampled.files
        vocabulary = _existing(arguments, found, data)
        sample_bytes = 0 if vocabulary else SAMPLE_BYTES
        if vocabulary is None:
            print(
                "tokenizer: none for this corpus yet; estimating with one trained on a small sample"
            )
        elif arguments.tokenizer is not None:
            warn_of_language(vocabulary, files)
        estimates = _estimate(arguments, sampled, data, vocabulary)
        require_text(estimates)
        sizes = {name: (about.documents, about.text) for name, about in estimates.items()}
        held_out = expected_hold_outs(files, sizes, data)
    output, written = shards_so_far(arguments.output, found.corpus, run.name)
    written = written if written < math.inf else 0  # complete shards: estimate them as new ones
    use = _disk_use(arguments, sources, estimates, written, sample_bytes)
    for line in describe_estimate(estimates, describe_disks(use, output), workers):
        print(line)
    for line in describe_hold_outs(held_out, data.validation_fraction, files):
        print(line)
    if _may_drop(arguments):
        print(
            "these figures include documents that --dedup, --decontaminate, --filter, --map and "
            "--most-words drop"
        )
    if not arguments.allow_short:
        require_size(
            arguments.corpus, {name: about.text for name, about in estimates.items()}, "about"
        )


def require_room(
    arguments: argparse.Namespace,
    found: FoundCorpus,
    run: Run,
    known: dict[tuple[tuple[Source, ...], str], Estimates],
    sources: list[Source],
    output: Path | None,
) -> None:
    """Raise DataError if the disks have too little room for what is still to be written.

    known: gets the estimates, by files and vocabulary, so that none is made twice; sources:
    extracted or not; output: of shards that are not complete, None if their name is not known yet.
    """
    named = output or arguments.output
    if is_ample(sources, named or data_root() / "shards", run.data):  # before parts are measured
        return
    place, written = shards_so_far(named, found.corpus, run.name)
    sources = extracted_so_far(sources, data_root() / "documents")
    if written == math.inf and not any(map(is_extracted, sources)):  # nothing is left to write
        return
    vocabulary = _existing(arguments, found, run.data)
    # An estimate takes seconds in this process, and several calls need the same one.
    key = (tuple(sources), vocabulary.sha256 if vocabulary else "")
    if key not in known:
        with _sampled(sources) as sampled:
            known[key] = _estimate(arguments, sampled, run.data, vocabulary)
    sample_bytes = 0 if vocabulary else SAMPLE_BYTES
    use = _disk_use(arguments, sources, known[key], written, sample_bytes)
    # What documents are dropped is not known yet, and nothing that would fit is refused.
    least = replace(use, shards=0.0, pieces=0.0) if _may_drop(arguments) else use
    require_fit_on_disks(least, place)
    if output is None:
        for line in describe_disks(use, place, tight=True):
            print(f"warning: unless enough documents are dropped: {line}", flush=True)


def require_room_to_train(sources: list[Source], output: Path, sample_bytes: int) -> None:
    """Raise DataError if the disks have too little room to train a tokenizer, saved as `output`."""
    if is_ample(sources, output):
        return
    sources = extracted_so_far(sources, data_root() / "documents")
    with _sampled(sources) as sampled:
        estimates = _estimate_all(sampled, estimate_documents)
    use = disk_use(estimates, sources, cores(), 0, sample_bytes)
    require_fit_on_disks(replace(use, tokenizer=output), output)


def _disk_use(
    arguments: argparse.Namespace,
    sources: list[Source],
    estimates: Estimates,
    written: float,
    sample_bytes: int,
) -> DiskUse:
    """Bytes that `prepare` writes, with its selection; the arguments are as for `disk_use`."""
    use = disk_use(estimates, sources, _workers(arguments), written, sample_bytes)
    return replace(use, selection=selection_bytes(_selection(arguments, sources), estimates))


def _selection(arguments: argparse.Namespace, sources: list[Source]) -> Selection:
    """The selection of documents; without tasks until all files are extracted."""
    tasks = [] if any(map(is_extracted, sources)) else cut_tasks(sources, SPLIT_BYTES)
    return plan_selection(
        tasks,
        arguments.dedup,
        arguments.filter,
        arguments.decontaminate,
        data_root() / "documents",
        most_words=arguments.most_words,
    )


def _may_drop(arguments: argparse.Namespace) -> bool:
    """True if documents are dropped that an estimate counts."""
    selects = arguments.dedup != "none" or arguments.decontaminate or arguments.filter
    return bool(selects or arguments.map or arguments.most_words or arguments.exclude)


def _existing(
    arguments: argparse.Namespace, found: FoundCorpus, data: DataSettings
) -> Vocabulary | None:
    """The vocabulary that is used without training; a budget of words has a tokenizer of its own,
    which only a selection names."""
    if arguments.most_words and not arguments.tokenizer:
        return None
    return read_existing(arguments.tokenizer, found, data)


def _workers(arguments: argparse.Namespace) -> int:
    """Workers of all parts."""
    return (arguments.part or (1, 1))[1] * (arguments.workers or cores())


@contextmanager
def _sampled(sources: list[Source]) -> Iterator[Sampled]:
    with beginnings(sources) as (heads, factors):
        yield Sampled([source for source in sources if not source.published], heads, factors)


def _estimate(
    arguments: argparse.Namespace,
    sampled: Sampled,
    data: DataSettings,
    vocabulary: Vocabulary | None,
) -> Estimates:
    """An estimate for each corpus; vocabulary: None for one like the one that will be trained."""
    files = sampled.files
    vocabulary = vocabulary or train_vocabulary(
        data.tokenizer,
        lambda: sample_texts(files, 1 << 22, DocumentCounts()),
        data.vocab_size,
        lower_case=data.lower_case,
    )
    job = parts_job(arguments, data, files, SPLIT_BYTES)
    return _estimate_all(sampled, lambda sources: estimate_corpora(sources, job, vocabulary))


def _estimate_all(sampled: Sampled, estimate: Callable[[list[Source]], Estimates]) -> Estimates:
    """Estimates of all files, by one of those that are here."""
    estimates = estimate(sampled.given)
    for corpus, about in estimate(sampled.heads).items():
        about = about.times(sampled.factors[corpus])
        # A corpus may have given files and published ones.
        estimates[corpus] = estimates[corpus].plus(about) if corpus in estimates else about
    return estimates


def describe_estimate(found: Estimates, disks: list[str], workers: int) -> list[str]:
    """Lines for the user: results, disk space, time with this many workers.

    disks: lines of `describe_disks`.
    """
    total = functools.reduce(CorpusEstimate.plus, found.values())
    named = [*found.items(), ("total", total)] if len(found) > 1 else [*found.items()]
    lines = [
        f"{name}: about {about.documents:,.0f} documents, {about.text / 1e6:,.1f} MB of text, "
        f"{about.tokens:,.0f} tokens in {about.sequences:,.0f} sequences"
        for name, about in named
    ]
    lines += [
        f"{name}: warning: {about.unknown / about.characters:.1%} of the characters are lost in "
        "unknown tokens; use a tokenizer of this text's scripts"
        for name, about in found.items()
        if about.unknown > MUCH_UNKNOWN * about.characters
    ]
    extraction = cpu_seconds(work for work in total.units if work.stage == "extract")
    if total.extracted:
        few = extraction < LEAST_SECONDS
        time = f"less than {in_words(LEAST_SECONDS)}" if few else in_words(extraction)
        lines.append(
            f"documents: about {size_in_words(total.extracted)} of Parquet, extracted in "
            f"{time} of CPU time"
        )
    lines += disks
    speed = f"{total.text / total.seconds / 1e6:,.1f} MB of text per CPU second"
    lines.append(f"time: {describe_time(total.units, workers)}; {speed}")
    return lines
