"""Shards -> a trained model: `python -m pipeline.train roberta_tiny --data SHARDS --output RUN`.

Alone, or the same command under torchrun or deepspeed. It goes on by itself when RUN has a
checkpoint, on any number of processes and at any ZeRO stage. SIGTERM or SIGUSR1 makes it save,
write RUN/INTERRUPTED and exit with code 75.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from tqdm import tqdm

from model.hugging_face import logical_parameters
from pipeline.data.bus_error import announce_bus_errors
from pipeline.data.reading import Dataset, check_datasets
from pipeline.data.shards import TRAIN, VALIDATION
from pipeline.errors import EXIT_INTERRUPTED, CheckpointError, run_command
from pipeline.run import shard_settings
from pipeline.training.checkpoint import Checkpoint, open_from, open_latest
from pipeline.training.cluster import (
    Cluster,
    StopRequest,
    launched_rank,
    outlived,
    spoken_once,
)
from pipeline.training.deadline import Deadline
from pipeline.training.deepspeed_config import deepspeed_dict
from pipeline.training.directory import (
    INTERRUPTED,
    claim,
    has_checkpoints,
    mark_interrupted,
    mark_ready,
)
from pipeline.training.engine import initialize
from pipeline.training.evaluation import validation_loaders
from pipeline.training.example import print_example
from pipeline.training.inputs import train_loader
from pipeline.training.job import Job, parse, read_job
from pipeline.training.leaving_out import found_at_start, without
from pipeline.training.loop import Trainer
from pipeline.training.metrics import Metrics
from pipeline.training.objectives import build_model
from pipeline.training.plan import Plan, attention_name, make_plan
from pipeline.training.progress import Progress, begin, restore
from pipeline.training.record import Record, check_same, check_source, read_record
from pipeline.training.saving import Saver
from pipeline.training.spikes import LossWatch
from pipeline.training.stragglers import ForwardClock, Stragglers, host_name
from pipeline.training.tracing import PROFILE, Trace
from pipeline.training.validating import Validator
from pipeline.training.watchdog import Watchdog


@dataclass(frozen=True, slots=True)
class Data:
    """The datasets of a run, both splits."""

    train: tuple[Dataset, ...]
    validation: tuple[Dataset, ...]


def main() -> None:
    arguments = parse()
    stop = StopRequest()
    stop.listen()
    with spoken_once(launched_rank()):
        job = read_job(arguments)
        if arguments.dry_run:
            dry_run(job)
            return
    cluster = Cluster.join()
    with outlived(cluster.rank):
        interrupted = train(job, cluster, stop)
        cluster.leave()
    sys.exit(EXIT_INTERRUPTED if interrupted else 0)


def dry_run(job: Job) -> None:
    """Print what would be done, write nothing."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    data = open_data(job, "")
    plan = plan_of(job, world_size, data)
    if launched_rank() == 0:
        print_start(job, plan)
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
            record, data, plan = prepare(job, cluster)
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
        trainer = build(job, cluster, stop, record, data, plan, progress, checkpoint, held)
        with cluster.agreed():
            if first:
                print_start(job, plan)
                print_example(trainer.loader, progress.sequences, progress.step)
        interrupted = trainer.train(job.last_step)
        trainer.engine.close()
        if first:
            finish(job, trainer, interrupted)
    return interrupted


def prepare(job: Job, cluster: Cluster) -> tuple[Record, Data, Plan]:
    """Open the data and say what the run is; errors when either does not fit RUN or the ranks."""
    earlier = read_record(job.output) if has_checkpoints(job.output) else None
    data = open_data(job, earlier.tokenizer_sha256 if earlier else "", cluster.rank == 0)
    if earlier:
        check_same(earlier, job.run, data.train, job.output)
    plan = plan_of(job, cluster.world_size, data)
    attention = attention_name(job.run, cluster.device.type)
    record = Record.of(job.run, plan.to_dict(), data.train, attention)
    return replace(record, begun_from=earlier.begun_from) if earlier else record, data, plan


def open_data(job: Job, tokenizer_sha256: str, check_sizes: bool = True) -> Data:
    """The datasets of --data; DataError when they are not what the run asks for."""
    skips = job.run.data.damaged == "skip"
    train = tuple(Dataset.open(path, TRAIN, check_sizes, skips) for path in job.directories)
    check_datasets(train, shard_settings(job.run.data), tokenizer_sha256)
    return Data(train, tuple(Dataset.open(path, VALIDATION, False) for path in job.directories))


def plan_of(job: Job, world_size: int, data: Data) -> Plan:
    """Every number that follows from the job."""
    stage = job.deepspeed.stage(job.run.precision)
    return make_plan(job.run, world_size, stage, data.train, data.validation)


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
    data: Data,
    plan: Plan,
    progress: Progress,
    checkpoint: Checkpoint | None,
    held: ExitStack,
) -> Trainer:
    """Model, engine, loaders and metrics, as the checkpoint left them. Collective."""
    run = job.run
    if run.data.reader == "mmap":
        announce_bus_errors()
    model = build_model(run, run.seed)
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
    recent = checkpoint.state.recent_losses if checkpoint else ()
    watchdog = held.enter_context(Watchdog(cluster.rank, run.logging.hang_seconds))
    losses = LossWatch(run.spikes, cluster.device, recent)
    stop.deadline = Deadline(job.hours, lambda: saver.seconds)
    return Trainer(
        record=record,
        plan=plan,
        cluster=cluster,
        engine=engine,
        loader=train_loader(run, plan, cluster, data.train, progress.skipped_ranges),
        validator=Validator(
            engine=engine,
            loaders=validation_loaders(
                data.validation, plan.rows, cluster.world_size, cluster.rank, run.batch.attention
            ),
            cluster=cluster,
            stop=stop,
            metrics=metrics,
            watchdog=watchdog,
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


def print_start(job: Job, plan: Plan) -> None:
    """The plan, in words."""
    print(f"{job.run.name} -> {job.output}")
    for line in plan.lines():
        print(f"  {line}")
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
