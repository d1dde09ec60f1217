"""Which rank holds the others up: all ranks wait for the slowest one, so their steps take as long.

What differs is the forward pass, in which a rank waits for nobody (at ZeRO stage 3 for weights,
so there a slow rank shows less). Rank 0 compares its time over ranks whenever metrics are written,
and names a host that is slower than the rest for long in RUN/.slow-nodes, which batch scripts read:
they leave it out when the job is started again.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipeline.errors import DataError
from pipeline.files import write_whole
from pipeline.training.run_directory.layout import SLOW_NODES

SLOW = 1.2
"""Times the median rank's forward pass: at this, a sixth of every other GPU's time is lost."""
IN_A_ROW = 10
"""Reports that must agree: a neighbour's burst or a warm-up is over by then."""


class ForwardClock:
    """Seconds of forward passes on one device, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, ...]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens inside."""
        if not self.cuda:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        pair = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        pair[0].record()
        yield
        pair[1].record()
        self._events.append(pair)

    def take(self) -> float:
        """Seconds since the last call; the device must have finished them."""
        seconds = self._seconds + sum(a.elapsed_time(b) for a, b in self._events) / 1000
        self._seconds = 0.0
        self._events.clear()
        return float(seconds)


@dataclass(slots=True)
class Stragglers:
    """How fast this rank is, and what rank 0 knows of the others."""

    hosts: Sequence[str]
    """Of every rank."""
    run: Path
    clock: ForwardClock
    """Of this rank's forward passes."""
    slow_reports: dict[str, int] = field(default_factory=dict)
    """Per host: reports in a row in which it was slow."""

    def report(self, seconds: Sequence[float]) -> dict[str, float | str]:
        """Fields of metrics about the slowest rank; seconds: of every rank's forward passes."""
        if len(seconds) < 2:
            return {}
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        ratio = seconds[slowest] / max(statistics.median_low(seconds), 1e-9)
        return {
            "slowest_rank": slowest,
            "slowest_host": self.hosts[slowest],
            "slowest_ratio": ratio,
        }

    def warning(self, seconds: Sequence[float]) -> str:
        """What to say about a host that has been slow for long, once; and write it down."""
        if len(set(self.hosts)) < 2:
            return ""
        usual = statistics.median_low(seconds)
        slow = {self.hosts[rank] for rank, own in enumerate(seconds) if own > SLOW * usual}
        self.slow_reports = {host: self.slow_reports.get(host, 0) + 1 for host in slow}
        if IN_A_ROW not in self.slow_reports.values():
            return ""
        named = sorted(host for host, times in self.slow_reports.items() if times >= IN_A_ROW)
        unwritten = ""
        try:
            write_whole(self.run / SLOW_NODES, "".join(f"{host}\n" for host in named).encode())
        except DataError as error:  # a note is not worth a run
            unwritten = f"; {error}"
        return (
            f"slow for {IN_A_ROW} reports: {', '.join(named)} (forward pass more than {SLOW} x the "
            "median rank's); all ranks wait for it, look at its clocks, or leave it out"
            f"{unwritten}"
        )


def host_name() -> str:
    """This host as Slurm calls it, or as it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
