"""Shards -> a trained model: `python -m pipeline.train roberta_tiny --data SHARDS --output RUN`.

Runs as one process, or under torchrun or deepspeed. If RUN has a checkpoint, the same command
resumes from it, on any number of processes and at any ZeRO stage. On SIGTERM or SIGUSR1 it saves,
writes RUN/INTERRUPTED and exits with code 75.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial

from pipeline.base.errors import EXIT_INTERRUPTED, run_command
from pipeline.base.model_folder import check_imports
from pipeline.cluster.stop_request import StopRequest, exit_on_stop_signals
from pipeline.cluster.watchdog import print_stacks_on_usr2
from pipeline.training.network_arguments import parse_train

if __name__ == "__main__":
    exit_on_stop_signals()
    print_stacks_on_usr2()
    # before torch and `model` are imported
    run_command(partial(check_imports, parse_train), outlives_output=True)

from pipeline.cluster.launcher import LauncherWatch
from pipeline.cluster.ranks import (
    Cluster,
    ending_with_lost_ranks,
    launched_rank,
    reporting_before_joining,
)
from pipeline.kernels.cache import set_torch_caches
from pipeline.training.announce import dry_run, finish, print_start
from pipeline.training.assembly import (
    add_general_sample,
    build_engine,
    build_saver,
    build_trainer,
    initialize_model,
    open_metrics,
    take_attention,
)
from pipeline.training.job import Job, read_job
from pipeline.training.out_of_memory import reporting_lack_of_memory
from pipeline.training.run_directory.layout import mark_stopped_at_start
from pipeline.training.start import claim_directory, open_start


def main() -> None:
    arguments = parse_train()
    stop = StopRequest()
    stop.listen()
    LauncherWatch(stop).start()
    set_torch_caches()  # by every rank: caches are on its node's disk
    with reporting_before_joining(stop):
        job = read_job(arguments)
        if arguments.dry_run:
            dry_run(job)
            return
    if launched_rank() == 0:
        stop.before_exit = partial(mark_stopped_at_start, job.output)
    cluster = Cluster.join(stop)
    with ending_with_lost_ranks(cluster.rank):
        interrupted = train(job, cluster, stop)
        cluster.leave()
    sys.exit(EXIT_INTERRUPTED if interrupted else 0)


def train(job: Job, cluster: Cluster, stop: StopRequest) -> bool:
    """Train a new run or resume one. Returns whether it stopped early. Collective."""
    with reporting_lack_of_memory(job.run, cluster), ExitStack() as held:
        claim_directory(job, cluster, held)
        start = open_start(job, cluster, stop)
        if start.is_done(job.last_step):
            if cluster.rank == 0:
                print(f"{job.output} is at step {start.progress.step:,} already; nothing to do")
            return False
        model, start = initialize_model(job, cluster, start)
        start = take_attention(job, cluster, start, model)
        start = add_general_sample(job, cluster, start)
        engine = build_engine(job, cluster, start, model)
        # in this order, which an exit stack undoes in reverse: the watchdog first, the metrics last
        metrics = open_metrics(job, cluster, start, held)
        saver = build_saver(job, cluster, start, metrics)
        held.callback(saver.close)
        trainer = build_trainer(job, cluster, stop, start, engine, saver, metrics)
        held.callback(trainer.trace.close)
        held.enter_context(trainer.watchdog)
        print_start(job, cluster, start)
        interrupted = trainer.train(job.last_step)
        start.feed.close(done=trainer.progress.step >= job.run.steps)
        engine.close()
        if cluster.rank == 0:
            finish(job, trainer, interrupted)
    return interrupted


if __name__ == "__main__":
    run_command(main, at_once=True, outlives_output=True)
