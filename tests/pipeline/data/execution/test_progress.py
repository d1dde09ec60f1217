"""A log shows the remaining time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pipeline.data.execution import progress
from pipeline.data.execution.progress import progress_line, with_progress


def test_the_line_says_rate_and_time_left() -> None:
    # 30 GB in 600 s are 50 MB/s; the 110 GB that are left take 2,200 s
    line = progress_line(160_000_000_000, 50_000_000_000, 20_000_000_000, 600)
    assert line == "preparing: 50.00 of 160.00 GB (31%), 50.0 MB/s, 36 min left"


def test_a_line_a_minute_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first part is made, which may take long."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    said = ""

    def until_said(what: str) -> None:
        nonlocal said
        deadline = time.monotonic() + 60
        while what not in said:
            assert time.monotonic() < deadline, said
            time.sleep(0.01)
            said += capsys.readouterr().out

    def items() -> Iterator[int]:
        until_said("preparing: 0.40 of 1.00 GB (40%), no part finished yet in 0 s\n")
        yield 100_000_000
        until_said("preparing: 0.50 of 1.00 GB (50%), ")
        yield 200_000_000
        until_said("preparing: 0.70 of 1.00 GB (70%), ")

    found = with_progress(items(), lambda size: size, 10**9, 4 * 10**8)
    assert list(found) == [100_000_000, 200_000_000]
    assert said.splitlines()[-1].endswith(" left") and not capsys.readouterr().err
