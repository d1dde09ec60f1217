"""The job of a prepare: its directory, its lock, and when it is complete."""

from __future__ import annotations

import fcntl
from pathlib import Path

from tests.pipeline.preparing import Prepare, tiny, write_jsonl

STORY = "One day it rained. Nobody minded."


def test_an_output_with_other_files_is_left_alone(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    (tmp_path / "file").write_text("mine")
    arguments = tiny(tiny_tokenizer, tmp_path)
    assert "other files" in run("--corpus", "sample", *arguments, code=2)
    arguments = tiny(tiny_tokenizer, prepared)
    error = run("--corpus", "sample", "--set", "data.seed=5", *arguments, code=2)
    assert "another recipe, input or tokenizer" in error


def test_a_directory_in_use_is_left_alone(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [STORY, "More."])
    (tmp_path / "out" / ".work").mkdir(parents=True)
    with (tmp_path / "out" / ".work" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = run("--corpus", path, *tiny(tiny_tokenizer, tmp_path / "out"), code=2)
    assert "another process is writing" in error


def test_unfinished_work_of_another_job_is_refused(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["A text. Fine.", "More."] + ["", 5] * 3)
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    assert "in.jsonl:4" in run("--corpus", path, *arguments, code=2)
    write_jsonl(path, ["A text. Fine.", "More."])
    error = run("--corpus", path, *arguments, code=2)
    assert "unfinished work of another" in error and f"remove {tmp_path / 'out' / '.work'}" in error
