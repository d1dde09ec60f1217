"""Shards -> a trained model: `python -m pipeline.train roberta_tiny --data SHARDS --output RUN`.

Alone, or the same command under torchrun or deepspeed. It goes on by itself when RUN has a
checkpoint, on any number of processes and at any ZeRO stage. SIGTERM or SIGUSR1 makes it save,
write RUN/INTERRUPTED and exit with code 75.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from tqdm import tqdm

from model.hugging_face import logical_parameters
from pipeline.data.shards.held_out import check_held_out
from pipeline.data.shards.manifest import TRAIN, VALIDATION
from pipeline.errors import EXIT_INTERRUPTED, CheckpointError, run_command
from pipeline.loading.dataset import Dataset
from pipeline.loading.example import print_example
from pipeline.loading.sigbus import announce_bus_errors
from pipeline.training.checkpoints.read import Checkpoint, open_from, open_latest
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.cluster.deepspeed_config import deepspeed_dict
from pipeline.training.cluster.engine import initialize
from pipeline.training.cluster.launcher import LauncherWatch
from pipeline.training.cluster.ranks import (
    Cluster,
    StopRequest,
    launched_rank,
    outlived,
    spoken_once,
)
from pipeline.training.cluster.watchdog import Watchdog
from pipeline.training.deadline import Deadline
from pipeline.training.feed import Feed
from pipeline.training.job import Job, parse, read_job
from pipeline.training.leaving_out import found_at_start, without
from pipeline.training.loop import Trainer
from pipeline.training.planning.phases import Phase, check_lengths, check_shards, make_phases
from pipeline.training.planning.plan import attention_name
from pipeline.training.progress import Progress, begin, restore
from pipeline.training.run_directory.layout import (
    INTERRUPTED,
    claim,
    has_checkpoints,
    mark_interrupted,
    mark_ready,
)
from pipeline.training.run_directory.metrics import Metrics
from pipeline.training.run_directory.profile import PROFILE, Trace
from pipeline.training.run_directory.run_json import Record, check_same, check_source, read_record
from pipeline.training.run_directory.stragglers import ForwardClock, Stragglers, host_name
from pipeline.training.spikes import LossWatch
from pipeline.training.validation.validator import Validator
from pipeline.training.weights.build import build_model
from pipeline.training.weights.initial_weights import begin_with, check_beginning


@dataclass(frozen=True, slots=True)
class Data:
    """What a run reads."""

    train: tuple[Dataset, ...]
    """In the order of --data."""
    phases: tuple[Phase, ...]
    """With the datasets of each, both splits."""


def main() -> None:
    arguments = parse()
    stop = StopRequest()
    stop.listen()
    launcher = LauncherWatch(stop)
    launcher.start()
    with spoken_once(launched_rank()):
        job = read_job(arguments)
        if arguments.dry_run:
            dry_run(job)
            return
    cluster = Cluster.join()
    launcher.has_met = True
    with outlived(cluster.rank):
        interrupted = train(job, cluster, stop)
        cluster.leave()
    sys.exit(EXIT_INTERRUPTED if interrupted else 0)


def dry_run(job: Job) -> None:
    """Print what would be done, write nothing."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    data = open_data(job, "", world_size)
    if launched_rank() == 0:
        if job.init:
            tokenizer = data.train[0].directory / "tokenizer"
            model = build_model(job.run, job.run.seed)
            print("\n".join(begin_with(model, job.init, tokenizer, job.new).lines))
        print_start(job, data.phases)
        plan = data.phases[0].plan
        settings = deepspeed_dict(
            job.run, job.deepspeed,
            rows=plan.rows, accumulation=plan.accumulation, world_size=world_size,
        )  # fmt: skip
        print(f"DeepSpeed: {settings}")


