"""The stages of `pipeline.prepare`: plan the job, run its tasks, publish, report."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.base.command_line import data_root
from pipeline.base.errors import DataError
from pipeline.base.files import remove_temporaries
from pipeline.config.data_settings import DataSettings, max_predictions, shard_settings
from pipeline.config.run import Run
from pipeline.config.settings import fingerprint
from pipeline.data.corpora.groups import require_size
from pipeline.data.corpora.shapes import describe_plain_text
from pipeline.data.corpora.sources import describe_counts, describe_cut
from pipeline.data.documents.read import file_identity
from pipeline.data.documents.records import Source
from pipeline.data.documents.unchanged import compare
from pipeline.data.preparation.assemble import (
    Part,
    check_bad_records,
    check_unknown,
    compare_inputs,
    corpus_counts,
    corpus_text,
    describe_taken,
    held_out_copies,
    make_folders,
    merge_validation_shards,
    mismatches,
    other_files,
    place_train_shards,
    read_parts,
    write_documents,
    write_inputs,
    write_manifest,
)
from pipeline.data.preparation.fingerprint import (
    Identities,
    engine_versions,
    identify,
    shard_identity,
)
from pipeline.data.preparation.held_out_copies import rarity_for
from pipeline.data.preparation.holdout import (
    describe_hold_outs,
    hold_outs,
    validation_thresholds,
)
from pipeline.data.preparation.later_masks import draw_later, masking_of_parts, need_counts
from pipeline.data.preparation.tokenizer import ChosenTokenizer
from pipeline.data.preparation.worker import PrepareJob, prepare_stage, read_spans
from pipeline.data.selection.select import Selection
from pipeline.data.shards.document_index import DOCUMENTS_SCHEMA
from pipeline.data.shards.manifest import (
    MANIFEST,
    TRAIN,
    VALIDATION,
    Manifest,
    describe_copies,
    describe_unknown,
    read_manifest,
)
from pipeline.data.shards.predicted import describe_predicted, predicted_share
from pipeline.data.shards.token_counts import write_counts
from pipeline.data.text.tasks import SplitTask
from pipeline.data.tokenizers.definitions import SPECIALS
from pipeline.data.tokenizers.encoder import fast_engine
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.execution.work_directory import WORK, WorkDirectory, work_directory
from pipeline.execution.workers import Executor, Stage, share, unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsJob:
    """The shards to make: their documents, settings and directory."""

    run: Run
    corpus: str
    """The corpus's or group's name."""
    sources: list[Source]
    """The files that are read; slow formats are extracted already."""
    selection: Selection
    tokenizer: ChosenTokenizer
    parts: PrepareJob
    """What its tasks share, as `parts_job` returns it."""
    fingerprint: str
    identities: Identities
    """Of all files, as they went into the fingerprint."""
    output: Path

    def is_complete(self) -> bool:
        """Whether `output` holds exactly these shards. Raises DataError if it holds others."""
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
    corpus: str,
    sources: list[Source],
    selection: Selection,
    tokenizer: ChosenTokenizer,
    *,
    split_bytes: int,
    known: Identities,
) -> ShardsJob:
    """Name the shards and their directory; known: identities of files that were read before."""
    engine = arguments.engine if tokenizer.vocabulary.has_fast_engine else "tokenizers"
    if engine != arguments.engine:
        print(
            "the tokenizer splits words with its own regular expression, so `tokenizers` makes the "
            "ids, which is slow"
        )
    identity = shard_identity(
        run.data, identify(sources, known), tokenizer.vocabulary, engine,
        arguments.compression, selection.mark,
    )  # fmt: skip
    mark = fingerprint(identity)
    return ShardsJob(
        run=run,
        corpus=corpus,
        sources=sources,
        selection=selection,
        tokenizer=tokenizer,
        parts=replace(parts_job(arguments, run.data, sources, split_bytes), engine=engine),
        fingerprint=mark,
        identities=known,
        output=arguments.output or data_root() / "shards" / f"{corpus}-{run.name}-{mark}",
    )


def parts_job(
    arguments: argparse.Namespace, data: DataSettings, sources: list[Source], split_bytes: int
) -> PrepareJob:
    """What the tasks share, without the directory and thresholds, which are determined later."""
    return PrepareJob(
        directory=Path(),
        data=data,
        corpora=tuple(dict.fromkeys(source.corpus for source in sources)),
        thresholds={},
        split_bytes=split_bytes,
        compression=arguments.compression,
        engine=arguments.engine,
    )


@dataclass(frozen=True, slots=True)
class FinishedTasks:
    """The finished tasks of a job, ready to be published."""

    job: PrepareJob
    tasks: list[SplitTask]
    parts: list[Part]


@contextmanager
def run_tasks(
    job: ShardsJob, executor: Executor, part: tuple[int, int] | None
) -> Iterator[FinishedTasks | None]:
    """Make the parts of the shards, or one share of them, with OUT/.work locked.

    Yields None if another process has published, or will publish, the shards.
    """
    tasks = job.selection.decided_tasks()
    held_out = hold_outs(tasks, job.run.data)
    for line in describe_hold_outs(held_out, job.run.data.validation_fraction, job.sources):
        print(line, flush=True)
    thresholds = {corpus: about.threshold for corpus, about in held_out.items()}
    plan = {
        "tasks": len(tasks),
        "thresholds": thresholds,
        "documents": DOCUMENTS_SCHEMA.names,
    }
    with work_directory(
        job.output,
        job.fingerprint,
        plan,
        job.is_complete,
        shared=part is not None,
        explain=lambda work: compare(job.sources, read_spans(work), job.output),
    ) as work:
        if work is None:
            yield None
            return
        compare(job.sources, read_spans(work.path), job.output)
        parts = replace(
            job.parts,
            directory=work.path,
            corpora=tuple(thresholds),
            thresholds=thresholds,
            rarity=rarity_for(tasks),
        )
        stage = prepare_stage(parts, job.tokenizer.vocabulary)
        executor.run(stage, share(tasks, *part) if part else tasks)
        is_last = part is None or _is_last(part, work, stage, tasks)
        if not is_last:
            yield None
            return
        made = read_parts(work.path, tasks)
        if need_counts(job.run.data):
            made = draw_later(parts, job.tokenizer.vocabulary, tasks, made, executor)
        yield FinishedTasks(parts, tasks, made)


def _is_last(
    part: tuple[int, int], work: WorkDirectory, stage: Stage[SplitTask], tasks: list[SplitTask]
) -> bool:
    """Whether all parts are finished and this one publishes the shards; prints why not."""
    name = f"part {part[0]}/{part[1]} is finished"
    if not work.has_locks:
        print(f"{name}; run the command without --part once all parts are finished")
    elif not work.take_alone():
        print(f"{name}; other parts are running, and the last to finish publishes the shards")
    elif missing := len(unfinished(stage, tasks)):
        print(f"{name}; {missing:,} of {len(tasks):,} splits belong to parts not yet run")
    else:
        return True
    return False


def publish(
    job: ShardsJob,
    finished: FinishedTasks,
    *,
    max_bad_fraction: float,
    allow_short: bool,
    allow_unknown: bool,
) -> Manifest:
    """Check the finished parts, assemble them, write the manifest and publish the tokenizer."""
    parts = finished.parts
    needed = VALIDATION if job.run.data.validation_fraction == 1 else TRAIN
    check_bad_records(parts, job.sources, max_bad_fraction, needed)
    if not allow_unknown:
        check_unknown(parts, SPECIALS[job.tokenizer.vocabulary.kind]["unk"])
    if not allow_short:
        require_size(job.corpus, corpus_text(parts))
    confirm_inputs(job, finished)
    manifest = assemble(job, parts, finished.job)
    for warning in describe_taken(parts):
        print(warning)
    job.tokenizer.publish(job.run.data)
    return manifest


def confirm_inputs(job: ShardsJob, finished: FinishedTasks) -> None:
    """Raise DataError unless the shards are what the input files give now; keep what was read."""
    made = finished.job
    spans = read_spans(made.directory)
    changed = compare(job.sources, spans, job.output)
    identities = [[file_identity(source), job.identities[source]] for source in changed]
    if any(now != before for now, before in identities) or (
        changed and validation_thresholds(finished.tasks, made.data) != made.thresholds
    ):
        raise DataError(
            f"{changed[0].path} changed while {job.output} was made from it; restore it and rerun, "
            "or name another --output"
        )
    write_inputs(job.sources, spans, job.output)


def assemble(job: ShardsJob, parts: list[Part], made: PrepareJob) -> Manifest:
    """Turn finished parts into the published directory; made: the job that made the parts."""
    data, work, output = job.run.data, made.directory, job.output
    vocabulary = job.tokenizer.vocabulary
    for directory in (output, output / "tokenizer"):
        remove_temporaries(directory)
    make_folders(output, data.duplicates)
    placed = place_train_shards(work, output, parts)
    masking = masking_of_parts(made, vocabulary, parts)
    if masking.counts is not None:
        write_counts(output, masking.counts)
    placed += merge_validation_shards(work, output, parts, made, masking)
    write_documents(work, output, parts)
    save_vocabulary(
        vocabulary, output / "tokenizer", data.sequence_length, job.tokenizer.trained_on
    )
    engine = {"recipe": job.run.name, "mismatches": mismatches(work)}
    corpora = corpus_counts(parts, {source.corpus: source.licence for source in job.sources})
    for corpus, copies in held_out_copies(work, parts).items():
        corpora[corpus]["held_out_copies"] = copies
    manifest = Manifest(
        fingerprint=job.fingerprint,
        data=shard_settings(data),
        masking=masking.describe(),
        sequence_length=data.sequence_length,
        max_predictions=max_predictions(data),
        duplicates=data.duplicates,
        seed=data.seed,
        compression=made.compression,
        engine=engine | engine_versions(data, made.engine),
        tokenizer=vocabulary.describe(),
        corpora=corpora,
        totals={
            "documents": sum(part.counts.documents for part in parts),
            "sequences": sum(shard.sequences for shard in placed),
            "tokens": sum(shard.tokens for shard in placed),
        },
        files=other_files(output),
        shards=tuple(placed),
    )
    write_manifest(output, manifest, work)
    return manifest


def report_result(job: ShardsJob, manifest: Manifest, seconds: float) -> None:
    """Print what was prepared, what was dropped, and what to do next."""
    output, splits = job.output, {source.corpus: source.plain_text for source in job.sources}
    text = sum(corpus["bytes"] for corpus in manifest.corpora.values())
    totals = manifest.totals
    fill = totals["tokens"] / (totals["sequences"] * manifest.sequence_length)
    held_out = sum(shard.sequences for shard in manifest.of(VALIDATION))
    print(
        f"prepared {totals['documents']:,} documents, {text / 1e6:,.1f} MB of text -> "
        f"{totals['sequences']:,} sequences ({held_out:,} for validation), "
        f"{totals['tokens']:,} tokens, {fill:.1%} full, {manifest.duplicates or 'no'} masks each, "
        f"in {seconds:,.1f} s"
    )
    for line in describe_predicted(predicted_share(manifest), manifest):
        print(f"masks: {line}")
    for name, corpus in manifest.corpora.items():
        dropped = corpus["dropped"] | corpus["bad"]
        if dropped:
            print(f"{name}: dropped {describe_counts(dropped)}")
        if corpus["cut"]:
            print(f"{name}: cut from documents {describe_cut(corpus['cut'])}")
        if corpus["noted"]:
            print(f"{name}: kept {describe_counts(corpus['noted'])}")
        if unknown := describe_unknown(corpus):
            print(f"{name}: {unknown}")
        if copies := describe_copies(corpus):
            print(f"{name}: {copies}")
        for note in describe_plain_text(name, splits[name], corpus["plain_text"]):
            print(note)
    engine = fast_engine(manifest.tokenizer["kind"]).split()[0]
    for mismatch in manifest.engine["mismatches"]:
        print(f"{engine} differed from tokenizers, which then redid the split: {mismatch}")
    print(f"{output}")
    print(f"next: python -m pipeline.inspect {shlex.quote(str(output))}")
