"""Rates of matrix products and all-reduces, for the full form: the only one with torch.

Every rank takes part in every measurement at the same time, as in training.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pipeline.base.command_line import cores
from pipeline.base.errors import DataError
from pipeline.costs.device_rates import CPU, rates_of
from pipeline.costs.site_rates import MachineRates, add_rate, machine_key, site_file
from pipeline.diagnosis.checks import FAIL, WARN, Check, judge, skip
from pipeline.diagnosis.exchange import Exchange
from pipeline.training.run_directory.history import now_utc

Pair = tuple[int, int]

SECONDS = 120.0
"""Limit for one collective, with NCCL's connections."""
_REPEATS = 3
_SIDE = {"cuda": 8192, "cpu": 1024}
"""Width of the square matrices: tens of milliseconds on a GPU, and on a core."""
_BUCKET = {"cuda": 50_000_000, "cpu": 4_000_000}
"""Elements that ranks add up: those of ds_configs/zero2.json and zero3.json, fewer on CPUs."""
_MESSAGE = {"cuda": 1 << 26, "cpu": 1 << 22}
"""Bytes that the two nodes of a pair send each other."""
_BEHIND = {"cuda": 0.95, "cpu": 0.5}
"""Part of the median product rate below which a device is an outlier; cores are shared."""
SLOW_PAIR = 0.5
"""Part of the fastest pair's rate below which a pair is slow."""
SLOWEST_LINK = 0.1e9
"""Bytes per second that any network for training exceeds: gigabit Ethernet has 0.125e9."""


def measure_rates(
    ranks: Exchange, table: Sequence[Mapping[str, Any]], versions: Mapping[str, str]
) -> list[Check]:
    """Rates of products, all-reduces and pairs of nodes, on rank 0. Collective.

    table: the rank table, empty but on rank 0. If nothing is wrong, the rates go to $TENFOLD_ROOT's
    site.json, with these versions.
    """
    place = ranks.placement
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    checks = _check_kernels() if kind == "cuda" else []
    kinds = ranks.broadcast(sorted(set(ranks.gather(kind))))
    if len(kinds) > 1:
        why = "some ranks see a GPU and some do not"
        return [*checks, judge("products", why, FAIL, "alike", "look at the rank table")]
    device = torch.device(f"cuda:{place.local_rank}" if kind == "cuda" else "cpu")
    names = [f"{row['host']}.{row['local_rank']}" for row in table]
    # all at once, as in training, where ranks share memory and power
    ranks.barrier()
    products = ranks.gather(_product_rate(device))
    checks += compare_products(products, names, kind) if names else []
    unit = statistics.median(products) / used_cores(place.local_size, kind) if products else 0.0
    if place.world_size == 1:
        checks += [skip("all-reduce", "one rank"), skip("pairs of nodes", "one rank")]
        return [*checks, *_keep(checks, table, device, (unit, 0.0), versions)]
    chosen = ranks.broadcast([r for r, first in enumerate(_firsts(ranks)) if first])
    _join(ranks, device)
    try:
        bandwidth, check = _check_all_reduce(place.world_size, device)
        checks.append(check)
        found = ranks.gather(_pair_rates(place.rank, chosen, device))
    finally:
        dist.destroy_process_group()
    pairs = {(a, b): rate for answer in found for a, b, rate in answer}
    if not names:
        return []
    checks += compare_pairs(pairs, names)
    return [*checks, *_keep(checks, table, device, (unit, bandwidth), versions)]


def used_cores(local_size: int, kind: str) -> float:
    """Cores that a rank multiplies with: its own, or its part of the node's; 1 with a GPU."""
    mine = cores()
    own = mine / local_size if mine == (os.cpu_count() or 1) else mine
    return 1.0 if kind == "cuda" else max(1.0, min(float(torch.get_num_threads()), own))