def train(job: Job, cluster: Cluster, stop: StopRequest) -> bool:
    """Train, or go on training; True when asked to stop before the end. Collective."""
    first = cluster.rank == 0
    with ExitStack() as held:
        with cluster.agreed():
            if first:
                held.enter_context(claim(job.output))
        with cluster.agreed():
            record, data = prepare(job, cluster)
            unfinished = (job.output / INTERRUPTED).exists()
        with cluster.agreed():
            if first:
                mark_ready(job.output)
            checkpoint, forked = open_checkpoint(job, cluster)
            if checkpoint:
                check_source(checkpoint.state, record, checkpoint.directory, forked)
        progress = begin(checkpoint, record, forked)
        progress = without(progress, data.train, found_at_start(data.train, cluster), cluster)
        if not forked and progress.step >= job.last_step and not unfinished:
            if first:
                print(f"{job.output} is at step {progress.step:,} already; nothing to do")
            return False
        if forked and checkpoint:
            record = replace(record, begun_from=str(checkpoint.directory.resolve()))
            if first:
                how = "on" if progress.sequences else "other data, from their beginning,"
                print(f"begins with {checkpoint.directory} and reads {how} in a run of its own")
        feed = Feed(data.phases, data.train, cluster, progress)
        trainer = build(job, cluster, stop, record, feed, progress, checkpoint, held)
        with cluster.agreed():
            if first:
                print_start(job, data.phases)
                print_example(feed.loader, feed.reading(progress).sequences, progress.step)
        interrupted = trainer.train(job.last_step)
        trainer.engine.close()
        if first:
            finish(job, trainer, interrupted)
    return interrupted


def prepare(job: Job, cluster: Cluster) -> tuple[Record, Data]:
    """Open the data and say what the run is; errors when either does not fit RUN or the ranks."""
    earlier = read_record(job.output) if has_checkpoints(job.output) else None
    sha256 = earlier.tokenizer_sha256 if earlier else ""
    data = open_data(job, sha256, cluster.world_size, cluster.rank == 0)
    if earlier:
        check_same(earlier, job.run, data.train, job.output)
        if job.init and cluster.rank == 0:
            check_beginning(earlier.initial_weights, job.init)
    attention = attention_name(job.run, cluster.device.type)
    plans = [phase.plan.to_dict() for phase in data.phases]
    record = Record.of(job.run, plans, data.train, attention)
    if earlier:
        begun = earlier.begun_from, earlier.initial_weights
        record = replace(record, begun_from=begun[0], initial_weights=begun[1])
    return record, data


def open_data(job: Job, tokenizer_sha256: str, world_size: int, check_files: bool = True) -> Data:
    """The datasets of --data, by phases; an error when they are not what the run asks for.

    check_files: also whether files have their sizes, and whether a directory trains on what another
    one holds out; for one process of a run.
    """
    skips = job.run.data.damaged == "skip"
    train = tuple(Dataset.open(path, TRAIN, check_files, skips) for path in job.directories)
    check_lengths(job.run, train)
    check_shards(job.run, train, tokenizer_sha256)
    if check_files:
        check_held_out([(dataset.directory, dataset.manifest) for dataset in train])
    validation = tuple(Dataset.open(path, VALIDATION, False) for path in job.directories)
    stage = job.deepspeed.stage(job.run.precision)
    return Data(train, make_phases(job.run, world_size, stage, train, validation))


def open_checkpoint(job: Job, cluster: Cluster) -> tuple[Checkpoint | None, bool]:
    """What to begin with, and whether that forks another run. Collective."""
    checkpoint, messages = open_latest(job.output, cluster)
    forked = checkpoint is None and job.fork is not None
    if checkpoint is None and job.fork is not None:
        checkpoint, messages = open_from(job.fork, cluster)
    for message in messages if cluster.rank == 0 else ():
        print(f"checkpoints: {message}", file=sys.stderr)
    if forked and checkpoint and checkpoint.state.step >= job.last_step:
        raise CheckpointError(
            f"{checkpoint.directory} is at step {checkpoint.state.step} already, the run would end "
            f"at {job.last_step}; raise steps"
        )
    return checkpoint, forked


