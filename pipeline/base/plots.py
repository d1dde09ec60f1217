"""Line plots: as SVG inside a page, or as a PNG of its own.

In a page, colours come from the style sheet by class, so that they follow the reader's theme; each
curve has its own dashes, too, for print without colours. A PNG is shown where an SVG is not: by the
editors, terminals and chats that people look at a run's files with.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[int, float]
"""An optimizer step and a value."""
WIDTH, HEIGHT = 360, 200
"""In CSS pixels at the width of a phone; larger screens magnify it."""
PNG_WIDTH, PNG_HEIGHT, _PNG_HEAD = 560, 315, 34
"""Size of a PNG, which has more room, and the height of title and key."""
_PNG_PIXELS, _FINE = 800, 3
"""Width of a PNG in pixels. It is drawn _FINE times as large, since Pillow's lines have steps."""
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
_COLOURS = ("#1b5fa8", "#b8500b", "#00785a", "#9b3f86", "#6b5b00", "#a32638", "#3f6f7f", "#555555")
_IN_DARK = ("#79b0f2", "#f0a063", "#52c9a2", "#df94cc", "#d6c24f", "#f08a97", "#8fc4d4", "#b5b9c0")
_SOFT, _GRID = "#666666", "#dddddd"
"""Colours of text and of grid lines in a PNG, where curves have those of a light page."""


def _variables(colours: Sequence[str]) -> str:
    named = "; ".join(f"--s{number}: {colour}" for number, colour in enumerate(colours))
    return f":root {{ {named} }}"


