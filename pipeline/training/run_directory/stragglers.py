"""Finds the rank that slows the others down. All ranks wait for the slowest one in every step.

The time of the forward pass shows it, because a rank does not wait for others there (at ZeRO stage
3 it waits for weights, so a slow rank shows less). Rank 0 compares that time over ranks whenever it
writes metrics. It writes a host that stays slower than the rest into RUN/.slow-nodes; batch scripts
exclude these hosts when they start the job again.
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

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.training.run_directory.layout import SLOW_NODES

SLOW = 1.2
"""Multiple of the median rank's forward pass; it costs a sixth of every other GPU's time."""
IN_A_ROW = 10
"""Consecutive reports needed: a short disturbance or a warm-up is over by then."""


class ForwardClock:
    """Measures the forward passes on one device, without waiting for the device."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, ...]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the time inside."""
        if not self.cuda:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        pair = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        pair[0].record()
        yield
        pair[1].record()  # read in `take`, once the device has passed both
        self._events.append(pair)

    def take(self) -> float:
        """Seconds measured since the last call; the device must have finished these passes."""
        seconds = self._seconds + sum(a.elapsed_time(b) for a, b in self._events) / 1000
        self._seconds = 0.0
        self._events.clear()
        return float(seconds)


@dataclass(slots=True)
class Stragglers:
    """The speed of this rank, and on rank 0 of all ranks."""

    hosts: Sequence[str]
    """The host of every rank."""
    run: Path
    clock: ForwardClock
    """The clock of this rank's forward passes."""
    slow_reports: dict[str, int] = field(default_factory=dict)
    """For each host, the consecutive reports in which it was slow."""

    def report(self, seconds: Sequence[float]) -> dict[str, float | str]:
        """Fields of metrics about the slowest rank; seconds: forward passes of every rank."""
        if len(seconds) < 2:
            return {}
        slowest = max(range(len(seconds)), key=seconds.__getitem__)
        # Of two ranks the lower is the median, or the slower one would be compared with itself.
        ratio = seconds[slowest] / max(statistics.median_low(seconds), 1e-9)
        return {
            "slowest_rank": slowest,
            "slowest_host": self.hosts[slowest],
            "slowest_ratio": ratio,
        }

    def warning(self, seconds: Sequence[float]) -> str:
        """A warning, given once, about hosts that stay slow; also writes RUN/.slow-nodes."""
        if len(set(self.hosts)) < 2:
            return ""
        usual = statistics.median_low(seconds)
        slow = {self.hosts[rank] for rank, own in enumerate(seconds) if own > SLOW * usual}
        # A host that is not slow now is dropped, and starts again at 0.
        self.slow_reports = {host: self.slow_reports.get(host, 0) + 1 for host in slow}
        # Equal, not above: a host is reported once.
        if IN_A_ROW not in self.slow_reports.values():
            return ""
        named = sorted(host for host, times in self.slow_reports.items() if times >= IN_A_ROW)
        unwritten = ""
        try:
            write_whole(self.run / SLOW_NODES, "".join(f"{host}\n" for host in named).encode())
        except DataError as error:  # the run is worth more than the note
            unwritten = f"; {error}"
        return (
            f"slow for {IN_A_ROW} reports: {', '.join(named)} (forward pass more than {SLOW} x the "
            "median rank's); all ranks wait for it, check its clock rates or exclude it"
            f"{unwritten}"
        )


def host_name() -> str:
    """This host's name in Slurm, or else its own host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
