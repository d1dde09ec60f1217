"""Shards -> a trained model: `python -m pipeline.train roberta_tiny --data SHARDS --output RUN`.

Runs alone, or under torchrun or deepspeed. If RUN has a checkpoint, the same command resumes from
it, on any number of processes and at any ZeRO stage. On SIGTERM or SIGUSR1 it saves, writes
RUN/INTERRUPTED and exits with code 75.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from tqdm import tqdm

from pipeline.errors import EXIT_INTERRUPTED, CheckpointError, run_command
from pipeline.model_folder import check_model_folder
from pipeline.training.cluster.stop_request import Deadline, StopRequest, exit_on_stop_signals

if __name__ == "__main__":
    exit_on_stop_signals()
    run_command(check_model_folder)  # before `model` is imported

from model.hugging_face import Model, logical_parameters
from pipeline.data.shards.held_out import check_held_out
from pipeline.data.shards.manifest import TRAIN, VALIDATION
from pipeline.loading.dataset import Dataset
from pipeline.loading.example import print_example
from pipeline.loading.sigbus import announce_bus_errors
from pipeline.training.checkpoints.read import Checkpoint, open_from, open_latest
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.cluster.deepspeed_config import deepspeed_dict
from pipeline.training.cluster.engine import ZeroEngine, initialize
from pipeline.training.cluster.launcher import LauncherWatch
from pipeline.training.cluster.ranks import (
    Cluster,
    ending_with_lost_ranks,
    launched_rank,
    reported_once,
)
from pipeline.training.cluster.watchdog import Watchdog
from pipeline.training.feed import Feed
from pipeline.training.job import Job, parse, read_job
from pipeline.training.loop import Trainer
from pipeline.training.loss_watch import LossWatch
from pipeline.training.planning.phases import Phase, check_lengths, check_shards, make_phases
from pipeline.training.planning.plan import Plan, attention_name
from pipeline.training.progress import Progress, restore, start_progress
from pipeline.training.recovery import Recovery, exclude_shards, find_damaged_at_start
from pipeline.training.run_directory.layout import (
    INTERRUPTED,
    claim,
    has_checkpoints,
    mark_interrupted,
    mark_ready,
    mark_stopped_at_start,
)
from pipeline.training.run_directory.metrics import Metrics
from pipeline.training.run_directory.profile import PROFILE, Trace
from pipeline.training.run_directory.run_json import (
    RunRecord,
    check_same,
    check_source,
    read_record,
)
from pipeline.training.run_directory.stragglers import ForwardClock, Stragglers, host_name
from pipeline.training.validation.validator import Validator
from pipeline.training.weights.build import build_model, compile_layers
from pipeline.training.weights.initial_weights import check_initial_weights, load_initial_weights

warn = partial(tqdm.write, file=sys.stderr)


@dataclass(frozen=True, slots=True)
class RunData:
    """The datasets of a run."""

    train: tuple[Dataset, ...]
    """In the order of --data."""
    phases: tuple[Phase, ...]
    """Each with its datasets of both splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run starts or resumes."""

    record: RunRecord
    feed: Feed
    progress: Progress
    checkpoint: Checkpoint | None
    """None if the run has none yet and does not fork another one."""
    forked: bool
    """Whether the checkpoint is that of --from."""
    interrupted: bool
    """Whether the last job stopped early."""

    @property
    def plan(self) -> Plan:
        """The plan of the first phase: the engine divides by its micro-batches in all phases, as
        another divisor would round differently."""
        return self.feed.phases[0].plan

    def is_done(self, last_step: int) -> bool:
        """Whether the run has nothing left to do."""
        return self.progress.step >= last_step and not self.forked and not self.interrupted


def main() -> None:
    arguments = parse()
    stop = StopRequest()
    stop.listen()
    LauncherWatch(stop).start()
    with reported_once(launched_rank()):
        job = read_job(arguments)
        if arguments.dry_run:
            dry_run(job)
            return
    if launched_rank() == 0:
        stop.before_exit = partial(mark_stopped_at_start, job.output)
    cluster = Cluster.join()
    with ending_with_lost_ranks(cluster.rank):
        interrupted = train(job, cluster, stop)
        cluster.leave()
    sys.exit(EXIT_INTERRUPTED if interrupted else 0)


def train(job: Job, cluster: Cluster, stop: StopRequest) -> bool:
    """Train a new run or resume one. Returns whether it stopped early. Collective."""
    with ExitStack() as held:
        claim_directory(job, cluster, held)
        start = open_start(job, cluster, stop)
        if start.is_done(job.last_step):
            if cluster.rank == 0:
                print(f"{job.output} is at step {start.progress.step:,} already; nothing to do")
            return False
        model, start = initialize_model(job, cluster, start)
        engine = build_engine(job, cluster, start, model)
        metrics = open_metrics(job, cluster, start, held)
        saver = build_saver(job, cluster, start, metrics)
        held.callback(saver.close)
        trainer = build_trainer(job, cluster, stop, start, engine, saver, metrics)
        held.callback(trainer.trace.close)
        held.enter_context(trainer.watchdog)
        print_start(job, cluster, start)
        interrupted = trainer.train(job.last_step)
        engine.close()
        if cluster.rank == 0:
            finish(job, trainer, interrupted)
    return interrupted


def claim_directory(job: Job, cluster: Cluster, held: ExitStack) -> None:
    """Hold RUN until `held` is closed. Collective."""
    with cluster.agreed():
        if cluster.rank == 0:
            held.enter_context(claim(job.output))


def open_start(job: Job, cluster: Cluster, stop: StopRequest) -> Start:
    """Open the data and the checkpoint; an error if they do not fit the run. Collective."""
    with cluster.agreed():
        record, data = open_run(job, cluster)
        interrupted = (job.output / INTERRUPTED).exists()
    with cluster.agreed():
        stop.can_save = True
        if cluster.rank == 0:
            mark_ready(job.output)
        checkpoint, forked = open_checkpoint(job, cluster)
        if checkpoint:
            check_source(checkpoint.state, record, checkpoint.directory, forked)
    progress = start_progress(checkpoint, record, forked)
    damaged = find_damaged_at_start(data.train, cluster)
    progress = exclude_shards(progress, data.train, damaged, cluster)
    if forked and checkpoint:
        record = replace(record, begun_from=str(checkpoint.directory.resolve()))
        if cluster.rank == 0:
            reads = "its data" if progress.sequences else "other data from the first sequence"
            print(f"starts a new run from {checkpoint.directory} and reads {reads}")
    if job.run.data.reader == "mmap":
        announce_bus_errors()
    return Start(
        record=record,
        feed=Feed(data.phases, data.train, cluster, progress),
        progress=progress,
        checkpoint=checkpoint,
        forked=forked,
        interrupted=interrupted,
    )


def open_run(job: Job, cluster: Cluster) -> tuple[RunRecord, RunData]:
    """Open the data and make the run's record; errors if these do not fit RUN or the ranks."""
    earlier = read_record(job.output) if has_checkpoints(job.output) else None
    sha256 = earlier.tokenizer_sha256 if earlier else ""
    data = open_data(job, sha256, cluster.world_size, cluster.rank == 0)
    if earlier:
        check_same(earlier, job.run, data.train, job.output)
        if job.init and cluster.rank == 0:
            check_initial_weights(earlier.initial_weights, job.init)
    attention = attention_name(job.run, cluster.device.type)
    plans = [phase.plan.to_dict() for phase in data.phases]
    record = RunRecord.of(job.run, plans, data.train, attention)
    if earlier:
        record = replace(
            record, begun_from=earlier.begun_from, initial_weights=earlier.initial_weights
        )
    return record, data


