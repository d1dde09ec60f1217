"""metrics.jsonl -> curves of bounded size that keep every spike.

A file of 500,000 lines is read line by line; of each field at most a few thousand points stay in
memory, among them the lowest and the highest of every stretch of steps.
"""

from __future__ import annotations

import json
import math
from calendar import timegm
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import strptime
from typing import Any

from pipeline.base.plots import Point
from pipeline.training.validation.before_after import GENERAL, OWN, change

MOST_POINTS = 4096
"""Points of a curve that are kept in memory."""
COLUMNS = 260
"""Columns of a plot; each shows the lowest and the highest value of its steps."""
MOST_VALUE = 1e15
"""Numbers from here on are damage."""
MOST_LINE = 1 << 20
"""Bytes of the longest line that is read."""
MOST_FIELDS = 512
"""Fields that are read; others are damage."""
NAN_SINCE = "nan since step "


@dataclass(slots=True)
class Curve:
    """One field over the steps of a run."""

    points: list[Point] = field(default_factory=list)
    last: float = math.nan
    _stretch: int = 1
    """Steps of which two points stay."""

    def add(self, step: int, value: float) -> None:
        """Add a point; when there are too many, the extremes of equal stretches of steps stay.

        Each stretch is two of the ones before, so extremes stay what they are; groups of points in
        place of steps would halve the earliest ones each time.
        """
        self.points.append((step, value))
        self.last = value
        if len(self.points) > MOST_POINTS:
            self._thin()
            while len(self.points) > MOST_POINTS // 2:
                self._stretch *= 2
                self._thin()

    def _thin(self) -> None:
        stretches: dict[int, list[Point]] = defaultdict(list)
        for point in self.points:
            stretches[point[0] // self._stretch].append(point)
        self.points = thin_points(self.points, [*stretches.values()])

    def columns(self, columns: int = COLUMNS) -> list[Point]:
        """At most two points for each of `columns` equal stretches of steps, and the ends."""
        if len(self.points) <= 2 * columns:
            return self.points
        points = sorted(self.points, key=lambda point: point[0])  # lines may be in any order
        first, last = points[0][0], points[-1][0]
        stretches: list[list[Point]] = [[] for _ in range(columns)]
        for point in points:
            place = (point[0] - first) * columns // max(1, last - first)
            stretches[min(columns - 1, place)].append(point)
        return thin_points(points, stretches)

    @property
    def lowest(self) -> Point:
        """The point with the lowest value."""
        return min(self.points, key=lambda point: point[1])

    @property
    def highest(self) -> Point:
        """The point with the highest value."""
        return max(self.points, key=lambda point: point[1])


def thin_points(points: Sequence[Point], stretches: Sequence[Sequence[Point]]) -> list[Point]:
    """The lowest and the highest point of each stretch in order of steps, and both ends."""
    kept = {points[0], points[-1]}
    for stretch in stretches:
        if stretch:
            kept |= {min(stretch, key=_value), max(stretch, key=_value)}
    return sorted(kept)


@dataclass(slots=True)
class RunCurves:
    """The content of a run's metrics."""

    curves: dict[str, Curve] = field(default_factory=dict)
    """Curves by field."""
    last: dict[str, Any] = field(default_factory=dict)
    """The last value of each field, text too; `nan since step 9` for values not finite."""
    phases: list[tuple[int, str]] = field(default_factory=list)
    """The last step before each change of the phase or the length of rows, and what follows."""
    times: list[tuple[int, int]] = field(default_factory=list)
    """Step and time in seconds since 1970 of some lines, the first and the last among them."""
    slowest: dict[str, int] = field(default_factory=dict)
    """Host -> lines in which it was the slowest."""
    lines: int = 0
    damaged: int = 0
    """Lines that cannot be read."""
    step_seconds: float = 0.0
    """Time in steps, from the first line to the last."""

    @property
    def numbers(self) -> dict[str, float]:
        """The last value of each field that is a number."""
        return {name: value for name, value in self.last.items() if not isinstance(value, str)}

    def is_nan(self, name: str) -> bool:
        """True if the last value of a field is not finite."""
        return str(self.last.get(name)).startswith(NAN_SINCE)

    def columns(self, name: str) -> list[Point]:
        """The points of a field's plot; none if it has no number."""
        return self.curves[name].columns() if name in self.curves else []

    def label(self, name: str, called: str) -> str:
        """The name of a field's curve, which ends where the values are not finite any more."""
        return f"{called}, {self.last[name]}" if self.is_nan(name) else called

    def change(self) -> str:
        """Held-out losses at step 0 and the last ones after it, in words; "" without these."""
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        for name, curve in self.curves.items():
            if name.startswith((OWN, GENERAL)):
                for step, value in (curve.points[0], curve.points[-1]):
                    (last if step else first).update({"step": step, name: value})
                if name in last and self.is_nan(name):
                    last[name] = math.nan
        return change(first, last)

    def step_at(self, time: int) -> int | None:
        """The last step that was made at a time; None before the first line."""
        return max((step for step, at in self.times if at <= time), default=None)


def read_curves(path: Path, last_step: float = math.inf) -> RunCurves:
    """The curves in a metrics.jsonl up to `last_step`; none if the file does not exist."""
    found = RunCurves()
    if not path.is_file():
        return found
    with path.open("rb") as file:
        while line := file.readline(MOST_LINE):  # a damaged file may be one endless line
            if not line.endswith(b"\n"):  # being written
                # more follows, so this line is not the last one, still being written
                found.damaged += bool(file.read(1))
                break
            content = _content(line)
            if content is None:
                found.damaged += 1
            elif content["step"] <= last_step:
                _add(found, content)
    return found


def _content(line: bytes) -> dict[str, Any] | None:
    """The object of a line with a step; None if it is damaged."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):  # nested too deeply
        return None
    if not isinstance(content, dict) or len(content) > MOST_FIELDS:
        return None
    step = content.get("step")
    # type() and not isinstance(): True is an int
    return content if type(step) is int and 0 <= step < MOST_VALUE else None


def _add(found: RunCurves, content: dict[str, Any]) -> None:
    step = content["step"]
    before = found.last.get("step", 0)
    phase = [content.get("phase"), content.get("sequence_length")]
    if before and "loss" in content:  # a line of step 0 only has a validation
        old = [found.last.get("phase"), found.last.get("sequence_length")]
        if old != phase:
            named = f"phase {phase[0]}" if phase[1] == old[1] else f"length {phase[1]}"
            found.phases.append((before, named[:40]))
    for name, value in content.items():
        if type(value) in (int, float) and abs(value) < MOST_VALUE:  # False for NaN
            if name != "step" and (name in found.curves or len(found.curves) < MOST_FIELDS):
                found.curves.setdefault(name, Curve()).add(step, float(value))
            found.last[name] = value
        elif isinstance(value, str):
            found.last[name] = value[:1000]
        elif value is None and not (_has_no_masks(name, content) or found.is_nan(name)):
            found.last[name] = f"{NAN_SINCE}{step:,}"
    seconds = content.get("step_seconds")
    if before and isinstance(seconds, int | float) and 0 <= seconds < MOST_VALUE:
        # the mean over the steps since the line before
        found.step_seconds += seconds * max(0, step - before)
    if isinstance(host := content.get("slowest_host"), str) and len(found.slowest) < MOST_FIELDS:
        found.slowest[host[:100]] = found.slowest.get(host[:100], 0) + 1
    if (time := parse_time(content.get("time"))) is not None:
        found.times.append((step, time))
        if len(found.times) > MOST_POINTS:
            found.times = found.times[::2] + found.times[-1:]
    found.lines += 1


def _has_no_masks(name: str, content: dict[str, Any]) -> bool:
    """True for a loss at [MASK] that is a mean over no position: that of all words is finite."""
    words = content.get(name.replace("mask_loss", "mlm_loss"))
    return "mask_loss" in name and words is not None


def parse_time(time: object) -> int | None:
    """Seconds since 1970 of a time such as `2026-01-31T23:59:59Z`; None for anything else."""
    try:
        return timegm(strptime(str(time), "%Y-%m-%dT%H:%M:%SZ"))  # mktime would take local time
    except ValueError:
        return None


def _value(point: Point) -> float:
    return point[1]
