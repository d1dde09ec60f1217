from __future__ import annotations

import math

import pytest

from pipeline.training import deadline
from pipeline.training.deadline import LEAVING_SECONDS, Deadline, process_seconds


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(deadline.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(deadline, "process_seconds", lambda: 100.0)


def test_it_leaves_time_for_a_step_and_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    until = Deadline(1.0, lambda: 30.0)  # 3,500 s from now
    steps = 0
    while not until.reached():
        clock.now += 25.0 if steps == 7 else 20.0
        steps += 1
    left = 1000.0 + 3500.0 - clock.now
    # after a long step, in which 50 were kept free, the usual ones count again
    assert 2 * 30 + LEAVING_SECONDS + 20 <= left < 2 * 30 + LEAVING_SECONDS + 2 * 20 + 20
    assert until.reached()


def test_a_checkpoint_that_takes_longer_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    seconds = 1.0
    until = Deadline(1.0, lambda: seconds)
    clock.now += 3400.0
    assert not until.reached()
    seconds = 60.0
    assert until.reached()


def test_no_limit_is_never_reached() -> None:
    assert not Deadline(math.inf, lambda: 1e9).reached()


def test_a_process_knows_its_age() -> None:
    assert 0.0 < process_seconds() < 24 * 3600
