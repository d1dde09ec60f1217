"""Processes of this machine that do tasks, in any order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, get_context, parent_process
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pipeline.data.execution.progress import with_progress
from pipeline.errors import DataError


class Work(Protocol):
    """Something to do whose result is files."""

    @property
    def number(self) -> int:
        """Its place among all."""

    @property
    def weight(self) -> int:
        """Bytes that it is expected to take from the input."""

    @property
    def name(self) -> str:
        """What it is, for logs."""


AnyWork = TypeVar("AnyWork", bound=Work)
WorkIn = TypeVar("WorkIn", bound=Work, contravariant=True)


class Doer(Protocol[WorkIn]):
    """One process's tools for tasks of one kind."""

    def do(self, task: WorkIn) -> None:
        """Make what is not there yet."""


@runtime_checkable
class Setup(Protocol[WorkIn]):
    """What all tasks of one kind have in common; goes to every process."""

    @property
    def directory(self) -> Path:
        """Where results and logs go."""

    def worker(self) -> Doer[WorkIn]:
        """A process's tools."""

    def is_done(self, names: set[str], task: WorkIn) -> bool:
        """Whether a task's results are there; names: of what is in `directory`."""


class Team(Protocol):
    """Whoever does tasks: does all that it is given, and yields each that is finished."""

    def __call__(self, setup: Setup[AnyWork], tasks: list[AnyWork]) -> Iterator[AnyWork]:
        """setup and tasks are of one kind."""


_worker: Doer[Any]


def do_tasks(setup: Setup[AnyWork], tasks: list[AnyWork], team: Team, *, in_log: bool) -> None:
    """Have `team` do every task that is not done yet; in_log: see progress."""
    waiting = unfinished(setup, tasks)
    total, left = (sum(task.weight for task in some) for some in (tasks, waiting))
    # The longest first, or the others would wait for it at the end.
    waiting.sort(key=lambda task: task.weight, reverse=True)
    finished = team(setup, waiting)
    for _ in with_progress(finished, lambda task: task.weight, total, total - left, in_log=in_log):
        pass


def unfinished(setup: Setup[AnyWork], tasks: list[AnyWork]) -> list[AnyWork]:
    """The tasks that are not done."""
    # One look at the directory: over a network it is fresher than many looks at single names.
    there = {path.name for path in setup.directory.iterdir()}
    return [task for task in tasks if not setup.is_done(there, task)]


def share(tasks: list[AnyWork], number: int, count: int) -> list[AnyWork]:
    """Part `number`, from 1, of `count` parts of about the same weight; together they are all."""
    weights = [0] * count
    mine = []
    for task in sorted(tasks, key=lambda task: task.weight, reverse=True):
        lightest = weights.index(min(weights))
        weights[lightest] += task.weight
        if lightest == number - 1:
            mine.append(task)
    return mine


def local_team(workers: int) -> Team:
    """`workers` processes of this machine; one is this process itself."""

    def finished(setup: Setup[AnyWork], tasks: list[AnyWork]) -> Iterator[AnyWork]:
        if min(workers, len(tasks)) > 1:
            yield from _in_pool(setup, tasks, min(workers, len(tasks)))
        elif tasks:
            worker = setup.worker()
            for task in tasks:
                worker.do(task)
                yield task

    return finished


def _in_pool(setup: Setup[AnyWork], tasks: list[AnyWork], workers: int) -> Iterator[AnyWork]:
    # spawn: a forked child would inherit the locks of threads that do not exist in it
    context = get_context("spawn")
    # What is large comes by a queue, whose thread waits for a worker to take it. As an argument it
    # would have to wait in here, deaf to Ctrl-C, until each worker has imported everything.
    needed = context.Queue()
    needed.cancel_join_thread()
    pool = ProcessPoolExecutor(workers, context, _start_worker, (needed,))
    try:
        with _without_interrupts():
            for _ in range(workers):
                needed.put(setup)
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
        # Parts are whole or absent, so a worker may be stopped at once.
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in here never see Ctrl-C; one that comes meanwhile reaches us afterwards.

    An interpreter that is interrupted while it starts dies with a fatal error of its own. What is
    blocked here is blocked in our children; another thread of ours (Arrow's) may still be hit.
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


def _start_worker(needed: Queue[Setup[Any]]) -> None:
    global _worker
    threading.Thread(target=_follow_parent, daemon=True).start()
    _worker = needed.get().worker()


def _follow_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _do(task: Work) -> None:
    _worker.do(task)
