"""A log shows the remaining time."""

from __future__ import annotations

import pytest

from pipeline.data.execution.progress import hours_and_minutes, progress_line, with_progress


def test_the_line_says_rate_and_time_left() -> None:
    # 30 GB in 600 s are 50 MB/s; the 110 GB that are left take 2,200 s
    line = progress_line(160_000_000_000, 50_000_000_000, 20_000_000_000, 600)
    assert line == "preparing: 50.00 of 160.00 GB (31%), 50.0 MB/s, 0 h 37 min left"


def test_a_line_a_minute_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0, 20, 40, 70, 100, 140, 150])  # seconds; the first is the start
    items = [100_000_000] * 6
    found = with_progress(items, lambda size: size, 10**9, 4 * 10**8, clock=lambda: next(times))
    assert list(found) == items
    out = capsys.readouterr()
    lines = out.out.splitlines()
    assert not out.err
    assert [line.split(",")[0] for line in lines] == [
        "preparing: 0.70 of 1.00 GB (70%)",
        "preparing: 0.90 of 1.00 GB (90%)",
    ]


def test_durations() -> None:
    assert [hours_and_minutes(seconds) for seconds in (1, 3600, 3601 * 24)] == [
        "0 h 01 min", "1 h 00 min", "24 h 01 min",
    ]  # fmt: skip
