"""Input files -> published shards: the stages of `pipeline.prepare`, in order."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.command_line import data_root
from pipeline.base.errors import DataError
from pipeline.config.run import Run
from pipeline.data.preparation.corpus_files import FoundCorpus
from pipeline.data.preparation.fingerprint import Identities
from pipeline.data.preparation.prepare_shards import ShardsJob, plan_job, run_tasks
from pipeline.data.preparation.publication import publish_shards
from pipeline.data.preparation.tokenizer import find_tokenizer
from pipeline.data.selection.select import decide, plan_selection
from pipeline.data.shards.manifest import Manifest
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import Executor
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.extract import extract


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSizes:
    """Sizes of tasks and shards, in bytes of text."""

    split: int
    """Text of a task."""
    shard: int
    """Most text of a train shard, which is assembled from several splits."""


def make_shards(
    arguments: argparse.Namespace,
    run: Run,
    found: FoundCorpus,
    executor: Executor,
    *,
    sizes: TextSizes,
    documents: Path | None = None,
    check_room: Callable[[list[Source], Path | None], None] | None = None,
) -> tuple[ShardsJob, Manifest] | None:
    """Make the shards of `found`; None if they exist, or another process publishes them.

    arguments: as `prepare_arguments` returns them; documents: directory of extracted files, None
    for the usual one; check_room: raises DataError if the disks are too small for these sources and
    this output, None until it is known to be incomplete.
    """
    part = arguments.part or (1, 1)
    documents, known = documents or data_root() / "documents", Identities()
    if check_room:
        check_room(found.files, None)
    sources = extract(found.files, documents, executor, part)
    selection = plan_selection(
        cut_tasks(sources, sizes.split),
        arguments.dedup, arguments.filter, arguments.decontaminate, documents,
        arguments.most_words,
    )  # fmt: skip
    budgeted = selection if arguments.most_words else None
    if budgeted:  # before the tokenizer, which is trained only on what is kept
        decide(selection, executor, part)
    tokenizer = find_tokenizer(
        arguments.tokenizer, found, sources, run.data, known, executor, budgeted
    )
    job = plan_job(
        arguments, run, found, sources, selection, tokenizer,
        split_bytes=sizes.split, known=known,
    )  # fmt: skip
    if job.is_complete():
        tokenizer.publish(run.data)  # in case the earlier run was killed before this
        return None
    if check_room:  # again, as the output's name is known now, and so what it holds
        check_room(sources, job.output)
    decide(selection, executor, part)
    try:
        with run_tasks(job, executor, arguments.part) as finished:
            if finished is None:
                return None
            manifest = publish_shards(
                job, finished, executor, shard_bytes=sizes.shard,
                max_bad_fraction=arguments.max_bad_fraction, allow_short=arguments.allow_short,
                allow_unknown=arguments.allow_unknown,
            )  # fmt: skip
    except (DataError, OSError):
        # Where locks have no effect, another process may publish, and remove the parts, meanwhile.
        if job.is_complete():
            return None
        raise
    return job, manifest
