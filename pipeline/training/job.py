"""The command line of `pipeline.train` -> a job, with all checks that need no data."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from pipeline.command_line import Parser, example_text
from pipeline.config.run import Run
from pipeline.config.run_file import read_run
from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.recipes import recipe
from pipeline.training.cluster.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.training.planning.schedule import batch_advice
from pipeline.training.weights.initial_weights import NEW

EXAMPLES = example_text(
    "python -m pipeline.train roberta_tiny --data data/shards/sample-* --output runs/tiny",
    "python -m pipeline.train bert_base --data data/shards/16gb-* --output runs/bert \\\n"
    "    --ds zero2 --set batch.per_device=32 --dry-run",
    "torchrun --standalone --nproc-per-node 8 -m pipeline.train roberta_large \\\n"
    "    --data data/shards/160gb-* --output runs/large --hours 24",
)


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
    profile: bool
    """--profile: whether to trace a few steps."""
    advice: tuple[str, ...]
    """Warnings about doubtful choices."""


def read_job(arguments: argparse.Namespace) -> Job:
    """The job of a command line. Raises ConfigError for contradictory options."""
    if (arguments.recipe is None) == (arguments.run is None):
        raise ConfigError("give either a recipe's name or --run run.json")
    given = recipe(arguments.recipe) if arguments.run is None else read_run(arguments.run)
    run = override(given, arguments.set)
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
        description="Train a model from shards. Run the same command again to resume. "
        "With several processes: torchrun --nproc-per-node N -m pipeline.train ..., or "
        "deepspeed --num_gpus N --module pipeline.train ...",
        epilog=EXAMPLES,
    )
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="see `tenfold recipes`")
    parser.add_argument(
        "--run", type=Path, metavar="FILE", help="the run.json of another run, instead of a recipe"
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="shards made by pipeline.prepare; several are mixed by size",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="RUN", help="run directory")
    parser.add_argument(
        "--ds",
        default="zero1",
        metavar="NAME",
        help="DeepSpeed file that says how memory is used: a name in ds_configs, or a path "
        "(default: zero1)",
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
        help="stop at this step and save; the schedule remains that of the whole run",
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=math.inf,
        metavar="H",
        help="stop before H hours have passed: save, write INTERRUPTED, exit with code 75",
    )
    parser.add_argument(
        "--from",
        dest="fork",
        type=Path,
        metavar="RUN/STEP",
        help="start a new run from the weights and optimizer of another run's checkpoint",
    )
    parser.add_argument(
        "--init",
        type=Path,
        metavar="MODEL_DIR",
        help="start a new run from the weights of a transformers folder of the recipe's family",
    )
    parser.add_argument(
        "--new",
        nargs="+",
        default=[],
        choices=NEW,
        metavar="PART",
        help="with --init: parts that do not come from the folder. vocabulary: tokens in both "
        "vocabularies keep their rows, the other rows are initialized by the recipe; generator: "
        "ELECTRA's generator is initialized by the recipe",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few steps into RUN/profile, for Perfetto"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")
    # deepspeed's launcher adds this; we read it from the environment
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)
    return parser.parse_args()