def open_data(
    job: Job, tokenizer_sha256: str, world_size: int, check_files: bool = True
) -> RunData:
    """The datasets of --data, by phases; an error if they do not fit the run.

    check_files: also check the sizes of files, and whether one directory trains on documents that
    another holds out; for one process of a run.
    """
    skips = job.run.data.damaged == "skip"
    train = tuple(Dataset.open(path, TRAIN, check_files, skips) for path in job.directories)
    check_lengths(job.run, train)
    check_shards(job.run, train, tokenizer_sha256)
    if check_files:
        check_held_out([(dataset.directory, dataset.manifest) for dataset in train])
    validation = tuple(Dataset.open(path, VALIDATION, False) for path in job.directories)
    stage = job.deepspeed.stage(job.run.precision)
    return RunData(train, make_phases(job.run, world_size, stage, train, validation))


def open_checkpoint(job: Job, cluster: Cluster) -> tuple[Checkpoint | None, bool]:
    """The checkpoint to start from, and whether it is another run's (--from). Collective."""
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


def initialize_model(job: Job, cluster: Cluster, start: Start) -> tuple[Model, Start]:
    """The model with the recipe's weights or those of --init, and the new start. Collective."""
    model = build_model(job.run, job.run.seed)
    with cluster.agreed():
        if job.init and not start.checkpoint:
            tokenizer = start.feed.datasets[0].directory / "tokenizer"
            weights = load_initial_weights(model, job.init, tokenizer, job.new)
            start = replace(start, record=replace(start.record, initial_weights=weights.described))
            if cluster.rank == 0:
                print("\n".join(weights.lines))
    return model, start


def build_engine(job: Job, cluster: Cluster, start: Start, model: Model) -> ZeroEngine:
    """The model under ZeRO with its optimizer, restored from the checkpoint. Collective."""
    logical = logical_parameters(model)
    if cluster.device.type == "cuda":
        model.to(cluster.device)
        compile_layers(model, job.deepspeed.stage(job.run.precision))
    plan = start.plan
    with cluster.agreed():
        engine = initialize(
            model, job.run, job.deepspeed, logical, rows=plan.rows, accumulation=plan.accumulation
        )
    with cluster.agreed():
        if start.checkpoint:
            restore(engine, start.checkpoint)
    return engine


