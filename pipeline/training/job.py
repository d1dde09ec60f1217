"""The command line of `pipeline.train` -> a job, with all checks that need no data."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.data.shards.manifest import TRAIN, Manifest, read_manifest
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.planning.schedule import batch_advice, check_warm_ups, with_epochs, with_steps
from pipeline.released.choice import Recipe, head_advice, read_recipe
from pipeline.released.continued import MOST_CONTINUED_PASSES
from pipeline.training.network_arguments import HEADS
from pipeline.training.run_directory.layout import has_checkpoints
from pipeline.training.run_directory.run_json import read_record


@dataclass(frozen=True, slots=True)
class FirstWeights:
    """A folder of transformers that a new run takes its weights from."""

    folder: Path
    """--init, or a recipe that is a folder."""
    new: frozenset[str]
    """--new: parts of the model that do not come from the folder."""
    origin: str
    """Its name and commit on the Hub, "" for a folder that was given as a path."""


@dataclass(frozen=True, slots=True)
class Unopened:
    """A prepared directory of which only the manifest was read."""

    directory: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a command line asks for."""

    run: Run
    deepspeed: DeepSpeedFile
    directories: tuple[Path, ...]
    """Directories of shards, of --data."""
    output: Path
    last_step: int
    """The step to end at: --stop-at, or the run's last step."""
    fork: Path | None
    """--from: the checkpoint to start from if the output has none."""
    init: FirstWeights | None
    """Weights to start from if the output has no checkpoint; None for the recipe's."""
    notes: tuple[str, ...]
    """Notes on the settings for the user."""
    hours: float
    """--hours: limit of wall time, infinity for none."""
    stage: Path | None
    """--stage: directory on each node's own disk for copies of the shards."""
    profile: bool
    """--profile: whether to trace a few steps."""
    advice: tuple[str, ...]
    """Warnings about doubtful choices."""
    ranks: int | None
    """--ranks: the number to plan for; None for that of the launcher."""
    verbose: bool


def read_job(arguments: argparse.Namespace) -> Job:
    """The job of a command line. Raises ConfigError for contradictory options."""
    chosen = read_recipe(arguments.recipe, arguments.set)
    run = chosen.run
    # Continued models learn by passes over the text, so its size decides the steps.
    if chosen.model and arguments.data:
        run = chosen.within_passes(_training_rows(arguments.data))
    if run.epochs:
        run = _with_recorded_steps(chosen, arguments)
    check_warm_ups(run)
    if arguments.stop_at is not None and not 1 <= arguments.stop_at <= run.steps:
        raise ConfigError(
            f"--stop-at {arguments.stop_at} is not a step of the run; choose one in "
            f"[1, steps={run.steps}]"
        )
    # `not >`, so that NaN is refused as well.
    if not arguments.hours > 0:
        raise ConfigError(
            f"--hours must be positive, got {arguments.hours:g}; give a number above 0"
        )
    init = _first_weights(arguments, chosen)
    if (arguments.ranks is not None or arguments.verbose) and not arguments.dry_run:
        raise ConfigError("--ranks and --verbose belong to --dry-run; remove them, or add it")
    if arguments.ranks is not None and arguments.ranks < 1:
        raise ConfigError(f"--ranks {arguments.ranks} is not a number of processes; give 1 or more")
    deepspeed = read_deepspeed_file(arguments.ds)
    return Job(
        run=run,
        deepspeed=deepspeed,
        directories=tuple(arguments.data),
        output=arguments.output,
        last_step=arguments.stop_at or run.steps,
        fork=arguments.fork,
        init=init,
        notes=_notes(chosen, run),
        hours=arguments.hours,
        stage=arguments.stage,
        profile=arguments.profile,
        ranks=arguments.ranks,
        verbose=arguments.verbose,
        advice=(*filter(None, [deepspeed.advice(run.precision), batch_advice(chosen.given, run)]),),
    )


def _first_weights(arguments: argparse.Namespace, chosen: Recipe) -> FirstWeights | None:
    """Raises ConfigError for options that exclude each other, and for a head that the folder lacks
    and that was not asked for."""
    if arguments.init and arguments.fork:
        raise ConfigError(
            "--init starts a run from weights, --from from another run's checkpoint; give one"
        )
    folder = chosen.folder
    if folder and (arguments.init or arguments.fork):
        raise ConfigError(
            f"the recipe {folder} is a model whose weights the run starts from, and "
            f"{'--init' if arguments.init else '--from'} names others; give one, or the settings "
            "alone with the run.json of a run"
        )
    folder = folder or arguments.init
    if folder is None:
        if arguments.new:
            raise ConfigError(
                "--new names what does not come from --init MODEL_DIR; give --init too"
            )
        return None
    new = frozenset(arguments.new)
    if HEADS not in new and (advice := head_advice(chosen)):
        raise ConfigError(advice)
    return FirstWeights(folder, new, chosen.origin)


def _training_rows(directories: list[Path]) -> int:
    """Rows that a run reads, of all its directories."""
    manifests = [read_manifest(directory) for directory in directories]
    shards = [shard for manifest in manifests for shard in manifest.shards]
    return sum(shard.sequences for shard in shards if shard.split == TRAIN)


def _with_recorded_steps(chosen: Recipe, arguments: argparse.Namespace) -> Run:
    """The run with the steps of its epochs: those that a run with a checkpoint has recorded, else
    those of the data."""
    if has_checkpoints(arguments.output):
        recorded = read_record(arguments.output).run
        if recorded.epochs == chosen.run.epochs:
            return with_steps(chosen.run, recorded.steps, chosen.changed)
    data = [Unopened(path, read_manifest(path)) for path in arguments.data]
    return with_epochs(chosen.run, data, chosen.changed)


def _notes(chosen: Recipe, run: Run) -> tuple[str, ...]:
    if run.steps == chosen.run.steps or run.epochs:
        return ()
    few = f" of {run.batch.sequences:,} sequences" if run.batch != chosen.run.batch else ""
    return (
        f"steps: {run.steps:,}{few}, {MOST_CONTINUED_PASSES:.0f} passes over the data, instead of "
        f"{chosen.run.steps:,} of {chosen.run.batch.sequences:,}; --set steps=N decides",
    )
