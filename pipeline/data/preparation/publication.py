"""Finished parts -> published shards: checked, assembled, and the tokenizer published with them."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.files import remove_temporaries
from pipeline.config.data_settings import max_predictions, shard_settings
from pipeline.data.preparation.assemble import (
    Part,
    check_bad_records,
    check_unknown,
    corpus_counts,
    corpus_text,
    make_folders,
    merge_validation_shards,
    mismatches,
    other_files,
    plan_assemblies,
    write_documents,
    write_inputs,
    write_manifest,
)
from pipeline.data.preparation.fingerprint import engine_versions
from pipeline.data.preparation.holdout import validation_thresholds
from pipeline.data.preparation.later_masks import masking_of_parts
from pipeline.data.preparation.prepare_shards import FinishedTasks, ShardsJob
from pipeline.data.preparation.worker import PrepareJob, read_finished_spans
from pipeline.data.shards.manifest import (
    REWRITING,
    TRAIN,
    VALIDATION,
    Manifest,
)
from pipeline.data.shards.shard_assembly import Assembler
from pipeline.data.shards.token_counts import write_counts
from pipeline.data.tokenizers.definitions import SPECIALS
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.execution.workers import Executor
from pipeline.ingest.corpora.groups import require_size
from pipeline.ingest.documents.read import file_identity
from pipeline.ingest.documents.unchanged import compare


def publish_shards(
    job: ShardsJob,
    finished: FinishedTasks,
    executor: Executor,
    *,
    shard_bytes: int,
    max_bad_fraction: float,
    allow_short: bool,
    allow_unknown: bool,
) -> Manifest:
    """Check the finished parts, assemble them, write the manifest and publish the tokenizer.

    shard_bytes: of a train shard's text at most.
    """
    parts = finished.parts
    needed = VALIDATION if job.run.data.validation_fraction == 1 else TRAIN
    check_bad_records(parts, job.sources, max_bad_fraction, needed)
    if not allow_unknown:
        check_unknown(parts, SPECIALS[job.tokenizer.vocabulary.kind]["unk"])
    if not allow_short:
        require_size(job.corpus, corpus_text(parts))
    # the last look at the files, before assemblies start to remove the pieces
    confirm_inputs(job, finished)
    manifest = assemble_shards(job, parts, finished.job, executor, shard_bytes)
    job.tokenizer.publish(job.run.data)  # last: a prepare that fails publishes no tokenizer
    return manifest


def confirm_inputs(job: ShardsJob, finished: FinishedTasks) -> None:
    """Raise DataError unless the shards are what the input files give now; keep what was read."""
    made = finished.job
    spans = read_finished_spans(made.directory)
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


def assemble_shards(
    job: ShardsJob, parts: list[Part], made: PrepareJob, executor: Executor, shard_bytes: int
) -> Manifest:
    """Turn finished parts into the published directory; made: the job that made the parts."""
    data, work, output = job.run.data, made.directory, job.output
    vocabulary = job.tokenizer.vocabulary
    for directory in (output, output / "tokenizer"):
        remove_temporaries(directory)
    make_folders(output, data.duplicates)
    assembler = Assembler(work, output, made.compression)
    # train shards first: in the manifest they come before those of validation
    placed = assembler.run(plan_assemblies(parts, shard_bytes), executor)
    masking = masking_of_parts(made, vocabulary, parts)
    if masking.counts is not None:
        write_counts(output, masking.counts)
    documents = partial(write_documents, work, output, [part.stem for part in parts])
    merges = merge_validation_shards(work, output, parts, made, masking)
    written: list[Any] = executor.call([documents, *merges], is_light=True)
    placed += written[1:]  # the first result is that of write_documents
    # before `other_files`, which lists the folder for the manifest
    save_vocabulary(
        vocabulary, output / "tokenizer", data.sequence_length, job.tokenizer.trained_on
    )
    engine: dict[str, Any] = {"recipe": job.run.name, "mismatches": mismatches(work)}
    if rewriting := {s.corpus: s.rewriting.identity() for s in job.sources if any(s.rewriting)}:
        engine[REWRITING] = rewriting
    corpora = corpus_counts(parts, {source.corpus: source.licence for source in job.sources})
    for corpus, language in job.languages.items():
        corpora[corpus]["language"] = language
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
