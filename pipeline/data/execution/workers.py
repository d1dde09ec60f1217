"""Tasks, the executor that does those that are not done, and this machine's processes for it."""

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

from pipeline.data.execution.progress import with_progress
from pipeline.errors import DataError


class Task(Protocol):
    """A piece of work whose result is files."""

    @property
    def weight(self) -> int:
        """Bytes that it is expected to read from the input."""

    @property
    def name(self) -> str:
        """What it is, for logs."""

    @property
    def marker(self) -> str:
        """Name of the file in the stage's directory that exists once the task is done."""


AnyTask = TypeVar("AnyTask", bound=Task)


@dataclass(frozen=True, slots=True)
class Stage(Generic[AnyTask]):
    """What all tasks of one kind have in common; every process gets a copy."""

    directory: Path
    """Holds results, markers and logs."""
    start: Callable[[], Callable[[AnyTask], None]]
    """Prepares a process; returns the function that does a task, or the rest of a killed one."""


class Runner(Protocol):
    """Processes that do tasks."""

    def __call__(self, stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[AnyTask]:
        """Do all tasks, in any order; yield each when it is finished."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Does the tasks of a stage that are not done yet, and shows progress."""

    runner: Runner
    in_log: bool = False
    """Print progress where there is no terminal."""

    def run(self, stage: Stage[AnyTask], tasks: list[AnyTask]) -> None:
        """Do every task that is not done yet, the largest first."""
        waiting = unfinished(stage, tasks)
        total, left = (sum(task.weight for task in some) for some in (tasks, waiting))
        # A large task that starts last would keep all other processes waiting.
        waiting.sort(key=lambda task: task.weight, reverse=True)
        finished = self.runner(stage, waiting)
        for _ in with_progress(
            finished, lambda task: task.weight, total, total - left, in_log=self.in_log
        ):
            pass


_do_task: Callable[[Any], None]


def unfinished(stage: Stage[AnyTask], tasks: list[AnyTask]) -> list[AnyTask]:
    """The tasks that are not done."""
    # Over a network, one listing of the directory is fresher than many looks at single names.
    there = {path.name for path in stage.directory.iterdir()}
    return [task for task in tasks if task.marker not in there]


def share(tasks: list[AnyTask], number: int, count: int) -> list[AnyTask]:
    """Part `number`, from 1, of `count` parts of about the same weight; together they are all."""
    weights = [0] * count
    mine = []
    for task in sorted(tasks, key=lambda task: task.weight, reverse=True):
        lightest = weights.index(min(weights))
        weights[lightest] += task.weight
        if lightest == number - 1:
            mine.append(task)
    return mine


def local_executor(workers: int, *, in_log: bool = False) -> Executor:
    """An executor with `workers` processes of this machine; one is this process itself."""

    def finished(stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[AnyTask]:
        if min(workers, len(tasks)) > 1:
            yield from _in_pool(stage, tasks, min(workers, len(tasks)))
        elif tasks:
            do_task = stage.start()
            for task in tasks:
                do_task(task)
                yield task

    return Executor(finished, in_log)


def _in_pool(stage: Stage[AnyTask], tasks: list[AnyTask], workers: int) -> Iterator[AnyTask]:
    # spawn: a forked child would inherit the locks of threads that do not exist in it
    context = get_context("spawn")
    # The stage can be large, so it travels through a queue, whose thread waits until a worker takes
    # it. Passed as an argument it would block this thread, and with it Ctrl-C, until each worker
    # has imported everything.
    needed = context.Queue()
    needed.cancel_join_thread()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (needed,))
    try:
        with _without_interrupts():
            for _ in range(workers):
                needed.put(stage)
            futures = {pool.submit(_do, task): task for task in tasks}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        raise DataError(
            f"one of {workers} workers died, killed or out of memory; finished splits are "
            "kept: run the same command again, with fewer --workers if memory is short"
        ) from error
    except BaseException:
        # Parts are whole or absent, so it is safe to stop a worker at once.
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C for processes started in here; raise it here afterwards if it was pressed.

    An interpreter that is interrupted while it starts dies with a fatal error of its own. Children
    inherit the blocked signal; another thread of this process (Arrow's) may still receive it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield  # a command that a shell has put into the background
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
    """Exit when the parent dies; otherwise the worker would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _do(task: Task) -> None:
    _do_task(task)
