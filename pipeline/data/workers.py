"""Processes of this machine that do tasks, in any order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, get_context, parent_process
from multiprocessing.queues import Queue

from pipeline.data.progress import with_progress
from pipeline.data.splits import Job, Task, Worker, task_marker
from pipeline.data.vocabulary import Vocabulary
from pipeline.errors import DataError

Team = Callable[[Job, list[Task], Vocabulary], Iterator[Task]]
"""Whoever does tasks: makes all parts of all that it is given, and yields each that is finished."""

_worker: Worker


def do_tasks(
    job: Job, tasks: list[Task], vocabulary: Vocabulary, team: Team, *, in_log: bool
) -> None:
    """Have `team` make every part of every task that is not there yet; in_log: see progress."""
    waiting = unfinished(job, tasks)
    total, left = (sum(task.weight for task in some) for some in (tasks, waiting))
    # The longest first, or the others would wait for it at the end.
    waiting.sort(key=lambda task: task.weight, reverse=True)
    finished = team(job, waiting, vocabulary)
    for _ in with_progress(finished, lambda task: task.weight, total, total - left, in_log=in_log):
        pass


def unfinished(job: Job, tasks: list[Task]) -> list[Task]:
    """The tasks of which parts are missing."""
    # One look at the directory: over a network it is fresher than many looks at single names.
    there = {path.name for path in job.directory.iterdir()}
    return [task for task in tasks if task_marker(job.directory, task.number).name not in there]


def share(tasks: list[Task], number: int, count: int) -> list[Task]:
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

    def finished(job: Job, tasks: list[Task], vocabulary: Vocabulary) -> Iterator[Task]:
        if min(workers, len(tasks)) > 1:
            yield from _in_pool(job, tasks, vocabulary, min(workers, len(tasks)))
        elif tasks:
            worker = Worker.create(job, vocabulary)
            for task in tasks:
                worker.do(task)
                yield task

    return finished


def _in_pool(job: Job, tasks: list[Task], vocabulary: Vocabulary, workers: int) -> Iterator[Task]:
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
                needed.put((job, vocabulary))
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


def _start_worker(needed: Queue[tuple[Job, Vocabulary]]) -> None:
    global _worker
    threading.Thread(target=_follow_parent, daemon=True).start()
    _worker = Worker.create(*needed.get())


def _follow_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _do(task: Task) -> None:
    _worker.do(task)
