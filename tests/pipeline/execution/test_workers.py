"""Shares and executors; tests/pipeline/test_prepare.py compares the bytes of the shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.workers import Stage, local_executor, share, unfinished
from pipeline.ingest.documents.records import Piece, Source


def tasks(*weights: int) -> list[SplitTask]:
    source = Source("c", "/in", "in", sum(weights), "jsonl", "", "", "blank_lines", "")
    return [
        SplitTask(number, "c", (Piece(source, 0, weight, weight),))
        for number, weight in enumerate(weights)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_shares_are_all_tasks_once(count: int) -> None:
    every = tasks(5, 1, 9, 9, 3, 3, 3, 8, 1, 1, 2)
    shares = [share(every, number, count) for number in range(1, count + 1)]
    found = sorted(task.number for mine in shares for task in mine)
    assert found == list(range(11))


def test_shares_have_about_the_same_weight() -> None:
    """A share with a compressed file of 90 MB gets less of everything else."""
    every = tasks(90, *[10] * 18)
    weights = [sum(task.weight for task in share(every, number, 3)) for number in (1, 2, 3)]
    assert weights == [90, 90, 90]


@dataclass(frozen=True)
class Line:
    """Appends its name to a file, and writes its marker."""

    name: str
    weight: int

    @property
    def marker(self) -> str:
        return f"{self.name}.done"


def start(directory: Path) -> Callable[[Line], None]:
    """Also counts the processes that were prepared."""
    (directory / f"process-{os.getpid()}").touch()

    def do_task(task: Line) -> None:
        if task.name == "bad":
            raise DataError("a bad task")
        with (directory / "done").open("a") as file:
            print(task.name, file=file)
        (directory / task.marker).touch()

    return do_task


LINES = [Line("a", 1), Line("b", 9), Line("c", 5), Line("d", 7)]


def done(directory: Path) -> list[str]:
    return (directory / "done").read_text().split()


def test_the_largest_first_and_only_what_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "c.done").touch()
    stage = Stage(tmp_path, partial(start, tmp_path))
    local_executor(1).run(stage, LINES)
    assert done(tmp_path) == ["b", "d", "a"]
    local_executor(1).run(stage, LINES)
    assert done(tmp_path) == ["b", "d", "a"]
    assert unfinished(stage, [*LINES, Line("e", 1)]) == [Line("e", 1)]


def test_two_processes_do_each_task_once(tmp_path: Path) -> None:
    local_executor(2).run(Stage(tmp_path, partial(start, tmp_path)), LINES)
    assert sorted(done(tmp_path)) == ["a", "b", "c", "d"]
    processes = {path.name for path in tmp_path.glob("process-*")}
    assert 1 <= len(processes) <= 2 and f"process-{os.getpid()}" not in processes


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_with_their_tasks_and_need_no_directory(workers: int) -> None:
    results = local_executor(workers).results(Stage(None, start_names), LINES)
    assert sorted((task.name, found) for task, found in results) == [
        ("a", "a of 1"), ("b", "b of 9"), ("c", "c of 5"), ("d", "d of 7"),
    ]  # fmt: skip


def start_names() -> Callable[[Line], str]:
    return describe


def describe(task: Line) -> str:
    return f"{task.name} of {task.weight}"


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_of_a_task_ends_the_stage(workers: int, tmp_path: Path) -> None:
    stage = Stage(tmp_path, partial(start, tmp_path))
    with pytest.raises(DataError, match="a bad task"):
        local_executor(workers).run(stage, [Line("bad", 20), *LINES])
    assert unfinished(stage, [Line("bad", 20)])