def build(
    job: Job,
    cluster: Cluster,
    stop: StopRequest,
    record: Record,
    feed: Feed,
    progress: Progress,
    checkpoint: Checkpoint | None,
    held: ExitStack,
) -> Trainer:
    """Model, engine, loaders and metrics, as the checkpoint left them. Collective."""
    run = job.run
    plan = feed.phases[0].plan  # also later: the engine divides by its micro-batches, which rounds
    if run.data.reader == "mmap":
        announce_bus_errors()
    model = build_model(run, run.seed)
    with cluster.agreed():
        if job.init and not checkpoint:
            begun = begin_with(model, job.init, feed.datasets[0].directory / "tokenizer", job.new)
            record = replace(record, initial_weights=begun.described)
            if cluster.rank == 0:
                print("\n".join(begun.lines))
    logical = logical_parameters(model)
    if cluster.device.type == "cuda":
        model.to(cluster.device)
        for encoder in model.encoders():
            encoder.compile_layers()
    with cluster.agreed():
        engine = initialize(
            model, run, job.deepspeed, logical, rows=plan.rows, accumulation=plan.accumulation
        )
    with cluster.agreed():
        if checkpoint:
            restore(engine, checkpoint)
    metrics = None
    tell = partial(tqdm.write, file=sys.stderr)
    with cluster.agreed():
        if cluster.rank == 0:
            record.write(job.output)
            metrics = Metrics(job.output, progress.step, tell)
            held.callback(metrics.close)
    own = checkpoint is not None and checkpoint.directory.is_relative_to(job.output)
    saver = Saver(
        job.output,
        cluster,
        keep=run.checkpoint.keep,
        keep_every=run.checkpoint.keep_every,
        saved_step=progress.step if own else -1,
        parameters=plan.parameters,
        before_publishing=metrics.sync if metrics else lambda: None,
        tell=tell,
    )
    held.callback(saver.close)
    trace = Trace(job.output / PROFILE if job.profile and cluster.rank == 0 else None)
    held.callback(trace.close)
    # a fork that reads other data from their beginning has other losses too
    recent = checkpoint.state.recent_losses if checkpoint and progress.sequences else ()
    watchdog = held.enter_context(Watchdog(cluster.rank, run.logging.hang_seconds))
    begins = [phase.begin for phase in feed.phases]
    losses = LossWatch(run.spikes, cluster.device, recent, begins)
    stop.deadline = Deadline(job.hours, lambda: saver.seconds)
    return Trainer(
        record=record,
        feed=feed,
        cluster=cluster,
        engine=engine,
        validator=Validator(
            engine=engine, cluster=cluster, stop=stop, metrics=metrics, watchdog=watchdog
        ),
        stop=stop,
        metrics=metrics,
        progress=progress,
        losses=losses,
        stragglers=Stragglers(
            cluster.gather(host_name()), job.output, ForwardClock(cluster.device)
        ),
        saver=saver,
        watchdog=watchdog,
        trace=trace,
    )


def print_start(job: Job, phases: Sequence[Phase]) -> None:
    """The plan of each phase, in words."""
    print(f"{job.run.name} -> {job.output}")
    for phase in phases:
        if len(phases) > 1:
            print(f"  {phase.words}")
        for line in phase.plan.lines():
            print(f"  {'  ' * (len(phases) > 1)}{line}")
    for advice in job.advice:
        print(f"warning: {advice}", file=sys.stderr)


def finish(job: Job, trainer: Trainer, interrupted: bool) -> None:
    """Say how it ended, in files and in words."""
    step = trainer.progress.step
    if trainer.metrics:
        trainer.metrics.draw()
    if interrupted:
        mark_interrupted(job.output, step)
        print(f"interrupted at step {step:,} and saved; run the same command again to go on")
    else:
        print(f"{job.output} is at step {step:,} of {job.run.steps:,}")
        print(f"next: python -m pipeline.export {job.output} --output DIR")


if __name__ == "__main__":
    run_command(main, at_once=True)
