import io
from typing import Any

import pytest

from pipeline.training.display import Display


class Clock:
    """A clock that the test advances."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def train_steps(display: Display, clock: Clock, steps: range, seconds: float, parts: int) -> None:
    """Each step has 1,000 tokens."""
    for step in steps:
        display.begin_step(1000, 5e-4)
        for part in range(1, parts + 1):
            clock.now += seconds / parts
            display.micro_batch(part, parts)
        display.end_step(step)
        if step % 10 == 0:
            display.loss(step, 2.5)


def test_without_a_terminal_there_is_a_line_per_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the first rank."""
    for shown in (False, True):
        clock = Clock()
        with Display("run", 100, 400, shown=shown, clock=clock) as display:
            train_steps(display, clock, range(101, 150), 2.0, 4)
        said, errors = capsys.readouterr()
        assert errors == "" and len(said.splitlines()) == shown
    (first,) = said.splitlines()
    assert first.startswith(
        "step 130 of 400: loss 2.5000 at step 120, 500 tokens/s, 9 min left, learning rate 0.0005, "
    )
    assert first.endswith(" GB")


def test_a_step_that_takes_minutes_prints_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Display("run", 0, 3, shown=True, clock=clock) as display:
        train_steps(display, clock, range(1, 2), 600.0, 512)
        for scored in range(100):
            clock.now += 1.0
            display.validating(scored)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("step 0 of 3, micro-batch 52 of 512: 2 tokens/s, 28 min left,")
    assert lines[-1] == "validating after step 1: 68 micro-batches scored"


class Terminal(io.StringIO):
    """A terminal that records what is written."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "between"), [(1.0, False), (60.0, True)])
def test_on_a_terminal_the_bar_moves_within_slow_steps(
    monkeypatch: pytest.MonkeyPatch, seconds: float, between: bool
) -> None:
    terminal: Any = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    clock = Clock()
    with Display("run", 0, 4, shown=True, clock=clock) as display:
        train_steps(display, clock, range(1, 3), seconds, 4)
    assert ("1.50/4" in terminal.getvalue()) == between
