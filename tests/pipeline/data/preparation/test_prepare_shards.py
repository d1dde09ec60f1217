"""The job of a prepare: its directory, its lock, and when it is complete."""

import fcntl
from pathlib import Path

from tests.pipeline.preparing import Prepare, write_jsonl


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
