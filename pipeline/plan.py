"""Predict what a run takes, before it is submitted: `python -m pipeline.plan roberta_large ...`.

Memory by part, the largest micro-batch, seconds per step, hours, energy and cost, passes over the
data, disk space, and the same of the offline stage. Every figure has its basis (computed,
published, estimated or measured here), what it assumes, and a range where it is not exact. Nothing
is written.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError, run_command
from pipeline.base.model_folder import check_imports
from pipeline.costs.plan_arguments import parse_plan

if __name__ == "__main__":
    run_command(partial(check_imports, parse_plan))  # before torch and `model` are imported

from pipeline.base.command_line import check_least
from pipeline.config.run import Run
from pipeline.costs.cost_plan import PlannedRun, make_cost_plan
from pipeline.costs.device_rates import GPUS, Hardware
from pipeline.costs.expected_data import expected_datasets
from pipeline.costs.site_rates import read_site, site_file
from pipeline.diagnosis.checks import FAIL, WARN
from pipeline.diagnosis.own_rank import LaunchPlace
from pipeline.diagnosis.shard_checks import QUICK_SECONDS, check_shard_files
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.schedule import batch_advice, check_warm_ups, with_epochs
from pipeline.released.choice import head_advice, read_recipe
from pipeline.training.start import open_data

GPUS_PER_NODE = 8  # as in DGX and HGX machines


def main() -> None:
    arguments = parse_plan()
    plan = make_cost_plan(*_read(arguments))
    if arguments.json:
        print(plan.to_json(), flush=True)
        return
    print("\n".join(plan.to_lines()), flush=True)
    for line in plan.warnings:
        print(f"warning: {line}", file=sys.stderr)


def _read(arguments: argparse.Namespace) -> tuple[PlannedRun, float, list[str]]:
    """The run with its data and machines, the price, and warnings about the data."""
    hardware, file = _hardware(arguments), read_deepspeed_file(arguments.ds)
    chosen = read_recipe(arguments.recipe, arguments.set)
    run = chosen.run
    warnings = [file.advice(run.precision), batch_advice(chosen.given, run), head_advice(chosen)]
    warnings = list(filter(None, warnings))
    if arguments.data:
        warnings += _look_at(arguments.data, run)  # first: it explains damaged files best
        data = open_data(run, arguments.data, hardware.ranks, file.stage(run.precision))
        train, validation = data.train, data.validation
    else:
        if not 1e3 <= arguments.tokens < 1e15:
            raise ConfigError(f"--tokens {arguments.tokens:g} is not a size of a corpus; give 4e9")
        train, validation = expected_datasets(run, int(arguments.tokens))
    rows = sum(dataset.rows for dataset in train)
    run = chosen.within_passes(rows)
    if run.epochs:
        run = with_epochs(run, train, chosen.changed)
    check_warm_ups(run)
    planned = PlannedRun(
        run=run, train=train, validation=validation, file=file, hardware=hardware,
        site=read_site(site_file()),
    )  # fmt: skip
    return planned, arguments.price, warnings


def _look_at(directories: list[Path], run: Run) -> list[str]:
    """Warnings about the files of shards. Raises DataError if a run would stop."""
    checks, _ = check_shard_files(directories, LaunchPlace(), run, QUICK_SECONDS)
    for check in checks:
        if check.status == FAIL:
            raise DataError(f"{check.name}: {check.value}; {check.remedy}")
    return [
        f"{check.name}: {check.value}; {check.remedy}" for check in checks if check.status == WARN
    ]


def _hardware(arguments: argparse.Namespace) -> Hardware:
    """The machines of the command line. Raises ConfigError for impossible numbers."""
    if arguments.cpu and arguments.nics is not None:
        raise ConfigError("--nics belongs to --gpu; remove it: --cpu assumes 1 GB/s between ranks")
    usual = 1 if arguments.cpu else GPUS_PER_NODE
    per_node = usual if arguments.gpus_per_node is None else arguments.gpus_per_node
    # a network card per GPU, as in DGX machines
    nics = per_node if arguments.nics is None else arguments.nics
    check_least(
        ("--nodes", arguments.nodes, 1),
        ("--gpus-per-node", per_node, 1),
        ("--nics", nics, 1),
        ("--cores", arguments.cores, 1),
    )
    if not 0 <= arguments.price < 1e9:
        raise ConfigError(f"--price {arguments.price:g} is not a price; give 0 or more")
    return Hardware(
        device=None if arguments.cpu else GPUS[arguments.gpu], nodes=arguments.nodes,
        per_node=per_node, cores=arguments.cores, nics=nics,
    )  # fmt: skip


if __name__ == "__main__":
    run_command(main)
