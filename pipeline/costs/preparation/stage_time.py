"""The time that work takes on some workers, and what bounds it.

Work is done in stages, one after the other, and a stage in units of one worker each, the largest
first. A stage takes at least as long as its longest unit, with any number of workers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pipeline.base.durations import in_words

Stage = Literal["extract", "hold out", "prepare"]
STAGES: tuple[Stage, ...] = ("extract", "hold out", "prepare")
STARTUP_SECONDS = 3.0
"""Start of the command and its workers: imports, kernels, tokenizer."""
_MANY_UNITS = 100
_BOUND_BY_UNIT = 1.25
"""A stage that takes this many times as long as with units of any size is bound by a unit."""


@dataclass(frozen=True, slots=True)
class Work:
    """Units of work of equal size, which are not divided."""

    stage: Stage
    name: str
    """Name of the work, for messages."""
    seconds: float
    """CPU time of a unit."""
    count: float = 1.0


def stage_seconds(units: list[Work], workers: int) -> float:
    """Time of a stage: each worker takes the largest unit that is left."""
    # The last round is about a hundredth of the stage, so no queue is simulated.
    if sum(work.count for work in units) > _MANY_UNITS * workers:
        return max(*(work.seconds for work in units), cpu_seconds(units) / workers)
    busy = [0.0] * workers
    for work in sorted(units, key=lambda work: work.seconds, reverse=True):
        for _ in range(max(1, round(work.count))):
            heapq.heapreplace(busy, busy[0] + work.seconds)  # by the worker that is free first
    return max(busy)


def cpu_seconds(units: Iterable[Work]) -> float:
    """CPU time of all units."""
    return sum(work.seconds * work.count for work in units)


def describe_time(units: Iterable[Work], workers: int) -> str:
    """The time of all stages in words, and what bounds it."""
    units = list(units)
    spent, bound, worst = {}, "the cores", 0.0
    for stage in STAGES:
        mine = [unit for unit in units if unit.stage == stage]
        if not mine:
            continue
        spent[stage] = stage_seconds(mine, workers)
        divided = cpu_seconds(mine) / workers
        lost = spent[stage] - divided
        # Of two such stages, the one that loses more time.
        if lost > worst and spent[stage] > _BOUND_BY_UNIT * divided:
            longest = max(mine, key=lambda unit: unit.seconds)
            worst = lost
            bound = f"{longest.name}, which one worker does alone in {in_words(longest.seconds)}"
    total = STARTUP_SECONDS + sum(spent.values())
    steps = f" ({in_words(spent['extract'])} to extract)" if "extract" in spent else ""
    return (
        f"about {in_words(total)}{steps} for {workers:,} workers, if the "
        f"disks keep up; bound by {bound}"
    )
