"""Line plots as inline SVG: readable on a phone, on paper, in light and in dark.

Colours come from the page's style sheet by class, so that they follow the reader's theme; each
curve has its own dashes, too, for print without colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipeline.reporting.curves import Point

WIDTH, HEIGHT = 360, 200
"""In CSS pixels at the width of a phone; larger screens magnify it."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 26
MOST_NAME = 40
"""Characters of a curve's name in the key, which is not broken into lines."""
MOST_SERIES = 8
"""Styles of curves, s0 to s7."""
MOST_DOTS = 40
"""Points of a curve that are shown as such, too."""
LOGARITHMIC = 30
"""A positive curve whose highest value is that many times its median gets a logarithmic axis."""
_DASHES = ("", "5 2", "2 2", "7 2 2 2", "1 2", "9 3", "4 4", "6 1")
STYLE = "\n".join(
    [
        ":root { --s0: #1b5fa8; --s1: #b8500b; --s2: #00785a; --s3: #9b3f86; --s4: #6b5b00;",
        "  --s5: #a32638; --s6: #3f6f7f; --s7: #555555 }",
        "@media (prefers-color-scheme: dark) { :root { --s0: #79b0f2; --s1: #f0a063;",
        "  --s2: #52c9a2; --s3: #df94cc; --s4: #d6c24f; --s5: #f08a97; --s6: #8fc4d4;",
        "  --s7: #b5b9c0 } }",
        "svg.plot { display: block; width: 100%; height: auto }",
        "svg.plot text { font: 10px system-ui, sans-serif; fill: var(--soft) }",
        "svg.plot .grid { stroke: var(--line); stroke-width: 1 }",
        "svg.plot .mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3 }",
        "svg.plot .life { fill: var(--soft) }",
        "svg.plot path { stroke-linejoin: round }",
        "svg.plot circle { stroke-dasharray: none }",
        ".key { white-space: nowrap; margin-right: .6rem }",
        "figure { margin: 0; min-width: 0 }",
        "figcaption { font-weight: 600; overflow-wrap: anywhere }",
        ".keys { font-size: .85rem; overflow-wrap: anywhere }",
        ".keys svg { width: 1.6rem; height: .6rem; margin: 0 .3rem 0 0 }",
        ".plots { display: grid; gap: 1.2rem 2rem;",
        "  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)) }",
        *(
            f".s{number} {{ stroke: var(--s{number}); fill: none; stroke-width: 1.4;"
            f"{f' stroke-dasharray: {dashes}' if dashes else ''} }}"
            for number, dashes in enumerate(
                ["", "5 2", "2 2", "7 2 2 2", "1 2", "9 3", "4 4", "6 1"]
            )
        ),
        "@media print { figure { break-inside: avoid } }",
        "",
    ]
)


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over optimizer steps in one frame."""

    title: str
    unit: str
    series: Sequence[tuple[str, Sequence[Point]]]
    """Name and points of each curve; at most MOST_SERIES are drawn."""
    marks: Sequence[tuple[int, str]] = ()
    """Steps with a dashed line and its label: phases."""
    lives: Sequence[int] = ()
    """Steps at which the run was started again: triangles on the axis."""


def draw(plot: Plot) -> str:
    """A figure with caption, key and picture."""
    series = [part for part in plot.series if part[1]][:MOST_SERIES]
    points = [point for _, part in series for point in part]
    if not points:
        return ""
    steps, values = zip(*points, strict=True)
    logarithmic = _is_logarithmic(values)
    frame = _Frame(min(0, *steps), max(*steps, 1), *_range(values, logarithmic), logarithmic)
    parts = [*_axes(frame), *_marks(frame, plot)]
    for number, (_, part) in enumerate(series):
        if len(part) > 1:
            parts.append(f'<path class="s{number}" d="{_path(frame, part)}"/>')
        if len(part) <= MOST_DOTS:
            parts += [
                f'<circle class="s{number}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2"/>'
                for x, y in part
            ]
    scale = ", logarithmic" if logarithmic else ""
    left_out = len(plot.series) - len(series)
    more = f" and {left_out} more" if left_out > 0 and len(series) == MOST_SERIES else ""
    keys = "".join(
        f'<span class="key"><svg viewBox="0 0 26 10"><path class="s{number}" d="M0 5H26"/></svg>'
        f"{escape(name[:MOST_NAME])}</span> "
        for number, (name, _) in enumerate(series)
    )
    label = f"{plot.title}: {', '.join(name for name, _ in series)}, over optimizer steps"
    return (
        f'<figure><figcaption>{escape(plot.title)} <span class="soft">{escape(plot.unit)}{scale}'
        f'</span></figcaption><div class="keys">{keys}{more}</div>'
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg></figure>'
    )


@dataclass(frozen=True, slots=True)
class _Frame:
    first: int
    last: int
    low: float
    high: float
    logarithmic: bool

    def x(self, step: float) -> float:
        share = (step - self.first) / max(1, self.last - self.first)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(number) for number in (value, low, high))
        share = (value - low) / (high - low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _is_logarithmic(values: Sequence[float]) -> bool:
    middle = sorted(values)[len(values) // 2]
    return min(values) > 0 and max(values) > LOGARITHMIC * middle


def _range(values: Sequence[float], logarithmic: bool) -> tuple[float, float]:
    """Ends of the axis, with some room around the values."""
    low, high = min(values), max(values)
    if logarithmic:
        return low / 1.1, high * 1.1
    room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    return (low - room if low < 0 or low > room else 0.0), high + room


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two ends, at most `most` and one."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / width - 1e-9)
    return [number * width for number in range(first, math.floor(high / width + 1e-9) + 1)]


def short_number(value: float) -> str:
    """`1.5k`, `20M`, `0.001`: at most six characters."""
    size = abs(value)
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= limit:
            return f"{value / limit:.4g}"[:6].rstrip(".") + letter
    if size and size < 1e-3:
        digits, _, power = f"{value:.1e}".partition("e")
        return f"{digits.removesuffix('.0')}e{int(power)}"
    return f"{value:.4g}"


def _axes(frame: _Frame) -> list[str]:
    parts = []
    if frame.logarithmic:
        low, high = math.log10(frame.low), math.log10(frame.high)
        whole = [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
        levels = (
            whole[:: 1 + len(whole) // 6]
            if len(whole) > 1
            else [10**power for power in ticks(low, high, 4)]
        )
    else:
        levels = ticks(frame.low, frame.high)
    for level in levels:
        y = frame.y(level)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(_LEFT - 5, y + 3.5, "end", short_number(level)))
    for step in ticks(frame.first, frame.last, 4):
        x = frame.x(step)
        anchor = "end" if x > WIDTH - _RIGHT - 12 else "middle"
        parts.append(_text(x, HEIGHT - 12, anchor, short_number(step)))
    return parts


def _marks(frame: _Frame, plot: Plot) -> list[str]:
    parts = []
    for number, (step, name) in enumerate(plot.marks):
        x, y = frame.x(step), _TOP + 9 + 11 * (number % 3)
        anchor, gap = ("end", -3) if x > WIDTH * 0.7 else ("start", 3)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
        )
        parts.append(_text(x + gap, y, anchor, name[:24]))
    base = HEIGHT - _BOTTOM
    for step in plot.lives:
        x = frame.x(step)
        parts.append(
            f'<path class="life" d="M{x:.1f} {base}l-3 6h6z"><title>started again after step '
            f"{step:,}</title></path>"
        )
    return parts


def _path(frame: _Frame, points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{frame.x(step):.1f} {frame.y(value):.1f}" for step, value in points)


def _text(x: float, y: float, anchor: str, content: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
