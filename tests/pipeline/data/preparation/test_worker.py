import pickle
from pathlib import Path

import pytest

from pipeline.data.preparation.worker import PrepareJob, Worker, prepare_stage
from pipeline.data.text import documents
from pipeline.data.text.text_tasks import SplitTask, cut_tasks
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import unfinished
from pipeline.ingest.documents.sniff import sniff
from pipeline.recipes import recipe
from tests.pipeline.preparing import write_jsonl


def job_in(directory: Path, split_bytes: int = 1) -> PrepareJob:
    return PrepareJob(
        directory=directory, data=recipe("roberta_tiny").data, corpora=("c",), thresholds={"c": 0},
        split_bytes=split_bytes, compression="none", engine="fast",
    )  # fmt: skip


def test_a_stage_of_another_process_has_the_job_and_finds_what_is_done(
    tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    job = job_in(tmp_path)
    stage = pickle.loads(pickle.dumps(prepare_stage(job, tiny_vocabulary)))
    worker = stage.start().__self__
    assert stage.directory == tmp_path and worker.job == job
    assert worker.vocabulary.sha256 == tiny_vocabulary.sha256
    (tmp_path / "task-000001.json").touch()
    tasks = [SplitTask(number, "c", ()) for number in range(3)]
    assert [task.number for task in unfinished(stage, tasks)] == [0, 2]


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
        texts *= 2  # it may start again
        Worker.create(job_in(folder, 20), tiny_vocabulary).do(task)
        return [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.json"))]

    fresh = make(tmp_path / "fresh", ())
    assert len(fresh) == 5
    folder = tmp_path / "resumed"
    assert make(folder, ("1",)) != fresh
    (folder / task.marker).unlink()
    (folder / "part-000000-0002.json").unlink()
    assert make(folder, ()) == fresh
