"""Curves stay small and keep their spikes; damage is counted."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pipeline.reporting import curves
from pipeline.reporting.curves import COLUMNS, MOST_POINTS, Curve, parse_time, read_curves
from pipeline.training.validation.before_after import change


def test_spikes_ends_and_order_stay_in_a_long_curve() -> None:
    curve = Curve()
    spikes = {77_777: 900.0, 150_001: -5.0}
    for step in range(1, 200_001):
        curve.add(step, spikes.get(step, 2 + math.sin(step)))
    for points, most in ((curve.points, MOST_POINTS + 1), (curve.columns(), 2 * COLUMNS + 2)):
        assert len(points) <= most
        assert points == sorted(points)
        assert points[0][0] == 1 and points[-1][0] == 200_000
        assert set(spikes.items()) <= set(points)
        tenths = Counter((step - 1) // 20_000 for step, _ in points)
        assert min(tenths.values()) >= len(points) / 20  # the early curve is no sparser
    assert (curve.highest, curve.lowest) == ((77_777, 900.0), (150_001, -5.0))
    assert curve.last == 2 + math.sin(200_000)


def curve_of(steps: Iterable[int], period: int) -> Curve:
    curve = Curve()
    for step in steps:
        curve.add(step, step % period)
    return curve


def test_every_stretch_keeps_its_lowest_and_highest_point() -> None:
    """Of any order, as in a file that was joined from two; a short curve is kept whole."""
    assert len(curve_of(range(MOST_POINTS), 7).columns()) >= 2 * COLUMNS
    points = curve_of((10_000, *range(1000)), 20_000).columns()
    assert points == sorted(points) and (points[0][0], points[-1][0]) == (0, 10_000)
    assert curve_of(range(10), 3).columns() == [(step, float(step % 3)) for step in range(10)]
    points = [(0, 1.0), (1, 3.0), (2, 2.0), (3, 0.0), (4, 5.0), (5, 1.0)]
    thin = curves.thin_points(points, [points[:3], points[3:], []])
    assert thin == [(0, 1.0), (1, 3.0), (3, 0.0), (4, 5.0), (5, 1.0)]


def line(step: int, **values: object) -> str:
    time = f"2026-01-01T00:{step // 60:02d}:{step % 60:02d}Z"
    return json.dumps({"step": step, "time": time, "loss": 2.0, "step_seconds": 0.5} | values)


def test_phases_times_hosts_and_damage(tmp_path: Path) -> None:
    lines = [
        line(10, phase=1, sequence_length=128, slowest_host="a"),
        "{damaged",
        '{"step": -4}', '["step"]', '{"loss": 3}', '{"step": true}',
        line(20, phase=1, sequence_length=128, slowest_host="b", grad_norm=1e300),
        line(30, phase=2, sequence_length=512, slowest_host="b", grad_norm=None),
        line(40, phase=3, sequence_length=512, loss=True),
    ]  # fmt: skip
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(lines) + "\n" + line(50)[:20])
    found = read_curves(path)
    assert (found.lines, found.damaged) == (4, 5)  # the last one is being written
    assert found.phases == [(20, "length 512"), (30, "phase 3")]
    assert found.slowest == {"a": 1, "b": 2}
    assert found.curves["loss"].points == [(10, 2.0), (20, 2.0), (30, 2.0)]
    assert "grad_norm" not in found.curves and "step" not in found.curves
    assert found.step_seconds == 15.0
    start = found.times[0][1] - 10
    assert [found.step_at(start + second) for second in (5, 10, 35, 99)] == [None, 10, 30, 40]
    before = {"step": 0, "validation_mlm_loss": 4.0, "general_mlm_loss": 3.0}
    lines = [json.dumps(before), *(line(s, phase=1, sequence_length=64) for s in (10, 20))]
    path.write_text("\n".join(lines) + "\n")
    found = read_curves(path)  # a line of step 0 has no phase and no time
    assert found.phases == [] and found.step_seconds == 5.0 and len(found.times) == 2
    assert read_curves(tmp_path / "none").lines == 0
    assert parse_time("1970-01-02T00:00:00Z") == 86400
    assert parse_time(None) is None and parse_time("<b>") is None


def test_held_out_losses_before_and_after(tmp_path: Path) -> None:
    lines = [
        {"step": 0, "validation_mlm_loss": 4.0, "general_mlm_loss": 3.0, "validation_accuracy": 0},
        {"step": 10, "loss": 5.0, "validation_mlm_loss": 3.5},
        {"step": 20, "loss": 4.0, "validation_mlm_loss": 2.5, "general_mlm_loss": 3.25},
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert read_curves(path).change() == change(lines[0], lines[2])
    assert read_curves(path, last_step=10).change() == (
        "held-out loss 4.0000 -> 3.5000 on your text, 3.0000 on the general sample at the start"
    )
    assert read_curves(path, last_step=0).change() == ""
    path.write_text(json.dumps(lines[2]) + "\n")
    assert read_curves(path).change() == ""
