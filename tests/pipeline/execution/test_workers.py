"""Shares and executors; tests/pipeline/test_prepare.py compares the bytes of the shards."""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time
from pipeline.base.process_scope import is_running
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.ledger import lock_of
from pipeline.execution.workers import AnyTask, Executor, Stage, local_executor, share, unfinished
from pipeline.ingest.documents.records import Piece, Source
from tests.launching import process

pytestmark = pytest.mark.usefixtures("quick_workers")


def tasks(*weights: int) -> list[SplitTask]:
    source = Source("c", "/in", "in", sum(weights), "jsonl", "", "", "blank_lines", "")
    return [
        SplitTask(number, "c", (Piece(source, 0, weight, weight),))
        for number, weight in enumerate(weights)
    ]


def test_shares_are_all_tasks_once_and_have_about_the_same_weight() -> None:
    """A share with a compressed file of 90 MB gets less of everything else."""
    every = tasks(5, 1, 9, 9, 3, 3, 3, 8, 1, 1, 2)
    for count in (1, 2, 3, 7, 20):
        shares = [share(every, number, count) for number in range(1, count + 1)]
        assert sorted(task.number for mine in shares for task in mine) == [*range(11)]
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
        if task.name == "deadly":
            os._exit(1)
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


def test_processes_stay_from_stage_to_stage_and_end_with_the_executor(tmp_path: Path) -> None:
    """Each task is done once. Others take their place after an error."""
    executor, processes = local_executor(2), set[int]()

    def run(executor: Executor, name: str, tasks: list[Line]) -> set[int]:
        folder = tmp_path / name
        folder.mkdir()
        executor.run(Stage(folder, partial(start, folder)), tasks)
        assert sorted(done(folder)) == [task.name for task in tasks]
        return {int(path.name.removeprefix("process-")) for path in folder.glob("process-*")}

    for number, tasks in enumerate((LINES, LINES[:2], LINES)):
        processes |= run(executor, str(number), tasks)
    assert 1 <= len(processes) <= 2 and os.getpid() not in processes
    stage, bad = Stage(tmp_path, partial(start, tmp_path)), Line("bad", 20)
    for one in (executor, local_executor(1)):
        with pytest.raises(DataError, match="a bad task"):
            one.run(stage, [bad, *LINES])
        assert unfinished(stage, [bad])
    others = run(executor, "after", LINES)
    assert not processes & others
    del executor
    gc.collect()  # the error's frames hold it
    end = time.monotonic() + 30
    while any(map(is_running, processes | others)):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_death_of_a_worker_is_an_error_and_finished_work_is_kept(tmp_path: Path) -> None:
    stage, deadly = Stage(tmp_path, partial(start, tmp_path)), Line("deadly", 0)
    with pytest.raises(DataError, match="one of 2 workers died"):
        local_executor(2).run(stage, [*LINES, deadly])
    assert len(unfinished(stage, [*LINES, deadly])) <= 2


