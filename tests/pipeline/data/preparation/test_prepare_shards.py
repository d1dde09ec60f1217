"""The job of a prepare: its directory, its lock, and when it is complete."""

import fcntl
from pathlib import Path

import pytest

from pipeline.data.preparation.prepare_shards import ShardsJob
from tests.pipeline.preparing import Prepare, contents, write_jsonl


def test_an_output_with_other_files_is_left_alone(tmp_path: Path, make: Prepare) -> None:
    (tmp_path / "file").write_text("mine")
    assert "other files" in make("--corpus", "sample", output=".", code=2)


def test_a_directory_in_use_is_left_alone(tmp_path: Path, make: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["One day it rained. Nobody minded.", "More."])
    (tmp_path / "out" / ".work").mkdir(parents=True)
    with (tmp_path / "out" / ".work" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is writing" in make("--corpus", path, code=2)


def test_unfinished_work_of_another_job_is_refused(tmp_path: Path, make: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["A text. Fine.", "More."] + ["", 5] * 3)
    assert "in.jsonl:4" in make("--corpus", path, code=2)
    write_jsonl(path, ["A text. Fine.", "More."])
    error = make("--corpus", path, code=2)
    assert "unfinished work of another" in error and f"remove {tmp_path / 'out' / '.work'}" in error


def test_shards_that_another_publishes_meanwhile_are_kept(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are complete when this process opens their directory, but were not when it began."""
    path = write_jsonl(tmp_path / "in.jsonl", ["One day it rained. Nobody minded.", "More."])
    make("--corpus", path)
    before = contents(tmp_path / "out")
    is_complete, first = ShardsJob.is_complete, iter([False])
    monkeypatch.setattr(ShardsJob, "is_complete", lambda job: next(first, is_complete(job)))
    said = make("--corpus", path)
    assert "complete already" in said and "prepared" not in said
    assert contents(tmp_path / "out") == before
