"""A command line of `pipeline.train` -> the job it asks for, checked as far as it can be without
data."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from pipeline.command_line import Parser, chosen_recipe
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.recipes import RECIPES
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.training.planning.schedule import batch_advice
from pipeline.training.run_directory.run_json import read_run
from pipeline.training.weights.initial_weights import NEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is asked for."""

    run: Run
    deepspeed: DeepSpeedFile
    directories: tuple[Path, ...]
    """Of the shards."""
    output: Path
    last_step: int
    """Where to end: --stop-at, or the run's last step."""
    fork: Path | None
    """--from: the checkpoint to begin with when the output has none."""
    init: Path | None
    """--init: the folder whose weights to begin with then."""
    new: frozenset[str]
    """--new: what of the model is not that folder's."""
    hours: float
    """--hours: of wall time that it may take, infinity for no limit."""
    profile: bool
    """--profile: whether a few steps are traced."""
    advice: tuple[str, ...]
    """What is doubtful about it."""


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
    if arguments.init and arguments.fork:
        raise ConfigError(
            "--init begins a run with weights, --from with another run's checkpoint; give one"
        )
    if arguments.new and not arguments.init:
        raise ConfigError("--new says what is not that of --init MODEL_DIR; give that too")
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
        profile=arguments.profile,
        advice=(*filter(None, [deepspeed.advice(run.precision), batch_advice(given, run)]),),
    )


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
        "--init",
        type=Path,
        metavar="MODEL_DIR",
        help="begin a new run with the weights of a folder of transformers of the recipe's family",
    )
    parser.add_argument(
        "--new",
        nargs="+",
        default=[],
        choices=NEW,
        metavar="PART",
        help="with --init: what is not the folder's. vocabulary: tokens that both have keep their "
        "rows, the others begin as the recipe says; generator: ELECTRA's begins anew",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few steps into RUN/profile, for Perfetto"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, write nothing, end")
    # deepspeed's launcher adds this; the environment says it too
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    return parser.parse_args()
