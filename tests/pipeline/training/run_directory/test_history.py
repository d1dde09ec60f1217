import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.training.run_directory import history
from pipeline.training.run_directory.history import HISTORY, lives, note_error, note_event, own_log


def test_an_event_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "now_utc", lambda: "2026-01-31T23:59:59Z")
    note_event(tmp_path, "began", "/logs/a\tb\n.log")
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    note_error(tmp_path, ValueError("bad\nand more"))
    note_error(tmp_path, KeyboardInterrupt())
    note_event(tmp_path, "failed", "x" * 5000)
    lines = (tmp_path / HISTORY).read_text().splitlines()
    assert lines[:3] == [
        "2026-01-31T23:59:59Z\t-\tbegan\t/logs/a b .log",
        "2026-01-31T23:59:59Z\t12\tfailed\tbad",
        "2026-01-31T23:59:59Z\t12\tfailed\tKeyboardInterrupt",
    ]
    assert len(lines) == 4 and len(lines[3]) < 1100
    note_event(tmp_path / "missing", "began")  # a disk that refuses it is no error


def told(*events: str) -> list[history.Life]:
    """The lives of events with spaces for tabs."""
    return lives([event.replace(" ", "\t", 3) for event in events])


def test_lives_of_a_batch_job() -> None:
    """Its batch file and its first rank both write; Slurm itself restarts without an event."""
    found = told(
        "t1 7 job /logs/7.log\n", "t2 7 began \n", "t3 7 failed CUDA error\n",
        "t4 7 requeued a device failed on node02\n", "t5 7 job /logs/7.log\n", "t6 7 began \n",
        "t7 7 job /logs/7.log\n", "t8 7 failed ",
    )  # fmt: skip
    assert [(life.began_at, life.end, life.ended_at, life.reason) for life in found] == [
        ("t1", "requeued", "t4", "a device failed on node02"),
        ("t5", "", "", ""),
        ("t7", "failed", "t8", ""),
    ]
    assert [life.ready for life in found] == [True, True, False]
    assert {life.log for life in found} == {"/logs/7.log"} and {life.job for life in found} == {"7"}


def test_restarts_within_a_job_and_lines_that_are_no_events() -> None:
    found = told(
        "t0 - failed x", "rubbish", "t1 - began a.log", "t2 - what ", "t3 - be",
        "t3 - began b.log", "t4 - ended ",
    )  # fmt: skip
    assert [(life.log, life.end, life.job) for life in found] == [
        ("a.log", "", ""), ("b.log", "ended", ""),
    ]  # fmt: skip


def test_a_job_that_is_refused_meanwhile_is_not_the_last() -> None:
    """Job 8 finds the run in use; job 7 continues and ends."""
    reason = "/run belongs to a live job"
    lines = ["t1 7 job 7.log", "t2 8 job 8.log", "t3 7 began ", f"t4 8 failed {reason}"]
    found = told(*lines)
    assert [(life.job, life.ready, life.end) for life in found] == [
        ("7", True, ""), ("8", False, "failed"),
    ]  # fmt: skip
    found = told(*lines, "t5 7 ended ")
    assert [(life.job, life.end, life.ended_at, life.reason) for life in found] == [
        ("8", "failed", "t4", reason), ("7", "ended", "t5", ""),
    ]  # fmt: skip
    by_hand = told("t1 - began ", "t2 7 job ", "t3 7 began ", "t4 - began ")
    assert [life.began_at for life in by_hand] == ["t1", "t2", "t4"]


def test_an_error_that_names_a_file_of_any_bytes(tmp_path: Path) -> None:
    note_error(tmp_path, ValueError(f"{os.fsdecode(b'/data/caf' + bytes([0xE9]))} is damaged"))
    assert (tmp_path / HISTORY).read_text().endswith("\t/data/caf\\udce9 is damaged\n")


def test_the_log_is_a_file_and_no_pipe(tmp_path: Path) -> None:
    code = f"from {history.__name__} import own_log; print(own_log(), flush=True)"
    for target in (tmp_path / "log", None):
        with open(target or os.devnull, "w") as log:  # noqa: PTH123
            result = subprocess.run(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, text=True,
                check=True,
            )  # fmt: skip
        assert result.stdout.strip() == (str(target) if target else "")
    assert isinstance(own_log(), str)