def open_metrics(job: Job, cluster: Cluster, start: Start, held: ExitStack) -> Metrics | None:
    """Write run.json and open the metrics until `held` is closed; rank 0 only. Collective."""
    metrics = None
    with cluster.agreed():
        if cluster.rank == 0:
            start.record.write(job.output)
            metrics = Metrics(job.output, start.progress.step, warn)
            metrics.show_settings(job.run)
            held.callback(metrics.close)
    return metrics


def build_saver(job: Job, cluster: Cluster, start: Start, metrics: Metrics | None) -> Saver:
    """Saves the checkpoints of the run; no checkpoint is published before its metrics."""
    is_own = start.checkpoint and start.checkpoint.directory.is_relative_to(job.output)
    return Saver(
        job.output,
        cluster,
        keep=job.run.checkpoint.keep,
        keep_every=job.run.checkpoint.keep_every,
        saved_step=start.progress.step if is_own else -1,
        parameters=start.plan.parameters,
        before_publishing=metrics.sync if metrics else lambda: None,
        tell=warn,
    )


def build_trainer(
    job: Job,
    cluster: Cluster,
    stop: StopRequest,
    start: Start,
    engine: ZeroEngine,
    saver: Saver,
    metrics: Metrics | None,
) -> Trainer:
    """The training loop with all its parts. Collective."""
    run, feed, checkpoint = job.run, start.feed, start.checkpoint
    # a fork that reads other data from the first sequence has other losses too
    recent = checkpoint.state.recent_losses if checkpoint and start.progress.sequences else ()
    losses = LossWatch(run.spikes, cluster.device, recent, [phase.begin for phase in feed.phases])
    stop.deadline = Deadline(job.hours, lambda: saver.seconds)
    watchdog = Watchdog(cluster.rank, run.logging.hang_seconds)
    hosts = cluster.gather(host_name())
    return Trainer(
        record=start.record,
        feed=feed,
        cluster=cluster,
        engine=engine,
        validator=Validator(
            engine=engine, cluster=cluster, stop=stop, metrics=metrics, watchdog=watchdog
        ),
        stop=stop,
        metrics=metrics,
        progress=start.progress,
        recovery=Recovery(
            run=run, cluster=cluster, engine=engine, feed=feed, saver=saver, stop=stop,
            losses=losses,
        ),
        stragglers=Stragglers(hosts, job.output, ForwardClock(cluster.device)),
        saver=saver,
        watchdog=watchdog,
        trace=Trace(job.output / PROFILE if job.profile and cluster.rank == 0 else None),
    )  # fmt: skip


def dry_run(job: Job) -> None:
    """Print the plan and write nothing."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    data = open_data(job, "", world_size)
    if launched_rank() != 0:
        return
    if job.init:
        tokenizer = data.train[0].directory / "tokenizer"
        model = build_model(job.run, job.run.seed)
        print("\n".join(load_initial_weights(model, job.init, tokenizer, job.new).lines))
    print_plans(job, data.phases)
    plan = data.phases[0].plan
    settings = deepspeed_dict(
        job.run, job.deepspeed,
        rows=plan.rows, accumulation=plan.accumulation, world_size=world_size,
    )  # fmt: skip
    print(f"DeepSpeed: {settings}")


def print_start(job: Job, cluster: Cluster, start: Start) -> None:
    """Print the plans and an example of what the run reads next; rank 0 only. Collective."""
    with cluster.agreed():
        if cluster.rank == 0:
            print_plans(job, start.feed.phases)
            sequences = start.feed.reading(start.progress).sequences
            print_example(start.feed.loader, sequences, start.progress.step)


def print_plans(job: Job, phases: Sequence[Phase]) -> None:
    """Print the plan of each phase, and warnings about doubtful choices."""
    print(f"{job.run.name} -> {job.output}")
    indent = "    " if len(phases) > 1 else "  "
    for phase in phases:
        if len(phases) > 1:
            print(f"  {phase.words}")
        for line in phase.plan.lines():
            print(f"{indent}{line}")
    for advice in job.advice:
        print(f"warning: {advice}", file=sys.stderr)


def finish(job: Job, trainer: Trainer, interrupted: bool) -> None:
    """Draw the loss curve, mark an interrupted run and print how to continue."""
    step = trainer.progress.step
    if trainer.metrics:
        trainer.metrics.draw()
    if interrupted:
        mark_interrupted(job.output, step)
        print(f"interrupted at step {step:,} and saved; run the same command again to resume")
    else:
        print(f"{job.output} is at step {step:,} of {job.run.steps:,}")
        print(f"next: python -m pipeline.export {job.output} --output DIR")


if __name__ == "__main__":
    run_command(main, at_once=True)
