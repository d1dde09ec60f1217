"""Tasks as the Hub has them give the examples of the published files, once fetched, offline."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.downstream.finetune_tasks import TASKS, TaskData, as_fetched, read_task
from pipeline.downstream.reading import hub_tasks
from pipeline.downstream.reading.examples import Answer, Example
from tests.pipeline.remote.small_hub import NAME, leave_home, server_of

Rows = list[dict[str, Any]]
CHOICES = ["a", "b", "c", "d"]
QUESTION = {"id": "q1", "title": "T", "question": "Who?", "context": "It was Ann."}
ANSWERED = QUESTION | {"answers": {"text": ["Ann"], "answer_start": [7]}}
UNANSWERED = QUESTION | {"answers": {"text": [], "answer_start": []}}
ANN = Example("q1", ("Who?", "It was Ann."), (Answer("Ann", 7),), "It was Ann.")
RACE = {"example_id": "high1.txt", "article": "A text.", "answer": "C", "options": CHOICES}
SWAG = {"sent1": "He", "sent2": "then", **{f"ending{n}": CHOICES[n] for n in range(4)}, "label": 3}
CASES: dict[str, tuple[dict[str, Any], Example]] = {
    "sst2": ({"sentence": "good\tfilm", "label": 1, "idx": 4}, Example("4", ("good\tfilm",), "1")),
    "stsb": ({"sentence1": "x", "sentence2": "y", "label": 4.5, "idx": 0},
             Example("0", ("x", "y"), 4.5)),
    "mnli": ({"premise": "x", "hypothesis": "y", "label": 2, "idx": 0},
             Example("0", ("x", "y"), "contradiction")),
    "squad1": (ANSWERED, ANN),
    "squad2": (UNANSWERED, replace(ANN, gold=())),
    "race": (RACE | {"question": "It is _ ."},
             Example("high1.txt", ("A text.", *(f"It is {c} ." for c in CHOICES)), "2", "A text.")),
    "swag": (SWAG, Example("0", ("He", "then a", "then b", "then c", "then d"), "3", "He")),
    "conll2003": ({"id": "0", "tokens": ["Ann", "left"], "ner_tags": [1, 0]},
                  Example("0", ("Ann", "left"), ("B-PER", "O"))),
}  # fmt: skip


@pytest.fixture(autouse=True)
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The Hub has what is in the folder `hub`."""
    leave_home(tmp_path, monkeypatch)
    with server_of(tmp_path / "hub", "datasets", monkeypatch)():
        yield


Publish = Callable[[str, Rows], None]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Writes the files of a task into the repository that is served."""

    def publish(task: str, rows: Rows) -> None:
        for split in hub_tasks.HUB[task].splits:
            path = tmp_path / "hub" / split.replace("*", "00000-of-00001")
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(rows), path)
        served = replace(hub_tasks.HUB[task], repository=NAME, revision="main")
        monkeypatch.setitem(hub_tasks.HUB, task, served)

    return publish


def read(task: str, data: Path) -> TaskData:
    hub_tasks.fetch_task(task, data)
    found = as_fetched(TASKS[task])
    more = tuple(data / name for name in found.more_dev)
    return read_task(found, data / found.train[0], data / found.dev[0], more, 0.0)


@pytest.mark.parametrize("task", CASES)
def test_examples_are_those_of_published_files(task: str, tmp_path: Path, publish: Publish) -> None:
    row, expected = CASES[task]
    publish(task, [row, row])
    found = read(task, tmp_path / "data")
    assert found.train.examples[0] == found.dev.examples[0] == expected
    assert len(found.train.examples) == 2 and len(found.more_dev) == (task == "mnli")


def test_rows_without_a_label_get_no_name(tmp_path: Path, publish: Publish) -> None:
    """-1 would be the last of the names."""
    row = {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0}
    publish("rte", [row, row | {"label": -1}])
    found = read("rte", tmp_path / "data")
    assert [e.gold for e in found.train.examples] == ["not_entailment"]
    assert (found.train.unlabelled, found.dev.unlabelled) == (1, 1)


def test_a_file_is_fetched_once_and_whole(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, expected = CASES["sst2"]
    publish("sst2", [row])
    (tmp_path / "hub" / "sst2" / "validation-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"sst2/validation-\*\.parquet"):
        read("sst2", tmp_path / "data")
    assert {path.name for path in (tmp_path / "data").glob("*.jsonl*")} == {"train.jsonl"}
    publish("sst2", [row, row])
    found = read("sst2", tmp_path / "data")
    assert (len(found.train.examples), len(found.dev.examples)) == (1, 2)
    monkeypatch.setitem(hub_tasks.HUB, "sst2", replace(hub_tasks.HUB["sst2"], repository="a/gone"))
    assert read("sst2", tmp_path / "data").train.examples == [expected]


def test_tasks_that_the_hub_lacks(tmp_path: Path) -> None:
    assert sorted(TASKS.keys() - hub_tasks.HUB.keys()) == ["wikigold"]
    assert hub_tasks.HUB.keys() <= TASKS.keys()
    with pytest.raises(ConfigError, match=r"cola, .*, not wikigold"):
        hub_tasks.fetch_task("wikigold", tmp_path)
