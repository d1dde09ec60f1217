"""A worker's job and tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipeline.data.preparation.worker import PrepareJob, Worker, prepare_stage
from pipeline.data.text import documents
from pipeline.data.text.text_tasks import SplitTask, cut_tasks
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import unfinished
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.recipes import recipe
from tests.pipeline.preparing import write_jsonl


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


def test_parts_are_made_again_if_a_restart_drops_other_documents(
    tiny_vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the documents between the old end of a part and the new one would be lost."""
    path = write_jsonl(tmp_path / "in.jsonl", [f"Document {number}." for number in range(6)])
    [task] = cut_tasks([sniff(path, "c", "in")])
    monkeypatch.setattr(documents, "BATCH_CHARACTERS", 1)

    def make(folder: Path, slow: tuple[str, ...]) -> list[tuple[str, bytes]]:
        def slow_items(began_at: float, do_one: object, count: int) -> list[int]:
            return [0] if texts.pop(0) in slow else []

        texts = [f"{number}" for number in range(6)]
        folder.mkdir(exist_ok=True)
        monkeypatch.setattr(documents, "slow_items", slow_items)
        job = PrepareJob(
            directory=folder, data=recipe("roberta_tiny").data, corpora=("c",), thresholds={"c": 0},
            split_bytes=20, compression="none", engine="fast",
        )  # fmt: skip
        texts *= 2  # it may start again
        Worker.create(job, tiny_vocabulary).do(task)
        return [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.json"))]

    fresh = make(tmp_path / "fresh", ())
    assert len(fresh) == 5
    folder = tmp_path / "resumed"
    assert make(folder, ("1",)) != fresh
    (folder / task.marker).unlink()
    (folder / "part-000000-0002.json").unlink()
    assert make(folder, ()) == fresh
