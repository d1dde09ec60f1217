"""Raw text -> shards with ten masks: `python -m pipeline.prepare --corpus wikipedia --input DIR`.

Plans splits that do not depend on the machine, lets workers make them, and puts the finished parts
together. Workers are processes of this machine, or the ranks of an MPI job when srun or mpiexec
starts it; `--part i/n` does a share. Kill it anywhere and run it again: what is finished is kept,
the result is the same.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import time
from pathlib import Path

from pipeline.command_line import chosen_recipe, cores, data_root, downloads
from pipeline.config.run import Data, Run, max_predictions, shard_settings
from pipeline.config.settings import fingerprint
from pipeline.data import assembly, shards, splits
from pipeline.data.corpora.catalogue import GROUPS
from pipeline.data.corpora.download import obtained
from pipeline.data.corpora.explain import explain
from pipeline.data.corpora.groups import most_text, require_size
from pipeline.data.corpora.sources import corpus_sources, describe_cut, describe_input, limit_sites
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.dedup import decide, plan_selection
from pipeline.data.document_index import DOCUMENTS_SCHEMA
from pipeline.data.documents.records import Source
from pipeline.data.estimate import describe, estimate
from pipeline.data.execution.mpi import join, run_together
from pipeline.data.execution.tasks import SPLIT_BYTES, Task, cut_tasks
from pipeline.data.execution.work_directory import WORK, WorkDirectory, work_directory
from pipeline.data.execution.workers import Team, do_tasks, local_team, share, unfinished
from pipeline.data.extraction.extract import extracted
from pipeline.data.identity import engine_versions, shard_identity
from pipeline.data.masking import Masking
from pipeline.data.preparation import Preparation
from pipeline.data.text_batches import Counts
from pipeline.data.tokenizer_folders import save_vocabulary
from pipeline.data.tokenizer_training import train
from pipeline.data.tokens import fast_engine
from pipeline.data.validation import validation_thresholds
from pipeline.errors import ConfigError, DataError
from pipeline.files import remove_temporaries
from pipeline.prepare_arguments import prepare_arguments
from pipeline.prepare_tokenizer import ChosenTokenizer, Places, find_tokenizer, read_existing
from pipeline.train_tokenizer import sample_texts


def main() -> None:
    ranks = join()
    if ranks is None:
        arguments = prepare_arguments()
        prepare(arguments, local_team(arguments.workers or cores()))
    elif ranks.rank:
        ranks.follow()
    else:
        with ranks.leading():
            arguments = prepare_arguments()
            if arguments.workers:
                raise ConfigError(
                    f"--workers {arguments.workers}: under MPI every rank is one; leave it out, "
                    "and start as many ranks as there are cores"
                )
            print(f"{ranks.size} ranks on {ranks.hosts} node(s)", flush=True)
            arguments.workers = ranks.size
            prepare(arguments, ranks.team, in_log=True)


def prepare(arguments: argparse.Namespace, team: Team, *, in_log: bool = False) -> None:
    """All of it, from files to the manifest; `team` does the tasks."""
    if arguments.explain:
        print("\n".join(explain(arguments.corpus, shutil.get_terminal_size().columns)))
        return
    started_at = time.perf_counter()
    run = chosen_recipe(arguments.recipe, arguments.set)
    inputs = local_inputs(arguments.input, downloads(), copying=not arguments.dry_run)
    if arguments.fetch and inputs != arguments.input and arguments.corpus not in GROUPS:
        return
    inputs = obtained(
        arguments.corpus, inputs, downloads(), run.data, revision=arguments.revision,
        allow_short=arguments.allow_short, fetching=arguments.fetch,
    )  # fmt: skip
    if arguments.fetch:
        return
    corpus, sources = _find_sources(arguments, inputs, run.data)
    places = Places.of(arguments.corpus, inputs, sources, run.data)
    if arguments.dry_run:
        _estimate(arguments, places, sources, run.data)
        return
    part, in_log = arguments.part, in_log or arguments.part is not None
    place = data_root() / "documents"
    sources = extracted(sources, place, team, part[0] if part else 1, in_log=in_log)
    tasks = cut_tasks(sources, SPLIT_BYTES)
    chosen = plan_selection(
        tasks, arguments.dedup, arguments.filter, arguments.decontaminate, place
    )
    tokenizer = find_tokenizer(arguments.tokenizer, places, sources, run.data)
    vocabulary = tokenizer.vocabulary
    identity = shard_identity(
        run.data, sources, vocabulary, arguments.engine, arguments.compression, chosen.mark
    )
    mark = fingerprint(identity)
    output = arguments.output or data_root() / "shards" / f"{corpus}-{run.name}-{mark}"
    if is_complete(output, mark):
        tokenizer.publish(run.data)  # in case the run that made the shards died before it did
        return
    decide(chosen, team, part or (1, 1), in_log=in_log)
    tasks = chosen.decided_tasks()
    thresholds = validation_thresholds(tasks, run.data)
    changed_at = max(Path(source.path).stat().st_mtime_ns for source in sources)
    plan = {
        "tasks": len(tasks), "thresholds": thresholds, "changed_at": changed_at,
        "documents": DOCUMENTS_SCHEMA.names,
    }  # fmt: skip
    is_done = functools.partial(is_complete, output, mark)
    with work_directory(output, mark, plan, is_done, shared=part is not None) as work:
        if work is None:  # done by somebody who held the directory until now
            return
        job = splits.Job(
            directory=work.path,
            data=run.data,
            corpora=tuple(thresholds),
            thresholds=thresholds,
            split_bytes=SPLIT_BYTES,
            compression=arguments.compression,
            engine=arguments.engine,
        )
        mine = share(tasks, *part) if part else tasks
        setup = Preparation(job, vocabulary)
        do_tasks(setup, mine, team, in_log=in_log)
        if part and not _is_last(part, work, setup, tasks):
            return
        parts = assembly.read_parts(work.path, tasks)
        assembly.check_bad_records(parts, arguments.max_bad_fraction)
        if not arguments.allow_short:
            require_size(corpus, assembly.corpus_text(parts))
        manifest = assemble(output, parts, job, run, tokenizer, sources, mark)
        tokenizer.publish(run.data)
    _report(output, manifest, time.perf_counter() - started_at)


def _find_sources(
    arguments: argparse.Namespace, inputs: list[str], data: Data
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


def _is_last(
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
    if not (output / shards.MANIFEST).exists():
        return False
    found = shards.read_manifest(output).fingerprint
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
    parts: list[assembly.Part],
    job: splits.Job,
    run: Run,
    tokenizer: ChosenTokenizer,
    sources: list[Source],
    mark: str,
) -> shards.Manifest:
    """Turn finished parts into the published directory."""
    data, work, vocabulary = run.data, job.directory, tokenizer.vocabulary
    for directory in (output, output / "tokenizer"):
        remove_temporaries(directory)
    placed = assembly.place_train_shards(work, output, parts)
    masking = Masking.of(data, vocabulary.special, vocabulary.word_starts)
    placed += assembly.merge_validation_shards(work, output, parts, job, masking)
    assembly.write_documents(work, output, parts)
    save_vocabulary(vocabulary, output / "tokenizer", data.sequence_length, tokenizer.trained_on)
    engine = {"recipe": run.name, "mismatches": assembly.mismatches(work)}
    manifest = shards.Manifest(
        schema_version=shards.SCHEMA_VERSION,
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
        corpora=assembly.corpus_counts(parts, {s.corpus: s.licence for s in sources}),
        totals={
            "documents": sum(part.counts.documents for part in parts),
            "sequences": sum(shard.sequences for shard in placed),
            "tokens": sum(shard.tokens for shard in placed),
        },
        files=assembly.other_files(output),
        shards=tuple(placed),
    )
    assembly.publish(output, manifest, work)
    return manifest


def _report(output: Path, manifest: shards.Manifest, seconds: float) -> None:
    text = sum(corpus["bytes"] for corpus in manifest.corpora.values())
    totals = manifest.totals
    fill = totals["tokens"] / (totals["sequences"] * manifest.sequence_length)
    held_out = sum(shard.sequences for shard in manifest.of(shards.VALIDATION))
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


def _estimate(
    arguments: argparse.Namespace, places: Places, sources: list[Source], data: Data
) -> None:
    """What --dry-run prints; nothing is written."""
    vocabulary = read_existing(arguments.tokenizer, places, data)
    if vocabulary is None:
        print("tokenizer: none for this corpus yet; this estimate uses one of a small sample")
        vocabulary = train(
            data.tokenizer,
            lambda: sample_texts(sources, 1 << 22, Counts()),
            data.vocab_size,
            lower_case=data.lower_case,
        )
    job = splits.Job(
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


if __name__ == "__main__":
    run_together(main)
    sys.exit(0)
