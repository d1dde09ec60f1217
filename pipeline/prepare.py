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
from pipeline.config.settings import fingerprint
from pipeline.data.corpora.catalogue import GROUPS
from pipeline.data.corpora.download import download_missing
from pipeline.data.corpora.explain import explain
from pipeline.data.corpora.groups import require_size
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.execution.mpi import join, run_together
from pipeline.data.execution.tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.execution.work_directory import work_directory
from pipeline.data.execution.workers import Team, do_tasks, local_team, share
from pipeline.data.extraction.extract import extract
from pipeline.data.preparation.arguments import prepare_arguments
from pipeline.data.preparation.assemble import (
    check_bad_records,
    corpus_text,
    read_parts,
)
from pipeline.data.preparation.fingerprint import shard_identity
from pipeline.data.preparation.holdout import validation_thresholds
from pipeline.data.preparation.prepare import (
    assemble,
    find_sources,
    is_complete,
    is_last_part,
    print_estimate,
    report_result,
)
from pipeline.data.preparation.tokenizer import (
    Places,
    find_tokenizer,
)
from pipeline.data.preparation.worker import Preparation, PrepareJob
from pipeline.data.selection.select import decide, plan_selection
from pipeline.data.shards.document_index import DOCUMENTS_SCHEMA
from pipeline.errors import ConfigError


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
    inputs = download_missing(
        arguments.corpus, inputs, downloads(), run.data, revision=arguments.revision,
        allow_short=arguments.allow_short, fetching=arguments.fetch,
    )  # fmt: skip
    if arguments.fetch:
        return
    corpus, sources = find_sources(arguments, inputs, run.data)
    places = Places.of(arguments.corpus, inputs, sources, run.data)
    if arguments.dry_run:
        print_estimate(arguments, places, sources, run.data)
        return
    part, in_log = arguments.part, in_log or arguments.part is not None
    place = data_root() / "documents"
    sources = extract(sources, place, team, part[0] if part else 1, in_log=in_log)
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
        job = PrepareJob(
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
        if part and not is_last_part(part, work, setup, tasks):
            return
        parts = read_parts(work.path, tasks)
        check_bad_records(parts, arguments.max_bad_fraction)
        if not arguments.allow_short:
            require_size(corpus, corpus_text(parts))
        manifest = assemble(output, parts, job, run, tokenizer, sources, mark)
        tokenizer.publish(run.data)
    report_result(output, manifest, time.perf_counter() - started_at)


if __name__ == "__main__":
    run_together(main)
    sys.exit(0)