def test_a_process_that_starts_late_ends_without_a_word(tmp_path: Path) -> None:
    """The first one does all the work; the others are still importing when the executor goes."""
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, os, time\n"
        "from functools import partial\nfrom pathlib import Path\n"
        "from pipeline.execution.workers import Stage, local_executor\n"
        "from tests.launching.process import quick_python\n"
        "from tests.pipeline.execution.test_workers import LINES, start\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_executable(str(quick_python()))\n"
        "    local_executor(4).run(Stage(folder, partial(start, folder)), LINES)\n"
        "else:\n"
        "    try:\n        os.mkdir(folder / 'first')\n"
        "    except FileExistsError:\n        time.sleep(1)\n"
    )
    result = process.run([sys.executable, script])
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert sorted(done(tmp_path)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_need_no_directory_and_light_functions_no_processes(workers: int) -> None:
    results = local_executor(workers).results(Stage(None, start_names), LINES)
    expected = {"a": "a of 1", "b": "b of 9", "c": "c of 5", "d": "d of 7"}
    assert {task.name: found for task, found in results} == expected
    executor, functions = local_executor(workers), [os.getpid, partial(max, 3, 5), os.getppid]
    assert executor.call(functions, is_light=True) == [os.getpid(), 5, os.getppid()]
    assert executor.call([]) == []
    assert len(executor.call(functions)) == 3
    first, largest, _ = executor.call(functions, is_light=True)  # the processes are there by now
    assert largest == 5 and (first == os.getpid()) == (workers == 1)


def start_names() -> Callable[[Line], str]:
    return describe


def describe(task: Line) -> str:
    return f"{task.name} of {task.weight}"


SIX = [Line(name, weight) for name, weight in zip("abcdef", (6, 5, 4, 3, 2, 1))]
"""The first of two parts has a, d, e; the second has b, c, f."""


def take(directory: Path, part: tuple[int, int] = (1, 1), workers: int = 1, **how: bool) -> None:
    local_executor(workers).take(Stage(directory, partial(start, directory)), SIX, part, **how)


@pytest.mark.parametrize(("part", "order"), [((1, 2), "adebcf"), ((2, 2), "bcfdea")])
def test_a_part_takes_its_share_and_then_what_others_have_not_done(
    part: tuple[int, int], order: str, tmp_path: Path
) -> None:
    take(tmp_path, part)
    assert done(tmp_path) == [*order]
    assert not [*tmp_path.glob(".*")], "a finished task needs no lock"
    take(tmp_path, part)
    assert done(tmp_path) == [*order]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_another_process_does_is_left_to_it(workers: int, tmp_path: Path) -> None:
    with one_at_a_time(lock_of(tmp_path / "a.done")), one_at_a_time(lock_of(tmp_path / "c.done")):
        take(tmp_path, (1, 2), workers, waits=False)
    assert sorted(done(tmp_path)) == [*"bdef"]
    lock_of(tmp_path / "f.done").touch()  # of a process that is gone
    take(tmp_path, (2, 2), workers, waits=False)
    assert sorted(done(tmp_path)) == [*"abcdef"]


@pytest.mark.parametrize("dies", [True, False])
def test_the_last_tasks_of_others_are_waited_for(dies: bool, tmp_path: Path) -> None:
    """They are done then, or their process has died and left them."""
    with ExitStack() as other:
        other.enter_context(one_at_a_time(lock_of(tmp_path / "c.done")))
        thread = threading.Thread(target=take, args=(tmp_path, (1, 2)))
        thread.start()
        while len([*tmp_path.glob("*.done")]) < 5:
            time.sleep(0.01)
        assert sorted(done(tmp_path)) == [*"abdef"] and thread.is_alive()
        if not dies:
            (tmp_path / "c.done").touch()
    thread.join(timeout=30)
    assert ("c" in done(tmp_path)) == dies and (tmp_path / "c.done").exists()


def test_parts_at_the_same_time_do_each_task_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(5) as pool:
        assert [*pool.map(lambda part: take(tmp_path, (part, 5)), range(1, 6))] == [None] * 5
    assert sorted(done(tmp_path)) == [*"abcdef"]


def test_a_part_lists_what_is_finished_twice_however_many_tasks_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time when it has handed out its share; it asks for no task that is finished by
    then."""
    many = [Line(f"{number:03d}", 1) for number in range(200)]
    listed, tried = list[str](), list[str]()
    real = os.listdir

    def counted(path: Any) -> list[str]:
        listed.append(str(path))
        return real(path)

    def run(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        for task, result in local_executor(1).runner(stage, tasks):
            tried.append(task.name)
            if task.name == many[-1].name:  # the last one of the share: others have gone on
                for other in many[::2]:
                    (tmp_path / other.marker).touch()
            yield task, result

    monkeypatch.setattr(os, "listdir", counted)
    monkeypatch.setattr(os, "scandir", None)
    stage = Stage(tmp_path, partial(start, tmp_path))
    Executor(run).take(stage, many, (2, 2))
    assert listed == [str(tmp_path)] * 2
    assert tried == [task.name for task in many[1::2]]


@pytest.mark.usefixtures("no_locks")
def test_where_locks_exclude_nobody_no_process_does_a_task_twice(tmp_path: Path) -> None:
    """Also not those that its other workers do when the rest is tried."""
    take(tmp_path, (1, 2), 2)
    assert sorted(done(tmp_path)) == [*"abcdef"]


def test_tasks_are_asked_for_when_a_worker_is_about_to_be_free(tmp_path: Path) -> None:
    """So the rest is listed when a share is handed out, not when it is begun."""
    asked = list[int]()

    def tasks() -> Iterator[Line]:
        for number in range(12):
            asked.append(len([*tmp_path.glob("*.done")]))
            yield Line(f"{number:02d}", 1)

    for _ in local_executor(2).runner(Stage(tmp_path, partial(start, tmp_path)), tasks()):
        pass
    assert len(done(tmp_path)) == 12
    assert all(number - finished <= 4 for number, finished in enumerate(asked)), asked
