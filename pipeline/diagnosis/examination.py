"""The doctor's examination: each rank on its own node, then all ranks against each other."""

from __future__ import annotations

import argparse
import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.base.command_line import cores
from pipeline.config.run import Run
from pipeline.diagnosis.checks import WARN, Check, judge, merge
from pipeline.diagnosis.devices import compare_devices, find_device
from pipeline.diagnosis.exchange import Exchange, check_clocks
from pipeline.diagnosis.host import check_host, find_interfaces
from pipeline.diagnosis.shard_checks import (
    QUICK_SECONDS,
    check_shard_files,
    check_staging,
    compare_fingerprints,
)
from pipeline.diagnosis.shared_directory import check_output_directory, checkpoint_bytes
from pipeline.diagnosis.signals import SignalWatch
from pipeline.diagnosis.versions import compare_versions, find_versions
from pipeline.released.choice import Recipe, head_advice


def examine(
    ranks: Exchange, watch: SignalWatch, arguments: argparse.Namespace, chosen: Recipe | None
) -> tuple[list[dict[str, Any]], list[Check]]:
    """The rank table and the checks, on rank 0. Collective."""
    placement = ranks.placement
    settings = chosen.run if chosen else None
    # before the checks, which keep ranks busy for different times
    offsets = ranks.clock_offsets()
    row, versions, own = _look_here(ranks, arguments, settings)
    rows = ranks.gather(row)
    if arguments.output:
        one = checkpoint_bytes(settings) if settings else 0.0
        most = settings.checkpoint.most_kept(settings.steps) if settings else 1
        own += check_output_directory(ranks, arguments.output, one, most * one)
    shards, prints = check_shard_files(arguments.data, placement, settings, QUICK_SECONDS)
    own += shards
    if chosen and chosen.model:
        own.append(_check_heads(chosen))
    if arguments.stage and placement.is_first_on_node:
        own += check_staging(arguments.data, arguments.stage)
    own.append(watch.check(ranks))
    if arguments.full:
        from pipeline.diagnosis import rates  # torch: seconds that the quick form does without

        own += rates.measure_rates(ranks, rows, versions)
    answers = ranks.gather([versions, prints, [asdict(check) for check in own]])
    # gathered on rank 0; elsewhere there is nothing to merge
    checks = merge([[_read_check(item) for item in answer[2]] for answer in answers])
    if answers:
        for entry, offset in zip(rows, offsets):
            entry["clock"] = f"{offset:+.3f} s" if len(rows) > 1 else ""
        checks += compare_fingerprints([answer[1] for answer in answers])
        checks.append(compare_versions([answer[0] for answer in answers]))
        checks += check_clocks(offsets) + compare_devices(rows, is_training=settings is not None)
    return rows, checks


def _look_here(
    ranks: Exchange, arguments: argparse.Namespace, settings: Run | None
) -> tuple[dict[str, Any], dict[str, str], list[Check]]:
    """This rank's row, its versions, and the checks that need no other rank."""
    placement = ranks.placement
    device, checks = find_device(
        placement.local_rank,
        placement.local_size,
        is_training=settings is not None,
        needs_gpu=settings is not None and settings.precision == "bf16",
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
    """Check that the model that a recipe continues has all heads that it trains."""
    lacking, _, remedy = head_advice(chosen).rpartition("; ")  # what is lacking; what to do
    value = lacking or f"all that objective.kind={chosen.run.objective.kind} trains"
    return judge("heads", value, WARN if lacking else "", remedy=remedy)


def _read_check(item: dict[str, Any]) -> Check:
    # JSON turned the tuple into a list
    return Check(**item | {"ranks": tuple(item["ranks"])})
