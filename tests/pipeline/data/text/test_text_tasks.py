"""Sources cut into tasks: every byte once, corpora apart, the same on every machine."""

import pytest

from pipeline.base.errors import DataError
from pipeline.data.text import text_tasks as module
from pipeline.data.text.text_tasks import cut_tasks, has_finer_end
from pipeline.ingest.documents.records import Compression, Source


def source(corpus: str, size: int, compression: Compression = "") -> Source:
    name = f"{corpus}-{size}"
    return Source(corpus, f"/in/{name}", name, size, "jsonl", compression, "", "file", "")


def test_every_byte_is_in_one_task() -> None:
    sources = [source("a", 250), source("a", 30), source("a", 40), source("b", 10)]
    tasks = cut_tasks(sources, 100)
    assert [task.number for task in tasks] == list(range(len(tasks)))
    spans = [(p.source.name, p.start, p.stop) for task in tasks for p in task.pieces]
    assert spans == [
        ("a-250", 0, 100), ("a-250", 100, 200), ("a-250", 200, 250), ("a-30", 0, 30),
        ("a-40", 0, 40), ("b-10", 0, 10),
    ]  # fmt: skip
    assert [task.weight for task in tasks] == [100, 100, 80, 40, 10]
    assert [task.corpus for task in tasks] == ["a", "a", "a", "a", "b"]
    assert (tasks[2].name, tasks[2].marker) == ("task 2, a-250 from 200", "task-000002.json")
    [packed] = cut_tasks([source("a", 1000, "xz")], 100)
    assert packed.weight == 4000  # as its text does


def test_the_last_quarter_of_much_text_is_in_smaller_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a place where the file can be cut in both ways; files that cannot be cut share none."""
    monkeypatch.setattr(module, "FEWEST_SPLITS", 10)
    sources = [source("a", 500), source("b", 300)]
    tasks = cut_tasks(sources, 80)
    assert [task.weight for task in tasks] == [80] * 6 + [20, 80, 80] + [20] * 7
    spans = [(p.source.corpus, p.start, p.stop) for task in tasks for p in task.pieces]
    assert [span for span in spans if span[0] == "b"][1:4] == [
        ("b", 80, 160), ("b", 160, 180), ("b", 180, 200),
    ]  # fmt: skip
    assert [task.weight for task in cut_tasks(sources, 80, finer=1)][-3:] == [80, 80, 60]
    *_, one, packed = cut_tasks([*sources, source("c", 10, "gz")], 80)
    assert (one.weight, packed.weight) == (20, 30)
    small = [source("a", 500), source("b", 299)]  # less than ten splits
    assert cut_tasks(small, 80) == cut_tasks(small, 80, finer=1)
    assert has_finer_end(800, 80) and not has_finer_end(799, 80)
    # as many as a few thousand processes need
    monkeypatch.setattr(module, "_MOST_FINER", 2)
    assert [task.weight for task in cut_tasks([source("a", 4000)], 80)].count(20) == 8
    monkeypatch.setattr(module, "_MOST_TASKS", 52)  # too few for a finer end
    assert [task.weight for task in cut_tasks([source("a", 4000)], 80)] == [80] * 50
    monkeypatch.setattr(module, "_MOST_TASKS", 3)
    assert len(cut_tasks([source("a", 3)], 1)) == 3
    with pytest.raises(DataError, match="4 tasks, at most 3; prepare the corpus in pieces"):
        cut_tasks([source("a", 4)], 1)
