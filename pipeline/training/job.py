"""The command line of `pipeline.train` -> a job, with all checks that need no data."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pipeline.command_line import read_recipe
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.training.planning.schedule import batch_advice, check_warm_ups


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
    init: Path | None
    """--init: the model folder whose weights to start from if the output has no checkpoint."""
    new: frozenset[str]
    """--new: parts of the model that do not come from that folder."""
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
    given = read_recipe(arguments.recipe, arguments.run)
    run = override(given, arguments.set)
    check_warm_ups(run)
    if arguments.stop_at is not None and not 1 <= arguments.stop_at <= run.steps:
        raise ConfigError(
            f"--stop-at {arguments.stop_at} is not a step of the run; choose one in "
            f"[1, steps={run.steps}]"
        )
    if not arguments.hours > 0:
        raise ConfigError(
            f"--hours must be positive, got {arguments.hours:g}; give a number above 0"
        )
    if arguments.init and arguments.fork:
        raise ConfigError(
            "--init starts a run from weights, --from from another run's checkpoint; give one"
        )
    if arguments.new and not arguments.init:
        raise ConfigError("--new names what does not come from --init MODEL_DIR; give --init too")
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
        init=arguments.init,
        new=frozenset(arguments.new),
        hours=arguments.hours,
        stage=arguments.stage,
        profile=arguments.profile,
        ranks=arguments.ranks,
        verbose=arguments.verbose,
        advice=(*filter(None, [deepspeed.advice(run.precision), batch_advice(given, run)]),),
    )
