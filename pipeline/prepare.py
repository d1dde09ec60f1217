"""Raw text -> shards with ten masks: `python -m pipeline.prepare --corpus wikipedia --input DIR`.

Cuts the text into splits that do not depend on the machine, prepares them on all workers, and
publishes the result. Workers are processes of this machine, or the ranks of an MPI job under srun
or mpiexec; several commands with `--part i/n` divide the work. Kill it at any time and run it
again: finished work is kept, and the result is the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from pipeline.costs.preparation.dry_run import print_estimate, require_room
from pipeline.data.preparation.corpus_files import find_sources
from pipeline.data.preparation.outcome import report_result
from pipeline.data.preparation.prepare_arguments import prepare_arguments
from pipeline.data.preparation.stages import TextSizes, make_shards
from pipeline.data.preparation.transfers import fetch_inputs, find_transfers
from pipeline.data.shards.shard_assembly import SHARD_BYTES
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.execution.mpi import run_together, spread
from pipeline.execution.workers import Executor
from pipeline.released.choice import head_advice, read_recipe


def main() -> None:
    spread(prepare_arguments, prepare)


def prepare(arguments: argparse.Namespace, executor: Executor) -> None:
    """Run all stages, from files to the manifest; `executor` runs the tasks."""
    started_at = time.perf_counter()
    chosen = read_recipe(arguments.recipe, arguments.set)
    run = chosen.run
    if advice := head_advice(chosen):  # which may change the rows that are wanted
        print(f"warning: {advice}", flush=True)
    arguments.tokenizer = arguments.tokenizer or chosen.folder
    if arguments.fetch:
        fetch_inputs(arguments, run.data)
        return
    found = find_sources(
        arguments, run.data, copying=not arguments.dry_run, allow_short=arguments.allow_short
    )
    for transfer in find_transfers(found.files):
        print(transfer.describe(), flush=True)
    if arguments.dry_run:
        print_estimate(arguments, found, run)
        return
    made = make_shards(
        arguments, run, found, executor,
        sizes=TextSizes(split=SPLIT_BYTES, shard=SHARD_BYTES),
        check_room=partial(require_room, arguments, found, run, {}),
    )  # fmt: skip
    if made:
        report_result(*made, time.perf_counter() - started_at)


if __name__ == "__main__":
    run_together(main)
    sys.exit(0)
