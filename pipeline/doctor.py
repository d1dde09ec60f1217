"""Whether these machines can run a job: alone, or as every rank under srun or torchrun.

The quick form needs no torch and takes seconds; every batch file runs it before its work. `--full`
adds what torch measures. Every rank looks at its own node, and rank 0 compares, prints and decides.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.base.command_line import Parser, add_recipe_arguments, cores, example_text
from pipeline.base.errors import EXIT_USER_ERROR, ConfigError, run_command
from pipeline.diagnosis import report
from pipeline.diagnosis.checks import FAIL, WARN, Check, judge, merge, worst_status
from pipeline.diagnosis.clocks import check_clocks
from pipeline.diagnosis.devices import compare_devices, find_device
from pipeline.diagnosis.exchange import Exchange
from pipeline.diagnosis.host import check_host, find_interfaces
from pipeline.diagnosis.placement import find_placement
from pipeline.diagnosis.room import check_staging, checkpoint_bytes
from pipeline.diagnosis.shards import QUICK_SECONDS, check_shards, compare_fingerprints
from pipeline.diagnosis.shared_directory import check_output
from pipeline.diagnosis.signals import SignalWatch
from pipeline.diagnosis.versions import compare_versions, find_versions
from pipeline.released.choice import Recipe, head_advice, read_settings


def main() -> None:
    arguments = _parse()
    chosen = _chosen(arguments)
    watch = SignalWatch()
    start = time.monotonic()
    placement = find_placement()
    with Exchange(placement) as ranks:
        rows, checks = _examine(ranks, watch, arguments, chosen)
        seconds = time.monotonic() - start
        if placement.rank == 0:
            _print(arguments, rows, checks, seconds)
        failed = ranks.broadcast(worst_status(checks) == FAIL)
    if failed:
        sys.exit(EXIT_USER_ERROR)


def _examine(
    ranks: Exchange, watch: SignalWatch, arguments: argparse.Namespace, chosen: Recipe | None
) -> tuple[list[dict[str, Any]], list[Check]]:
    """The rank table and the checks, on rank 0. Collective."""
    placement = ranks.placement
    settings = chosen.run if chosen else None
    offsets = ranks.clock_offsets()
    row, versions, own = _look_here(ranks, arguments, settings is not None)
    rows = ranks.gather(row)
    if arguments.output:
        one = checkpoint_bytes(settings) if settings else 0.0
        most = settings.checkpoint.most_kept(settings.steps) if settings else 1
        own += check_output(ranks, arguments.output, one, most * one)
    shards, prints = check_shards(arguments.data, placement, settings, QUICK_SECONDS)
    own += shards
    if chosen and chosen.model:
        own.append(_check_heads(chosen))
    if arguments.stage and placement.is_first_on_node:
        own += check_staging(arguments.data, arguments.stage)
    own.append(watch.check(ranks))
    if arguments.full:
        from pipeline.diagnosis import rates  # torch: seconds that the quick form does without

        own += rates.measure(ranks, rows, versions)
    answers = ranks.gather([versions, prints, [asdict(check) for check in own]])
    checks = merge([[_check(item) for item in answer[2]] for answer in answers])
    if answers:
        for entry, offset in zip(rows, offsets):
            entry["clock"] = f"{offset:+.3f} s" if len(rows) > 1 else ""
        checks += compare_fingerprints([answer[1] for answer in answers])
        checks.append(compare_versions([answer[0] for answer in answers]))
        checks += check_clocks(offsets) + compare_devices(rows, is_training=settings is not None)
    return rows, checks


def _look_here(
    ranks: Exchange, arguments: argparse.Namespace, is_training: bool
) -> tuple[dict[str, Any], dict[str, str], list[Check]]:
    """This rank's row, its versions, and the checks that need nobody else."""
    placement = ranks.placement
    device, checks = find_device(
        placement.local_rank, placement.local_size, is_training=is_training
    )
    versions = find_versions()
    if device.driver:
        versions["driver"] = device.driver
    row = {
        "rank": placement.rank,
        "host": socket.gethostname(),
        "local_rank": placement.local_rank,
        "cores": cores(),
        "device": device.name,
        "uuid": device.uuid,
        "bus": device.bus,
        "numa": device.numa,
        "address": ranks.address,
        "nic": " ".join(find_interfaces(ranks.address)),
        "clock": "",
    }
    local = os.environ.get("TENFOLD_LOCAL")
    checks += check_host(placement.local_size, Path(local) if local else None)
    return row, versions, checks


def _check_heads(chosen: Recipe) -> Check:
    """Whether the model that a recipe continues has all heads that it trains."""
    lacking, _, remedy = head_advice(chosen).rpartition("; ")
    value = lacking or f"all that objective.kind={chosen.run.objective.kind} trains"
    return judge("heads", value, WARN if lacking else "", remedy=remedy)


def _check(item: dict[str, Any]) -> Check:
    return Check(**item | {"ranks": tuple(item["ranks"])})


def _print(
    arguments: argparse.Namespace, rows: list[dict[str, Any]], checks: list[Check], seconds: float
) -> None:
    if arguments.json:
        print(report.to_json(rows, checks, seconds), flush=True)
        return
    lines = [] if arguments.brief else [*report.table_lines(rows), ""]
    lines += report.check_lines(checks, arguments.brief)
    print("\n".join([*lines, report.summary(checks, len(rows), seconds)]), flush=True)


def _chosen(arguments: argparse.Namespace) -> Recipe | None:
    if arguments.set and not (arguments.recipe or arguments.run):
        raise ConfigError("--set changes a recipe or a run; give --recipe or --run too")
    if arguments.recipe or arguments.run:
        return read_settings(arguments.recipe, arguments.run, arguments.set)
    return None


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.doctor",
        description="Check whether these machines can run a job: limits, versions, clocks, GPUs, "
        "the shared file system, shards, signals. Start it as the job would be started: alone, or "
        "with srun or torchrun, as every rank. Exit code 2 if a run would stop or be wrong; "
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
        help="run directory, whether it exists or not: its file system is tested by all nodes",
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
