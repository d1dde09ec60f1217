"""A log shows the remaining time."""

import sys
import time
from collections.abc import Iterator

import pytest

from pipeline.base import progress
from pipeline.base.progress import count_line, counting, note, progress_line, tracked, with_progress


def test_a_line_says_rate_and_time_left() -> None:
    # 30 GB in 600 s are 50 MB/s; the 110 GB that are left take 2,200 s
    line = progress_line(160_000_000_000, 50_000_000_000, 20_000_000_000, 600)
    assert line == "preparing: 50.00 of 160.00 GB (31%), 50.0 MB/s, 36 min left"
    assert progress_line(3_100_000, 0, 0, 60).startswith("preparing: 0.00 of 3.10 MB (0%), ")
    # 30 shards in 600 s are one in 20 s; the 10 that are left take 200 s
    for done, count, seconds, said in (
        (30, 40, 600, "30 of 40 shards (75%), 3 min left"),
        (0, 40, 61, "0 of 40 shards (0%) in 61 s"),
        (0, 0, 61, "0 of 0 shards (0%) in 61 s"),
    ):
        assert count_line("verifying", "shards", done, count, seconds) == f"verifying: {said}"
    assert count_line("scoring", "copies", 3000, None, 600) == "scoring: 3,000 copies in 10 min"


def said_soon(capsys: pytest.CaptureFixture[str], what: str, stream: str = "err") -> str:
    """What is printed to `stream`, and nothing to the other one, until it contains `what`."""
    said = ""
    deadline = time.monotonic() + 60
    while what not in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.01)
        found = capsys.readouterr()._asdict()
        said += found.pop(stream)
        assert not any(found.values())
    return said


def test_items_are_counted_when_they_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    for item in tracked("ab", "reading", "files"):
        expected = "reading: 0 of 2 files (0%) in 0 s\n" if item == "a" else "1 of 2 files (50%), "
        said_soon(capsys, expected)
    for item in tracked(iter("ab"), "reading", "files", 4):
        if item == "b":
            said_soon(capsys, "reading: 1 of 4 files (25%), ")
    with counting("scoring", "copies") as add:
        add(1_000)
        said_soon(capsys, "scoring: 1,000 copies in 0 s\n")
    assert not capsys.readouterr().out


def test_a_line_a_minute_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first part is made, which may take long."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    said = ""

    def until_said(what: str) -> None:
        nonlocal said
        said += said_soon(capsys, what, "out")

    def items() -> Iterator[int]:
        until_said("preparing: 0.40 of 1.00 GB (40%), no part finished yet in 0 s\n")
        yield 100_000_000
        until_said("preparing: 0.50 of 1.00 GB (50%), ")
        yield 200_000_000
        until_said("preparing: 0.70 of 1.00 GB (70%), ")

    found = with_progress(items(), lambda size: size, 10**9, 4 * 10**8)
    assert list(found) == [100_000_000, 200_000_000]
    assert said.splitlines()[-1].endswith(" left") and not capsys.readouterr().err


def test_a_note_covers_a_bar_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note("one")
    assert capsys.readouterr() == ("", "one\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    note("two")
    assert capsys.readouterr() == ("", "\r\033[Ktwo\n")
