"""Stages of preparing that the command names: find sources, assemble, publish, report."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pipeline.command_line import cores, data_root
from pipeline.config.run import DataSettings, Run, max_predictions, shard_settings
from pipeline.data.corpora.groups import most_text, require_size
from pipeline.data.corpora.sources import corpus_sources, describe_cut, describe_input, limit_sites
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.documents.records import Source
from pipeline.data.execution.tasks import SPLIT_BYTES, Task
from pipeline.data.execution.work_directory import WORK, WorkDirectory
from pipeline.data.execution.workers import unfinished
from pipeline.data.preparation.assemble import (
    Part,
    corpus_counts,
    make_folders,
    merge_validation_shards,
    mismatches,
    other_files,
    place_train_shards,
    publish,
    write_documents,
)
from pipeline.data.preparation.estimate import describe, estimate
from pipeline.data.preparation.fingerprint import engine_versions
from pipeline.data.preparation.tokenizer import ChosenTokenizer, Places, read_existing, sample_texts
from pipeline.data.preparation.worker import Preparation, PrepareJob
from pipeline.data.rows.masks import Masking
from pipeline.data.shards.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    VALIDATION,
    Manifest,
    read_manifest,
)
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.encoder import fast_engine
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.trainers import train
from pipeline.errors import DataError
from pipeline.files import remove_temporaries


def find_sources(
    arguments: argparse.Namespace, inputs: list[str], data: DataSettings
) -> tuple[str, list[Source]]:
    """The corpus's name and files; an error where these cannot become what was asked for."""
    corpus, sources = corpus_sources(
        arguments.corpus, inputs, arguments.text_field, arguments.plain_text
    )
    sources = limit_sites(sources, arguments.pages_per_domain)
    print(f"input: {describe_input(sources)}", flush=True)
    require_fit(sources, data)
    if not arguments.allow_short:
        require_size(corpus, most_text(sources), "at most")
    return corpus, sources


def is_last_part(
    part: tuple[int, int], work: WorkDirectory, setup: Preparation, tasks: list[Task]
) -> bool:
    """Whether all parts are finished and it falls to this one to put them together."""
    name = f"part {part[0]}/{part[1]} is finished"
    if not work.has_locks:
        print(f"{name}; run the command without --part when all parts are")
    elif not work.take_alone():
        print(f"{name}; others are at work, and the last one puts all of it together")
    elif missing := len(unfinished(setup, tasks)):
        print(f"{name}; {missing:,} of {len(tasks):,} splits are for parts that must still run")
    else:
        return True
    return False


def is_complete(output: Path, mark: str) -> bool:
    """Whether `output` holds these very shards; DataError when it holds others."""
    if not (output / MANIFEST).exists():
        return False
    found = read_manifest(output).fingerprint
    if found != mark:
        raise DataError(
            f"{output} was made by another recipe, input or tokenizer (fingerprint {found}, now "
            f"{mark}); name another --output"
        )
    shutil.rmtree(output / WORK, ignore_errors=True)  # of a run that died when all was done
    print(f"{output} is complete already; nothing to do")
    return True


def assemble(
    output: Path,
    parts: list[Part],
    job: PrepareJob,
    run: Run,
    tokenizer: ChosenTokenizer,
    sources: list[Source],
    mark: str,
) -> Manifest:
    """Turn finished parts into the published directory."""
    data, work, vocabulary = run.data, job.directory, tokenizer.vocabulary
    for directory in (output, output / "tokenizer"):
        remove_temporaries(directory)
    make_folders(output, data.duplicates)
    placed = place_train_shards(work, output, parts)
    masking = Masking.of(data, vocabulary.special, vocabulary.word_starts)
    placed += merge_validation_shards(work, output, parts, job, masking)
    write_documents(work, output, parts)
    save_vocabulary(vocabulary, output / "tokenizer", data.sequence_length, tokenizer.trained_on)
    engine = {"recipe": run.name, "mismatches": mismatches(work)}
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        fingerprint=mark,
        data=shard_settings(data),
        masking=masking.describe(),
        sequence_length=data.sequence_length,
        max_predictions=max_predictions(data),
        duplicates=data.duplicates,
        seed=data.seed,
        compression=job.compression,
        engine=engine | engine_versions(data, job.engine),
        tokenizer=vocabulary.describe(),
        corpora=corpus_counts(parts, {s.corpus: s.licence for s in sources}),
        totals={
            "documents": sum(part.counts.documents for part in parts),
            "sequences": sum(shard.sequences for shard in placed),
            "tokens": sum(shard.tokens for shard in placed),
        },
        files=other_files(output),
        shards=tuple(placed),
    )
    publish(output, manifest, work)
    return manifest


def report_result(output: Path, manifest: Manifest, seconds: float) -> None:
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
    for name, corpus in manifest.corpora.items():
        left_out = corpus["dropped"] | corpus["bad"]
        if left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
            print(f"{name}: left out {reasons}")
        if corpus["cut"]:
            print(f"{name}: cut from documents {describe_cut(corpus['cut'])}")
    engine = fast_engine(manifest.tokenizer["kind"]).split()[0]
    for mismatch in manifest.engine["mismatches"]:
        print(f"{engine} differed from tokenizers, which made the split's ids instead: {mismatch}")
    print(f"{output}")
    print(f"next: python -m pipeline.inspect {output}")


def print_estimate(
    arguments: argparse.Namespace, places: Places, sources: list[Source], data: DataSettings
) -> None:
    """What --dry-run prints; nothing is written."""
    vocabulary = read_existing(arguments.tokenizer, places, data)
    if vocabulary is None:
        print("tokenizer: none for this corpus yet; this estimate uses one of a small sample")
        vocabulary = train(
            data.tokenizer,
            lambda: sample_texts(sources, 1 << 22, DocumentCounts()),
            data.vocab_size,
            lower_case=data.lower_case,
        )
    job = PrepareJob(
        directory=Path(),
        data=data,
        corpora=tuple(dict.fromkeys(source.corpus for source in sources)),
        thresholds={},
        split_bytes=SPLIT_BYTES,
        compression=arguments.compression,
        engine=arguments.engine,
    )
    found = estimate(sources, job, vocabulary)
    for line in describe(found, arguments.output or data_root(), arguments.workers or cores()):
        print(line)
    if arguments.dedup != "none" or arguments.decontaminate or arguments.filter:
        print("all of it before --dedup, --decontaminate and --filter leave anything out")
    if not arguments.allow_short:
        require_size(arguments.corpus, {name: about.text for name, about in found.items()}, "about")
