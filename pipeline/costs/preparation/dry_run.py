"""What `pipeline.prepare --dry-run` prints: documents, disk, hours, and what is held out."""

from __future__ import annotations

import argparse
import functools
import shutil
from pathlib import Path

from pipeline.base.command_line import cores, data_root
from pipeline.config.data_settings import DataSettings
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate, estimate_corpora
from pipeline.costs.preparation.stage_time import describe_time
from pipeline.data.preparation.corpus_files import FoundCorpus
from pipeline.data.preparation.holdout import describe_hold_outs, expected_hold_outs
from pipeline.data.preparation.prepare_shards import parts_job
from pipeline.data.preparation.tokenizer import read_existing, warn_of_language
from pipeline.data.preparation.transfers import beginnings
from pipeline.data.shards.manifest import MUCH_UNKNOWN
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.sample import sample_texts
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.ingest.corpora.groups import require_size
from pipeline.ingest.documents.records import Source


def print_estimate(arguments: argparse.Namespace, found: FoundCorpus, data: DataSettings) -> None:
    """Print the estimate of --dry-run; nothing is written.

    Of published files, the beginnings of some stand for all.
    """
    with beginnings(found.files) as (files, factors):
        estimates = _estimate(arguments, found, files, data)
        estimates = {name: about.times(factors.get(name, 1)) for name, about in estimates.items()}
        sizes = {name: (about.documents, about.text) for name, about in estimates.items()}
        held_out = expected_hold_outs(files, sizes, data)
    output, workers = arguments.output or data_root(), arguments.workers or cores()
    for line in describe_estimate(estimates, output, workers):
        print(line)
    for line in describe_hold_outs(held_out, data.validation_fraction, files):
        print(line)
    if arguments.dedup != "none" or arguments.decontaminate or arguments.filter:
        print("these figures include documents that --dedup, --decontaminate and --filter drop")
    if not arguments.allow_short:
        require_size(
            arguments.corpus, {name: about.text for name, about in estimates.items()}, "about"
        )


def _estimate(
    arguments: argparse.Namespace, found: FoundCorpus, files: list[Source], data: DataSettings
) -> dict[str, CorpusEstimate]:
    """An estimate of `files` for each corpus, with the tokenizer of `found` or one like it."""
    vocabulary = read_existing(arguments.tokenizer, found, data)
    if vocabulary is not None and arguments.tokenizer is not None:
        warn_of_language(vocabulary, files)
    if vocabulary is None:
        print("tokenizer: none for this corpus yet; estimating with one trained on a small sample")
        vocabulary = train_vocabulary(
            data.tokenizer,
            lambda: sample_texts(files, 1 << 22, DocumentCounts()),
            data.vocab_size,
            lower_case=data.lower_case,
        )
    return estimate_corpora(files, parts_job(arguments, data, files, SPLIT_BYTES), vocabulary)


def describe_estimate(found: dict[str, CorpusEstimate], output: Path, workers: int) -> list[str]:
    """Lines for the user: results, disk space at `output`, time with this many workers."""
    total = functools.reduce(CorpusEstimate.plus, found.values())
    named = [*found.items(), ("total", total)] if len(found) > 1 else [*found.items()]
    lines = [
        f"{name}: about {about.documents:,.0f} documents, {about.text / 1e6:,.1f} MB of text, "
        f"{about.tokens:,.0f} tokens in {about.sequences:,.0f} sequences"
        for name, about in named
    ]
    lines += [
        f"{name}: warning: {about.unknown / about.characters:.1%} of the characters are behind "
        "unknown tokens; use a tokenizer of this text's scripts"
        for name, about in found.items()
        if about.unknown > MUCH_UNKNOWN * about.characters
    ]
    home = next(path for path in (output, *output.absolute().parents) if path.exists())
    free = shutil.disk_usage(home).free
    enough = "" if total.disk < free else ": not enough"
    lines.append(f"disk: about {total.disk / 1e9:,.2f} GB, {free / 1e9:,.2f} GB free{enough}")
    speed = f"{total.text / total.seconds / 1e6:,.1f} MB of text per CPU second"
    lines.append(f"time: {describe_time(total.units, workers)}; {speed}")
    return lines
