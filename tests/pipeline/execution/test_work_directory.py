"""Locks of OUT/.work: one process alone, or many with shares, of which the last publishes."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time
from pipeline.execution.ledger import lock_of
from pipeline.execution.work_directory import WORK, WorkDirectory, work_directory
from pipeline.execution.workers import Stage, local_executor

PLAN = {"tasks": 3}


def work_in(
    output: Path,
    fingerprint: str = "f",
    is_done: Callable[[], bool] = lambda: False,
    shared: bool = False,
) -> AbstractContextManager[WorkDirectory | None]:
    return work_directory(output, fingerprint, PLAN, is_done, shared=shared)


def test_one_is_alone_or_shares_are_together_and_the_last_is_alone(tmp_path: Path) -> None:
    another = pytest.raises(DataError, match=r"another .* is writing")
    output = tmp_path / "out"
    with work_in(output) as work:
        assert work and work.path == output / WORK
        with another, work_in(output):
            pass
    with work_in(output) as work:
        assert work
    with work_in(output, shared=True) as first:
        with work_in(output, shared=True) as second:
            assert first and second and not first.take_alone() and second.take_alone()
        unfinished = pytest.raises(DataError, match="unfinished work of another")
        with unfinished, work_in(output, "g", shared=True):
            pass
    with work_in(output, shared=True), another, work_in(output):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="name another"), work_in(tmp_path / "file" / "out"):
        pass


@pytest.mark.parametrize("seed", range(5))
def test_exactly_one_of_many_shares_publishes(seed: int, tmp_path: Path) -> None:
    """Sixteen shares end within milliseconds; locks belong to open files, so threads suffice."""
    output, manifest = tmp_path / "out", tmp_path / "out" / "manifest.json"
    assembled: list[int] = []

    def do_share(number: int) -> None:
        naps = random.Random(f"{seed} {number}")
        with work_in(output, is_done=manifest.exists, shared=True) as work:
            if work is None:
                return
            time.sleep(naps.choice([0, 0.001, 0.01]))
            (work.path / f"share-{number}").touch()
            if work.take_alone() and len([*work.path.glob("share-*")]) == 16:
                assembled.append(number)
                time.sleep(0.02)
                manifest.touch()
                for path in work.path.iterdir():
                    path.unlink()
                work.path.rmdir()

    with ThreadPoolExecutor(16) as pool:
        assert len([*pool.map(do_share, range(16))]) == 16
    assert len(assembled) == 1
    assert [path.name for path in output.iterdir()] == ["manifest.json"]


def test_a_share_that_waited_for_the_last_finds_all_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A share is started again while the last one publishes."""
    output, manifest = tmp_path / "out", tmp_path / "out" / "manifest.json"
    found: list[object] = []

    def come_late() -> None:
        with work_in(output, is_done=manifest.exists, shared=True) as work:
            found.append(work)

    with work_in(output, is_done=manifest.exists, shared=True) as work:
        assert work and work.take_alone()
        late = threading.Thread(target=come_late)
        late.start()
        while "waiting for another" not in capsys.readouterr().out:
            time.sleep(0.01)
        assert not found
        manifest.touch()
        for path in work.path.iterdir():
            path.unlink()
        work.path.rmdir()
    late.join(timeout=10)
    assert found == [None]
    assert not (output / WORK).exists()


@pytest.mark.usefixtures("no_locks")
def test_a_file_system_without_locks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with work_in(tmp_path / "out", shared=True) as work:
        assert work and not work.has_locks and not work.take_alone()
    assert "run the command without --part" in capsys.readouterr().out
    with work_in(tmp_path / "out") as work:
        assert work
    assert "start one command at a time" in capsys.readouterr().out


@dataclass(frozen=True)
class Touch:
    """Makes its marker."""

    name: str
    weight: int = 1

    @property
    def marker(self) -> str:
        return f"{self.name}.json"


TASKS = [Touch("a"), Touch("b"), Touch("c"), Touch("d")]


def finish_tasks(output: Path, part: tuple[int, int] | None) -> tuple[bool, str]:
    """What `finish` returns, and the tasks that are done."""
    with work_in(output, shared=part is not None) as work:
        assert work
        directory = work.path
        stage = Stage(directory, partial(partial, lambda task: (directory / task.marker).touch()))
        publishes = work.finish(stage, TASKS, local_executor(1), part)
        return publishes, "".join(sorted(path.stem for path in directory.glob("[a-d].json")))


def test_the_last_part_does_what_a_dead_one_has_begun(tmp_path: Path) -> None:
    """It died after the last one had passed its task over, and before this one was alone."""
    directory = tmp_path / "out" / WORK
    directory.mkdir(parents=True)
    with one_at_a_time(lock_of(directory / "b.json")):
        with work_in(tmp_path / "out", shared=True):
            assert finish_tasks(tmp_path / "out", (1, 2)) == (False, "acd")
        assert finish_tasks(tmp_path / "out", (1, 2)) == (True, "abcd")


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(("part", "found"), [((2, 2), (False, "bd")), (None, (True, "abcd"))])
def test_without_locks_a_part_does_its_share_only(
    part: tuple[int, int] | None, found: tuple[bool, str], tmp_path: Path
) -> None:
    assert finish_tasks(tmp_path / "out", part) == found
