"""What workers are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.data.documents.records import Source
from pipeline.data.execution.tasks import Task
from pipeline.data.execution.workers import Setup, unfinished
from pipeline.data.preparation.worker import Preparation, PrepareJob, task_marker
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.recipes import recipe


def test_a_task_is_done_when_its_marker_is_there(tiny_tokenizer: Path, tmp_path: Path) -> None:
    source = Source("c", "/in", "in", 9, "jsonl", "", "", "blank_lines", "")
    tasks = [Task(number, source.corpus, ()) for number in range(3)]
    job = PrepareJob(
        directory=tmp_path, data=recipe("roberta_tiny").data, corpora=("c",), thresholds={"c": 0},
        split_bytes=1, compression="none", engine="fast",
    )  # fmt: skip
    setup = Preparation(job, read_vocabulary(tiny_tokenizer))
    task_marker(tmp_path, 1).touch()
    assert [task.number for task in unfinished(setup, tasks)] == [0, 2]
    assert isinstance(setup, Setup) and not isinstance(tasks[0], Setup)
    assert replace(setup).worker().job == job
