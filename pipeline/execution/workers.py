"""Tasks, the executor that does the unfinished ones, and this machine's worker processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, connection, get_context, parent_process
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pipeline.base.errors import DataError
from pipeline.base.progress import with_progress


class Task(Protocol):
    """A unit of work."""

    @property
    def weight(self) -> int:
        """Expected bytes of input."""

    @property
    def name(self) -> str:
        """Its description in logs."""


class LastingTask(Protocol):
    """A task that writes files, the last of them its marker, so that it is done only once."""

    @property
    def weight(self) -> int:
        """As of any task."""

    @property
    def name(self) -> str:
        """As of any task."""

    @property
    def marker(self) -> str:
        """Name of the file in the stage's directory that exists once the task is done."""


AnyTask = TypeVar("AnyTask", bound=Task)
AnyLastingTask = TypeVar("AnyLastingTask", bound=LastingTask)


@dataclass(frozen=True, slots=True)
class Stage(Generic[AnyTask]):
    """What all tasks of one kind share; every process gets a copy."""

    directory: Path | None
    """Directory of results, markers and logs; None if tasks only return what they find."""
    start: Callable[[], Callable[[AnyTask], Any]]
    """Prepares a process; returns the function that does a task, or finishes an interrupted one.

    The result of that function is small, as it is sent between processes."""


class Runner(Protocol):
    """Processes that do tasks."""

    def __call__(
        self, stage: Stage[AnyTask], tasks: list[AnyTask]
    ) -> Iterator[tuple[AnyTask, Any]]:
        """Do all tasks, in any order; yield each with its result when it is finished."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Does the tasks of a stage, largest first.

    A large task started last would keep all other processes waiting.
    """

    runner: Runner

    def run(
        self,
        stage: Stage[AnyLastingTask],
        tasks: list[AnyLastingTask],
        part: tuple[int, int] = (1, 1),
    ) -> None:
        """Do all unfinished tasks and show progress; part: of a job array, does its share first."""
        if part != (1, 1):
            self.run(stage, share(tasks, *part))
        waiting = unfinished(stage, tasks)
        total, left = (sum(task.weight for task in some) for some in (tasks, waiting))
        finished = (task for task, _ in self.results(stage, waiting))
        for _ in with_progress(finished, lambda task: task.weight, total, total - left):
            pass

    def results(self, stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        """Do all tasks; yield each with its result when it is finished."""
        yield from self.runner(stage, sorted(tasks, key=lambda task: task.weight, reverse=True))


_do_task: Callable[[Any], None]


def unfinished(stage: Stage[AnyLastingTask], tasks: list[AnyLastingTask]) -> list[AnyLastingTask]:
    """The unfinished tasks."""
    assert stage.directory is not None, "which has the markers"
    # On network file systems a directory listing is fresher than cached lookups of single names.
    there = {path.name for path in stage.directory.iterdir()}
    return [task for task in tasks if task.marker not in there]


def share(tasks: list[AnyTask], number: int, count: int) -> list[AnyTask]:
    """Share `number`, from 1, of `count` shares of about equal weight."""
    weights = [0] * count
    mine = []
    for task in sorted(tasks, key=lambda task: task.weight, reverse=True):
        lightest = weights.index(min(weights))
        weights[lightest] += task.weight
        if lightest == number - 1:
            mine.append(task)
    return mine


def local_executor(workers: int) -> Executor:
    """An executor with `workers` processes on this machine; a single one is this process."""

    def finished(stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        if min(workers, len(tasks)) > 1:
            yield from _in_pool(stage, tasks, min(workers, len(tasks)))
        elif tasks:
            do_task = stage.start()
            for task in tasks:
                yield task, do_task(task)

    return Executor(finished)


def _in_pool(
    stage: Stage[AnyTask], tasks: list[AnyTask], workers: int
) -> Iterator[tuple[AnyTask, Any]]:
    # spawn: a forked child would inherit the locks of threads that do not exist in it
    context = get_context("spawn")
    # The stage can be large, so it is sent through a queue, whose thread waits for the workers.
    # Passed as an argument, it would block this thread, and Ctrl-C, until each worker has finished
    # its imports.
    needed = context.Queue()
    needed.cancel_join_thread()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (needed,))
    try:
        with _without_interrupts():
            for _ in range(workers):
                needed.put(stage)
            futures = {pool.submit(_do, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise DataError(
            f"one of {workers} workers died, killed or out of memory; finished work is "
            "kept: run the same command again, with fewer --workers if memory is short"
        ) from error
    except BaseException:
        # Parts are complete or absent, so a worker can be stopped at any time.
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes started in this block; raise it afterwards if it was pressed.

    An interpreter that is interrupted while it starts dies with a fatal error. Children inherit the
    blocked signal; another thread of this process (Arrow's) may still receive it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield  # a shell started this command in the background
        return
    asked: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
    if asked:
        raise KeyboardInterrupt


def _start_worker(needed: Queue[Stage[Any]]) -> None:
    global _do_task
    threading.Thread(target=_follow_parent, daemon=True).start()
    _do_task = needed.get().start()


def _follow_parent() -> None:
    """Exit when the parent dies; otherwise the worker would wait forever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _do(task: Task) -> Any:
    return _do_task(task)