STYLE = "\n".join(
    [
        _variables(_COLOURS),
        f"@media (prefers-color-scheme: dark) {{ {_variables(_IN_DARK)} }}",
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
            for number, dashes in enumerate(_DASHES)
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


@dataclass(frozen=True, slots=True)
class _Line:
    style: str
    places: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Dot:
    style: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class _Text:
    x: float
    y: float
    anchor: str
    content: str


@dataclass(frozen=True, slots=True)
class _Life:
    x: float
    y: float
    step: int


_ANCHORS = {"start": "l", "middle": "m", "end": "r"}
"""Anchors of texts in SVG -> in Pillow."""
_Shape = _Line | _Dot | _Text | _Life


def draw_plot(plot: Plot) -> str:
    """A figure with caption, key and picture; empty without points."""
    series = _drawn(plot)
    if not series:
        return ""
    frame = _frame(series, WIDTH, HEIGHT)
    scale = ", logarithmic" if frame.logarithmic else ""
    left_out = len(plot.series) - len(series)
    more = f" and {left_out} more" if left_out > 0 and len(series) == MOST_SERIES else ""
    keys = "".join(
        f'<span class="key"><svg viewBox="0 0 26 10"><path class="s{number}" d="M0 5H26"/></svg>'
        f"{escape(name[:MOST_NAME])}</span> "
        for number, (name, _) in enumerate(series)
    )
    label = f"{plot.title}: {', '.join(name for name, _ in series)}, over optimizer steps"
    parts = "".join(map(_as_svg, _shapes(frame, plot)))
    return (
        f'<figure><figcaption>{escape(plot.title)} <span class="soft">{escape(plot.unit)}{scale}'
        f'</span></figcaption><div class="keys">{keys}{more}</div>'
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{parts}</svg></figure>'
    )


def draw_png(plot: Plot) -> bytes:
    """A picture with title and key; empty without points."""
    from PIL import Image, ImageDraw, ImageFont  # only training installs it

    series = _drawn(plot)
    if not series:
        return b""
    frame = _frame(series, PNG_WIDTH, PNG_HEIGHT)
    height = PNG_HEIGHT + _PNG_HEAD
    image = Image.new("RGB", (PNG_WIDTH * _FINE, height * _FINE), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(10 * _FINE)
    colours = {f"s{number}": colour for number, colour in enumerate(_COLOURS)}
    colours |= {"grid": _GRID, "mark": _SOFT}

    def paint(shape: _Shape, down: float) -> None:
        def place(x: float, y: float) -> tuple[float, float]:
            return x * _FINE, (y + down) * _FINE

        match shape:
            case _Line(style, places):
                width = 1.4 if style.startswith("s") else 0.8
                ends = [place(*each) for each in places]
                pen.line(ends, colours[style], round(width * _FINE), joint="curve")
            case _Dot(style, x, y):
                pen.circle(place(x, y), 2 * _FINE, colours[style])
            case _Text(x, y, anchor, content):
                pen.text(place(x, y), content, _SOFT, font, f"{_ANCHORS[anchor]}s")
            case _Life(x, y):
                pen.polygon([place(x, y), place(x - 3, y + 6), place(x + 3, y + 6)], _SOFT)

    scale = ", logarithmic" if frame.logarithmic else ""
    paint(_Text(_LEFT, 12, "start", f"{plot.title}: {plot.unit}{scale}, over optimizer steps"), 0)
    x: float = _LEFT
    for number, (name, _) in enumerate(series):
        paint(_Line(f"s{number}", [(x, 25), (x + 20, 25)]), 0)
        paint(_Text(x + 25, 28.5, "start", name), 0)
        x += 40 + font.getlength(name) / _FINE
    for shape in _shapes(frame, plot):
        paint(shape, _PNG_HEAD)
    found = io.BytesIO()
    size = _PNG_PIXELS, round(_PNG_PIXELS * height / PNG_WIDTH)
    image.resize(size, Image.Resampling.LANCZOS).save(found, "PNG")
    return found.getvalue()


def _drawn(plot: Plot) -> list[tuple[str, Sequence[Point]]]:
    return [part for part in plot.series if part[1]][:MOST_SERIES]


def _shapes(frame: _Frame, plot: Plot) -> Iterator[_Shape]:
    """The shapes in the frame, from back to front."""
    yield from _axes(frame)
    yield from _marks(frame, plot)
    for number, (_, points) in enumerate(_drawn(plot)):
        places = [(frame.x(step), frame.y(value)) for step, value in points]
        if len(places) > 1:
            yield _Line(f"s{number}", places)
        if len(places) <= MOST_DOTS:
            for x, y in places:
                yield _Dot(f"s{number}", x, y)


def _as_svg(shape: _Shape) -> str:
    match shape:
        case _Line("grid" | "mark" as style, [(x1, y1), (x2, y2)]):
            return (
                f'<line class="{style}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'
            )
        case _Line(style, places):
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            return f'<path class="{style}" d="M{path}"/>'
        case _Dot(style, x, y):
            return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
        case _Text(x, y, anchor, content):
            return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
        case _Life(x, y, step):
            return (
                f'<path class="life" d="M{x:.1f} {y:.1f}l-3 6h6z"><title>started again after step '
                f"{step:,}</title></path>"
            )


@dataclass(frozen=True, slots=True)
class _Frame:
    width: int
    height: int
    first: int
    last: int
    low: float
    high: float
    logarithmic: bool

    @property
    def right(self) -> float:
        return self.width - _RIGHT

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM

    def x(self, step: float) -> float:
        share = (step - self.first) / max(1, self.last - self.first)
        return _LEFT + share * (self.right - _LEFT)

    def y(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log10(number) for number in (value, low, high))
        share = (value - low) / (high - low)
        return self.bottom - share * (self.bottom - _TOP)


def _frame(series: Sequence[tuple[str, Sequence[Point]]], width: int, height: int) -> _Frame:
    """The axes that all points fit in."""
    steps, values = zip(*(point for _, part in series for point in part), strict=True)
    logarithmic = _is_logarithmic(values)
    ends = _range(values, logarithmic)
    # A run's axis starts at step 0, so a plot of step 0 only would have no width.
    return _Frame(width, height, min(0, *steps), max(*steps, 1), *ends, logarithmic)


def _is_logarithmic(values: Sequence[float]) -> bool:
    middle = sorted(values)[len(values) // 2]
    return min(values) > 0 and max(values) > LOGARITHMIC * middle


def _range(values: Sequence[float], logarithmic: bool) -> tuple[float, float]:
    """Ends of the axis, with some room around the values."""
    low, high = min(values), max(values)
    if logarithmic:
        return low / 1.1, high * 1.1
    # Never 0: equal values need a height, by which `y` divides.
    room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    # From 0, unless the values are far above it for their spread.
    return (low - room if low < 0 or low > room else 0.0), high + room


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two ends, at most `most` and one."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    # 0.999 forgives the rounding of the logarithm, which would skip to the next width.
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    # 1e-9: an end that is a tick itself stays one.
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


def _axes(frame: _Frame) -> Iterator[_Shape]:
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
        yield _Line("grid", [(_LEFT, y), (frame.right, y)])
        yield _Text(_LEFT - 5, y + 3.5, "end", short_number(level))
    for step in ticks(frame.first, frame.last, 4):
        x = frame.x(step)
        anchor = "end" if x > frame.right - 12 else "middle"  # else it sticks out
        yield _Text(x, frame.height - 12, anchor, short_number(step))


def _marks(frame: _Frame, plot: Plot) -> Iterator[_Shape]:
    for number, (step, name) in enumerate(plot.marks):
        # Three heights in turn, so that labels of close phases do not overlap.
        x, y = frame.x(step), _TOP + 9 + 11 * (number % 3)
        anchor, gap = ("end", -3) if x > frame.width * 0.7 else ("start", 3)
        yield _Line("mark", [(x, _TOP), (x, frame.bottom)])
        yield _Text(x + gap, y, anchor, name[:24])
    for step in plot.lives:
        yield _Life(frame.x(step), frame.bottom, step)
