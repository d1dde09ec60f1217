"""Shards -> a trained model: `python -m pipeline.train roberta_tiny --data SHARDS --output RUN`.

Alone, or the same command under torchrun or deepspeed. It goes on by itself when RUN has a
checkpoint, on any number of processes and at any ZeRO stage. SIGTERM or SIGUSR1 makes it save,
write RUN/INTERRUPTED and exit with code 75.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from model.hugging_face import logical_parameters
from pipeline.command import Parser, chosen_recipe
from pipeline.data.bus_error import announce_bus_errors
from pipeline.data.reading import Dataset, check_datasets
from pipeline.data.shards import TRAIN, VALIDATION
from pipeline.errors import EXIT_INTERRUPTED, CheckpointError, ConfigError, run_command
from pipeline.recipes import RECIPES
from pipeline.run import Run, shard_settings
from pipeline.settings import override
from pipeline.training.checkpoint import Checkpoint, open_from, open_latest
from pipeline.training.cluster import (
    Cluster,
    StopRequest,
    launched_rank,
    outlived,
    spoken_once,
)
from pipeline.training.deadline import Deadline
from pipeline.training.deepspeed_config import DeepSpeedFile, deepspeed_dict, read_deepspeed_file
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
from pipeline.training.leaving_out import found_at_start, without
from pipeline.training.loop import Trainer
from pipeline.training.metrics import Metrics
from pipeline.training.objectives import build_model
from pipeline.training.plan import Plan, attention_name, make_plan
from pipeline.training.progress import Progress, begin, restore
from pipeline.training.record import Record, check_same, check_source, read_record, read_run
from pipeline.training.saving import Saver
from pipeline.training.schedule import batch_advice
from pipeline.training.spikes import LossWatch
from pipeline.training.stragglers import ForwardClock, Stragglers, host_name
from pipeline.training.tracing import PROFILE, Trace
from pipeline.training.watchdog import Watchdog


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a command line asks for, checked as far as it can be without data."""

    run: Run
    deepspeed: DeepSpeedFile
    directories: tuple[Path, ...]
    """Of the shards."""
    output: Path
    last_step: int
    """Where to end: --stop-at, or the run's last step."""
    fork: Path | None
    """--from: the checkpoint to begin with when the output has none."""
    hours: float
    """--hours: of wall time that it may take, infinity for no limit."""
    profile: bool
    """--profile: whether a few steps are traced."""
    advice: tuple[str, ...]
    """What is doubtful about it."""


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


def read_job(arguments: argparse.Namespace) -> Job:
    """The job of a command line; ConfigError for one that makes no sense."""
    if (arguments.recipe is None) == (arguments.run is None):
        raise ConfigError("give a recipe's name or --run run.json, one of them")
    if arguments.run is not None:
        given = read_run(arguments.run)
        run = override(given, arguments.set)
    else:
        given = chosen_recipe(arguments.recipe, [])
        run = chosen_recipe(arguments.recipe, arguments.set)
    if arguments.stop_at is not None and not 1 <= arguments.stop_at <= run.steps:
        raise ConfigError(
            f"--stop-at {arguments.stop_at} is not a step of the run; choose one in "
            f"[1, steps={run.steps}]"
        )
    if not arguments.hours > 0:
        raise ConfigError(f"--hours {arguments.hours:g} is no time to train; give more than 0")
    deepspeed = read_deepspeed_file(arguments.ds)
    return Job(
        run=run,
        deepspeed=deepspeed,
        directories=tuple(arguments.data),
        output=arguments.output,
        last_step=arguments.stop_at or run.steps,
        fork=arguments.fork,
        hours=arguments.hours,
        profile=arguments.profile,
        advice=(*filter(None, [deepspeed.advice(run.precision), batch_advice(given, run)]),),
    )


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
    losses = LossWatch(run.spikes, cluster.device, recent)
    stop.deadline = Deadline(job.hours, lambda: saver.seconds)
    return Trainer(
        record=record,
        plan=plan,
        cluster=cluster,
        engine=engine,
        loader=train_loader(run, plan, cluster, data.train, progress.skipped_ranges),
        validation=validation_loaders(
            data.validation, plan.rows, cluster.world_size, cluster.rank, run.batch.attention
        ),
        stop=stop,
        metrics=metrics,
        progress=progress,
        losses=losses,
        stragglers=Stragglers(
            cluster.gather(host_name()), job.output, ForwardClock(cluster.device)
        ),
        saver=saver,
        watchdog=held.enter_context(Watchdog(cluster.rank, run.logging.hang_seconds)),
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


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(
        prog="python -m pipeline.train",
        description="Train a model from shards. Run the same command again to go on where it was. "
        "With several processes: torchrun --nproc-per-node N -m pipeline.train ..., or "
        "deepspeed --num_gpus N --module pipeline.train ...",
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help=", ".join(RECIPES))
    parser.add_argument(
        "--run", type=Path, metavar="FILE", help="instead of a recipe: the run.json of another run"
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="shards made by pipeline.prepare; several are mixed by size",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="RUN", help="directory of the run"
    )
    parser.add_argument(
        "--ds",
        default="zero1",
        metavar="NAME",
        help="how memory is spent: a file of ds_configs by name, or any by path (default: zero1)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change a setting of the recipe, e.g. optimizer.peak_lr=1e-3; may be repeated",
    )
    parser.add_argument(
        "--stop-at",
        type=int,
        metavar="STEP",
        help="end there with a checkpoint; the schedule stays that of the whole run",
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=math.inf,
        metavar="H",
        help="stop before H hours have passed as if asked to: saved, INTERRUPTED, exit code 75",
    )
    parser.add_argument(
        "--from",
        dest="fork",
        type=Path,
        metavar="RUN/STEP",
        help="begin a new run with the weights and optimizer of another run's checkpoint",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few steps into RUN/profile, for Perfetto"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing, end")
    # deepspeed's launcher adds this; the environment says it too
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main, at_once=True)
