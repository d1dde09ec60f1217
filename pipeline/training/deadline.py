"""`--hours`: a run's share of wall time -> when to stop, so that it is saved before the end.

Whoever asks `reached` does so between steps. The time until it asks again, and the time that a
checkpoint takes, are measured as the run goes.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

LEAVING_SECONDS = 10.0
"""For parting from the other ranks and ending Python."""


class Deadline:
    """Counts from the start of the process, imports included."""

    def __init__(self, hours: float, save_seconds: Callable[[], float]) -> None:
        """hours: infinity for none; save_seconds: what a checkpoint takes, by what is known now."""
        self._save_seconds = save_seconds
        self._asked_at = math.inf
        self._gaps: deque[float] = deque(maxlen=50)
        left = math.inf if math.isinf(hours) else hours * 3600 - process_seconds()
        self._ends_at = time.monotonic() + left

    def reached(self) -> bool:
        """Whether another step could make it too late to save."""
        now = time.monotonic()
        self._gaps.append(max(0.0, now - self._asked_at))
        self._asked_at = now
        # An answer is used when the step under way is made: one step, and one for a slower one.
        needed = 2 * max(self._gaps) + 2 * self._save_seconds() + LEAVING_SECONDS
        return now + needed > self._ends_at


def process_seconds() -> float:
    """How long this process has existed."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
