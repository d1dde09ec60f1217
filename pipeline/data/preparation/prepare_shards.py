"""The shards of a `prepare`: plans the job, runs its tasks, and says whether they are complete."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.command_line import data_root
from pipeline.base.errors import DataError
from pipeline.config.data_settings import DataSettings
from pipeline.config.run import Run
from pipeline.config.settings import fingerprint
from pipeline.data.preparation.assemble import Part, compare_inputs, read_parts
from pipeline.data.preparation.corpus_files import FoundCorpus
from pipeline.data.preparation.fingerprint import Identities, identify_files, shard_identity
from pipeline.data.preparation.holdout import describe_hold_outs, hold_outs
from pipeline.data.preparation.later_masks import draw_later, need_counts
from pipeline.data.preparation.tokenizer import ChosenTokenizer
from pipeline.data.preparation.worker import PrepareJob, prepare_stage, read_finished_spans
from pipeline.data.selection.select import Selection
from pipeline.data.shards.document_index import DOCUMENTS_SCHEMA
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.text.text_tasks import FINER, SplitTask, has_finer_end
from pipeline.data.tokenizers.document_encoder import FAST, choose_engine
from pipeline.execution.work_directory import WORK, work_directory
from pipeline.execution.workers import Executor
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.unchanged import compare


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsJob:
    """The shards to make: their documents, settings and directory."""

    run: Run
    corpus: str
    """The corpus's or group's name."""
    languages: Mapping[str, str]
    """Languages of the corpora, see `FoundCorpus`."""
    sources: list[Source]
    """The files that are read; slow formats are extracted already."""
    selection: Selection
    tokenizer: ChosenTokenizer
    parts: PrepareJob
    """The settings that its tasks share, as `parts_job` returns them."""
    fingerprint: str
    identities: Identities
    """Identities of all files, as they went into the fingerprint."""
    output: Path

    def is_complete(self) -> bool:
        """True if `output` holds exactly these shards. Raises DataError if it holds others."""
        if not (self.output / MANIFEST).exists():
            return False
        found = read_manifest(self.output).fingerprint
        if found != self.fingerprint:
            raise DataError(
                f"{self.output} was made from another recipe, input or tokenizer (fingerprint "
                f"{found}, now {self.fingerprint}); name another --output"
            )
        compare_inputs(self.sources, self.output)
        shutil.rmtree(self.output / WORK, ignore_errors=True)  # of a run killed at the very end
        print(f"{self.output} is complete already; nothing to do")
        return True


def plan_job(
    arguments: argparse.Namespace,
    run: Run,
    found: FoundCorpus,
    sources: list[Source],
    selection: Selection,
    tokenizer: ChosenTokenizer,
    *,
    split_bytes: int,
    known: Identities,
) -> ShardsJob:
    """Name the shards and their directory.

    sources: the files of `found`, extracted; known: identities of files that were read before.
    """
    engine = choose_engine(tokenizer.vocabulary)
    weight = sum(task.weight for task in selection.tasks)
    identity = shard_identity(
        run.data, identify_files(sources, known), tokenizer.vocabulary, engine,
        arguments.compression, selection.mark,
        finer=FINER if has_finer_end(weight, split_bytes) else 1,
    )  # fmt: skip
    mark = fingerprint(identity)
    return ShardsJob(
        run=run,
        corpus=found.corpus,
        languages=found.languages,
        sources=sources,
        selection=selection,
        tokenizer=tokenizer,
        parts=parts_job(arguments, run.data, sources, split_bytes, engine),
        fingerprint=mark,
        identities=known,
        output=arguments.output or data_root() / "shards" / f"{found.corpus}-{run.name}-{mark}",
    )


def parts_job(
    arguments: argparse.Namespace,
    data: DataSettings,
    sources: list[Source],
    split_bytes: int,
    engine: str = FAST,
) -> PrepareJob:
    """The settings that tasks share, without directory and thresholds, which follow later."""
    return PrepareJob(
        directory=Path(),
        data=data,
        corpora=tuple(dict.fromkeys(source.corpus for source in sources)),
        thresholds={},
        split_bytes=split_bytes,
        compression=arguments.compression,
        engine=engine,
    )


@dataclass(frozen=True, slots=True)
class FinishedTasks:
    """The finished tasks of a job, ready to be published."""

    job: PrepareJob
    tasks: list[SplitTask]
    parts: list[Part]


def _compare_found(job: ShardsJob, work: Path) -> None:
    """Raise DataError unless files were found as finished parts have read them."""
    compare(job.sources, read_finished_spans(work), job.output, as_found=True)


@contextmanager
def run_tasks(
    job: ShardsJob, executor: Executor, part: tuple[int, int] | None
) -> Iterator[FinishedTasks | None]:
    """Make the parts of the shards, alone or with other parts of an array, with OUT/.work locked.

    Yields None if another process has published, or will publish, the shards.
    """
    tasks = job.selection.decided_tasks()
    # before the directory is locked, as the thresholds are part of the plan that it compares
    held_out = hold_outs(tasks, job.run.data, executor)
    for line in describe_hold_outs(held_out, job.run.data.validation_fraction, job.sources):
        print(line, flush=True)
    thresholds = {corpus: about.threshold for corpus, about in held_out.items()}
    plan = {
        "tasks": len(tasks),
        "thresholds": thresholds,
        "documents": DOCUMENTS_SCHEMA.names,
        "counts": ["words"],  # of finished parts, which earlier versions did not count
    }
    with work_directory(
        job.output,
        job.fingerprint,
        plan,
        job.is_complete,
        shared=part is not None,
        explain=lambda work: _compare_found(job, work),
    ) as work:
        if work is None:
            yield None
            return
        _compare_found(job, work.path)  # early: a change that a worker finds costs its work
        parts = replace(
            job.parts,
            directory=work.path,
            corpora=tuple(thresholds),
            thresholds=thresholds,
        )
        stage = prepare_stage(parts, job.tokenizer.vocabulary)
        if not work.finish(stage, tasks, executor, part):
            yield None
            return
        made = read_parts(work.path, tasks)
        if need_counts(job.run.data):
            made = draw_later(parts, job.tokenizer.vocabulary, tasks, made, executor)
        yield FinishedTasks(parts, tasks, made)
