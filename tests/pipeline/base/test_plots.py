"""Plots hold their curves, and nothing that a stranger could inject."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from pipeline.base.plots import (
    HEIGHT,
    MOST_SERIES,
    STYLE,
    WIDTH,
    Plot,
    draw_plot,
    draw_png,
    short_number,
    ticks,
)


def picture(figure: str) -> ElementTree.Element:
    return ElementTree.fromstring(re.findall(r'<svg class="plot".*</svg>', figure)[0])


def test_curves_are_inside_the_frame() -> None:
    series = [("a", [(0, 1.0), (50, -3.5), (100, 2.0)]), ("b", [(7, 1.0)])]
    figure = draw_plot(Plot("Loss", "nats", series, marks=[(50, "phase 2")], lives=[70]))
    places = [
        tuple(map(float, place.split()))
        for path in picture(figure).iter("path")
        if path.get("class") in ("s0", "s1")
        for place in path.get("d", "").removeprefix("M").split("L")
    ]
    assert len(places) == 3
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    dots = [dot.get("class") for dot in picture(figure).iter("circle")]
    assert dots == ["s0"] * 3 + ["s1"]  # a lone point has ink too
    words = [text.text for text in picture(figure).iter("text")]
    assert "phase 2" in words and "100" in words
    assert "started again after step 70" in figure


def test_names_are_escaped_and_few_curves_are_drawn() -> None:
    evil = "<script>alert(1)</script>\"'"
    figure = draw_plot(Plot(evil, evil, [(evil, [(1, 1.0), (2, 2.0)])] * 11, marks=[(1, evil)]))
    assert "<script" not in figure
    assert f's{MOST_SERIES}"' not in figure and "and 3 more" in figure
    picture(figure)


def test_a_spike_gets_a_logarithmic_axis() -> None:
    quiet = [(step, 1.0 + step % 2) for step in range(50)]
    assert "logarithmic" not in draw_plot(Plot("x", "", [("a", quiet)]))
    assert "logarithmic" in draw_plot(Plot("x", "", [("a", [*quiet, (50, 1e6)])]))
    assert "logarithmic" not in draw_plot(Plot("x", "", [("a", [*quiet, (50, 1e6), (51, -1.0)])]))


def test_constant_curves_are_drawn_and_no_points_draw_nothing() -> None:
    for value in (0.0, -2.0, 3e-9, 1e14):
        assert "nan" not in draw_plot(Plot("x", "", [("a", [(1, value), (2, value)])]))
    empty = Plot("x", "", [("a", [])])
    assert draw_plot(empty) == "" and draw_png(empty) == b""


def test_a_png_has_each_curve_in_its_colour() -> None:
    series = [("one", [(0, 1.0), (100, 2.0)]), ("two", [(step, 1.5) for step in range(100)])]
    found = draw_png(Plot("run", "nats", series, marks=[(50, "phase 2")], lives=[70]))
    image = Image.open(io.BytesIO(found))
    assert (image.format, image.size, image.mode) == ("PNG", (800, 499), "RGB")
    pixels = np.asarray(image).astype(int).reshape(-1, 3)
    assert (pixels == 255).all(1).mean() > 0.8
    for colour in ((0x1B, 0x5F, 0xA8), (0xB8, 0x50, 0x0B)):  # edges of lines are paler
        assert (abs(pixels - colour).max(1) < 50).sum() > 300


def test_ticks_are_round_and_between_the_ends() -> None:
    assert ticks(0, 1000, 4) == [0, 500, 1000]
    assert ticks(6.7, 7.5) == pytest.approx([6.8, 7.0, 7.2, 7.4])
    for low, high in ((0, 1e-7), (-5, 3), (123_456, 1e9)):
        found = ticks(low, high)
        assert 1 <= len(found) <= 6 and low <= found[0] and found[-1] <= high * (1 + 1e-9)


def test_short_numbers() -> None:
    for value, words in (
        (0, "0"), (1500, "1.5k"), (20e6, "20M"), (0.001, "0.001"), (2.5e-5, "2.5e-5"),
        (-3.25, "-3.25"), (1e12, "1T"), (999, "999"),
    ):  # fmt: skip
        assert short_number(value) == words


def test_each_style_has_a_colour_for_both_themes() -> None:
    for number in range(MOST_SERIES):
        assert STYLE.count(f"--s{number}: #") == 2
        assert f".s{number} {{" in STYLE
