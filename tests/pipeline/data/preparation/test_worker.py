"""A worker's job and tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

from pipeline.data.documents.records import Source
from pipeline.data.execution.tasks import SplitTask
from pipeline.data.execution.workers import unfinished
from pipeline.data.preparation.worker import PrepareJob, prepare_stage
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.recipes import recipe


def test_a_task_is_done_when_its_marker_is_there(tiny_tokenizer: Path, tmp_path: Path) -> None:
    source = Source("c", "/in", "in", 9, "jsonl", "", "", "blank_lines", "")
    tasks = [SplitTask(number, source.corpus, ()) for number in range(3)]
    job = PrepareJob(
        directory=tmp_path, data=recipe("roberta_tiny").data, corpora=("c",), thresholds={"c": 0},
        split_bytes=1, compression="none", engine="fast",
    )  # fmt: skip
    stage = prepare_stage(job, read_vocabulary(tiny_tokenizer))
    (tmp_path / "task-000001.json").touch()
    assert [task.number for task in unfinished(stage, tasks)] == [0, 2]


def test_a_stage_can_be_sent_to_another_process(tiny_vocabulary: Vocabulary) -> None:
    job = PrepareJob(
        directory=Path("parts"), data=recipe("roberta_tiny").data, corpora=("c",), thresholds={},
        split_bytes=1, compression="none", engine="fast",
    )  # fmt: skip
    stage = pickle.loads(pickle.dumps(prepare_stage(job, tiny_vocabulary)))
    assert stage.directory == job.directory
    worker = stage.start().__self__
    assert worker.job == job and worker.vocabulary.sha256 == tiny_vocabulary.sha256