def _keep(
    checks: Sequence[Check],
    table: Sequence[Mapping[str, Any]],
    device: torch.device,
    rates: tuple[float, float],
    versions: Mapping[str, str],
) -> list[Check]:
    """Write the rates for the next plan, unless something is wrong with them or the GPU is unknown.

    rates: FLOPs per second of a GPU or core; bytes per second of an all-reduce, 0 for one rank.
    """
    name, file = "site's rates", site_file()
    hosts = Counter(row["host"] for row in table)
    gpu = rates_of(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    if file is None:
        return [skip(name, "TENFOLD_ROOT is not set")]
    if len(set(hosts.values())) > 1 or any(check.status in (WARN, FAIL) for check in checks):
        return [skip(name, "not kept: rates differ among these ranks")]
    if device.type == "cuda" and gpu is None:
        return [skip(name, "not kept: pipeline.plan does not know this GPU")]
    key = machine_key(gpu.name if gpu else CPU, len(hosts), len(table) // len(hosts))
    rate = MachineRates(
        flops=rates[0], bus_bandwidth=rates[1], ranks=len(table),
        measured_at=now_utc(), versions=versions,
    )  # fmt: skip
    try:
        add_rate(file, key, rate)
    except DataError as error:
        return [judge(name, str(error), WARN, "kept", "the next plan uses published rates")]
    return [judge(name, f"{key} in {file}", "")]


def compare_products(rates: Sequence[float], names: Sequence[str], kind: str) -> list[Check]:
    """Check that no device multiplies much slower than most. rates: FLOPs per second by rank."""
    middle = statistics.median(rates)
    behind = [r for r, rate in enumerate(rates) if rate < _BEHIND[kind] * middle]
    value = f"{middle / 1e12:.3g} TFLOP/s"
    if behind:
        slowest = min(behind, key=rates.__getitem__)
        value += f" in the middle, {names[slowest]} {rates[slowest] / 1e12:.3g}"
    check = judge(
        "products", value, WARN if behind else "", f"at least {_BEHIND[kind]:.0%} of the middle",
        "check the clocks, power and other jobs of that node, or exclude it",
    )  # fmt: skip
    return [check]


def compare_pairs(rates: Mapping[Pair, float], names: Sequence[str]) -> list[Check]:
    """Check that no two nodes are badly connected. rates: bytes per second each way, by ranks."""
    (first, second), slowest = min(rates.items(), key=lambda item: item[1])
    fastest = max(rates.values())
    needed = max(SLOW_PAIR * fastest, SLOWEST_LINK)
    value = f"slowest {names[first]} to {names[second]}, {slowest / 1e9:.3g} GB/s each way"
    if len(rates) > 1:
        value += f", fastest {fastest / 1e9:.3g}"
    return [
        judge("pairs of nodes", value, WARN if slowest < needed else "",
              f"at least {needed / 1e9:.3g} GB/s",
              "check cable, port and NCCL_SOCKET_IFNAME of these nodes, or exclude one")
    ]  # fmt: skip


def rounds(ranks: Sequence[int]) -> Iterator[list[Pair]]:
    """All pairs in rounds in which no rank is in two pairs (the circle method of tournaments)."""
    # the rank that meets None has the round off
    circle: list[int | None] = [*ranks, *([None] if len(ranks) % 2 else [])]
    for _ in range(len(circle) - 1):
        facing = zip(circle[: len(circle) // 2], reversed(circle))
        yield [(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None]
        # the first stays, all others move on by one
        circle.insert(1, circle.pop())


def supports(capability: tuple[int, int], built: Sequence[str]) -> bool:
    """True if a build of torch runs on a GPU of this compute capability.

    built: `torch.cuda.get_arch_list()`. Code for sm_80 runs on 8.x from 8.0 on; PTX on all later.
    """
    major, minor = capability
    for name in built:
        what, _, number = name.partition("_")
        # without a letter, as in sm_90a
        version = divmod(int(number.rstrip("abcdefghijklmnopqrstuvwxyz")), 10)
        if version <= (major, minor) and (what == "compute" or version[0] == major):
            return True
    return False


def _check_kernels() -> list[Check]:
    capability, built = torch.cuda.get_device_capability(), torch.cuda.get_arch_list()
    value = f"compute capability {'.'.join(map(str, capability))}, torch has {' '.join(built)}"
    wrong = "" if supports(capability, built) else FAIL
    return [judge("torch's kernels", value, wrong, "among them", "install another build of torch")]


def _firsts(ranks: Exchange) -> list[bool]:
    """For each rank, True if it stands for its node in pairs; all ranks do if there is one node."""
    first = ranks.gather(ranks.placement.is_first_on_node)
    return first if sum(first) > 1 else [True] * len(first)


def _join(ranks: Exchange, device: torch.device) -> None:
    """Start torch's process group; its port travels through the doctor's own connections."""
    place, wait = ranks.placement, timedelta(seconds=SECONDS)
    store = None
    if place.rank == 0:  # 0: any free port
        store = TCPStore(
            place.address, 0, place.world_size, is_master=True, timeout=wait, wait_for_workers=False
        )
    port = ranks.broadcast(store.port if store else None)
    store = store or TCPStore(place.address, port, place.world_size, timeout=wait)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store, rank=place.rank, world_size=place.world_size, timeout=wait,
    )  # fmt: skip


def _product_rate(device: torch.device) -> float:
    """FLOPs per second of a matrix product: bf16 on a GPU, fp32 on a CPU."""
    side = _SIDE[device.type]
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right = (torch.ones(side, side, device=device, dtype=kind) for _ in range(2))
    return 2 * side**3 / _fastest(lambda: torch.mm(left, right), device)


def _check_all_reduce(ranks: int, device: torch.device) -> tuple[float, Check]:
    """The rate of an all-reduce. Bus bandwidth: what it would be with one ring (nccl-tests)."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    bucket = torch.zeros(_BUCKET[device.type], dtype=kind, device=device)
    seconds = _fastest(lambda: dist.all_reduce(bucket), device)
    # 2 (n - 1) / n: what each rank sends, in buckets
    rate = bucket.nbytes / seconds * 2 * (ranks - 1) / ranks
    value = f"bus bandwidth {rate / 1e9:.3g} GB/s for {bucket.nbytes / 1e6:,.0f} MB"
    return rate, judge("all-reduce", value, "")


def _pair_rates(rank: int, chosen: Sequence[int], device: torch.device) -> list[list[float]]:
    """[first, second, bytes per second each way] of the pairs whose first is this rank."""
    found: list[list[float]] = []
    size = _MESSAGE[device.type]
    outgoing, incoming = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    for pairs in rounds(chosen):
        dist.barrier()  # a late pair would share links with the next round
        for pair in pairs:
            if rank in pair:
                other = pair[1] if rank == pair[0] else pair[0]
                rate = size / _fastest(partial(_swap, outgoing, incoming, other), device)
                if rank == pair[0]:
                    found.append([*pair, rate])
    return found


def _swap(outgoing: torch.Tensor, incoming: torch.Tensor, other: int) -> None:
    # both at once: two sends that wait for their receives would never end
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, outgoing, other), dist.P2POp(dist.irecv, incoming, other)]
    )
    for work in works:
        work.wait()


def _fastest(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few calls, after one to warm up."""
    seconds = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        call()
        if device.type == "cuda":  # calls only queue work
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
