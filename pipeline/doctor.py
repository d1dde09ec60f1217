"""Check whether these machines can run a job: in one process, or as every rank of a launcher.

The quick form needs no torch and takes seconds; every batch file runs it before its work. `--full`
adds what torch measures. Every rank looks at its own node, and rank 0 compares, prints and decides.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.base.command_line import Parser, add_recipe_arguments, example_text
from pipeline.base.errors import EXIT_USER_ERROR, ConfigError, run_command
from pipeline.diagnosis import check_report
from pipeline.diagnosis.checks import FAIL, Check, worst_status
from pipeline.diagnosis.examination import examine
from pipeline.diagnosis.exchange import Exchange
from pipeline.diagnosis.own_rank import find_placement
from pipeline.diagnosis.signals import SignalWatch
from pipeline.released.choice import Recipe, read_recipe


def main() -> None:
    arguments = _parse()
    chosen = _choose(arguments)
    watch = SignalWatch()  # before the ranks meet: a signal may come right after
    start = time.monotonic()
    placement = find_placement()
    with Exchange(placement) as ranks:
        rows, checks = examine(ranks, watch, arguments, chosen)
        seconds = time.monotonic() - start
        if placement.rank == 0:
            _print(arguments, rows, checks, seconds)
        # broadcast, so that all ranks end with the same exit code
        failed = ranks.broadcast(worst_status(checks) == FAIL)
    if failed:
        sys.exit(EXIT_USER_ERROR)


def _print(
    arguments: argparse.Namespace, rows: list[dict[str, Any]], checks: list[Check], seconds: float
) -> None:
    if arguments.json:
        print(check_report.report_as_json(rows, checks, seconds), flush=True)
        return
    lines = [] if arguments.brief else [*check_report.table_lines(rows), ""]
    lines += check_report.check_lines(checks, arguments.brief)
    print(
        "\n".join([*lines, check_report.summarize_checks(checks, len(rows), seconds)]), flush=True
    )


def _choose(arguments: argparse.Namespace) -> Recipe | None:
    """The recipe to check for. Raises ConfigError for --set without one."""
    if arguments.set and not arguments.recipe:
        raise ConfigError("--set changes a recipe; give --recipe too")
    return read_recipe(arguments.recipe, arguments.set) if arguments.recipe else None


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.doctor",
        description="Check whether these machines can run a job: limits, versions, clocks, GPUs, "
        "the shared file system, shards, signals. Start it the way the job is started: alone, or "
        "as every rank under srun or torchrun. Exit code 2 if a run would stop or be wrong; "
        "everything else is a warning.",
        epilog=example_text(
            "python -m pipeline.doctor --output runs/tiny",
            "srun --nodes=2 --ntasks-per-node=8 python -m pipeline.doctor --recipe bert_base \\\n"
            "    --data data/shards/16gb-* --output runs/bert",
            "torchrun --nproc-per-node 8 -m pipeline.doctor --output runs/bert --json",
        ),
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="shards to check: every file with its size, a sample of hashes, the settings of "
        "--recipe",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="RUN",
        help="run directory, new or existing: all nodes test its file system",
    )
    parser.add_argument(
        "--stage",
        type=Path,
        metavar="DIR",
        help="directory of pipeline.train --stage: its free space",
    )
    add_recipe_arguments(parser, default="")
    parser.add_argument(
        "--full",
        action="store_true",
        help="also measure matrix products, all-reduces and pairs of nodes with torch: a minute "
        "or more",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--brief", action="store_true", help="print warnings and failures only")
    shown.add_argument(
        "--json", action="store_true", help="print one object: status, seconds, ranks, checks"
    )
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
