"""Tasks, the executor that does the unfinished ones, and this machine's worker processes."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context, parent_process
from multiprocessing.queues import Queue
from operator import methodcaller
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pipeline.base.errors import DataError, guard_outputs
from pipeline.base.files import one_at_a_time, open_lock, try_lock
from pipeline.base.progress import with_progress
from pipeline.execution.ledger import lock_of


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
        """Expected bytes of input."""

    @property
    def name(self) -> str:
        """The task in logs."""

    @property
    def marker(self) -> str:
        """Name of the file in the stage's directory that exists once the task is done."""


Result = TypeVar("Result")
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
    is_light: bool = False
    """True if the tasks take less time than processes need to start."""


class Runner(Protocol):
    """Processes that do tasks."""

    def __call__(
        self, stage: Stage[AnyTask], tasks: Iterable[AnyTask]
    ) -> Iterator[tuple[AnyTask, Any]]:
        """Do all tasks; yield each with its result when it is finished.

        They start in this order, and each is asked for when a process is about to be free."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Does the tasks of a stage, largest first.

    A large task started last would keep all other processes waiting."""

    runner: Runner

    def run(self, stage: Stage[AnyLastingTask], tasks: list[AnyLastingTask]) -> None:
        """Do all unfinished tasks and show progress."""
        waiting = unfinished(stage, tasks)
        _show(tasks, waiting, (task for task, _ in self.results(stage, waiting)))

    def take(
        self,
        stage: Stage[AnyLastingTask],
        tasks: list[AnyLastingTask],
        part: tuple[int, int] = (1, 1),
        *,
        waits: bool = True,
    ) -> None:
        """Do unfinished tasks with other processes that do the same, and show progress.

        1. The share of `part` in a job array comes first, so parts rarely meet.
        2. When all of it is handed out, the directory is listed again, and every other task that
           is unfinished is tried, of whichever part, which may be slow, dead or not started.
        3. A process that does a task holds its lock. What another one holds is passed over, so that
           two never wait for each other, and is left to that process, or with `waits` tried again
           at the end: then it is finished, or its process has died."""
        waiting = unfinished(stage, tasks)
        _show(tasks, waiting, self._taken(stage, waiting, tasks, part, waits))

    def _taken(
        self,
        stage: Stage[AnyLastingTask],
        waiting: list[AnyLastingTask],
        tasks: list[AnyLastingTask],
        part: tuple[int, int],
        waits: bool,
    ) -> Iterator[AnyLastingTask]:
        """Yield the tasks that `take` finds finished, or has finished."""
        shared = Stage(stage.directory, partial(_start_shared, stage))
        held: list[AnyLastingTask] = []
        in_turn = (SharedTask(task, waits=False) for task in _in_turn(stage, waiting, tasks, part))
        for tried, is_finished in self.runner(shared, in_turn):
            if is_finished:
                yield tried.task
            else:
                held.append(tried.task)
        if waits and held:
            last = [SharedTask(task, waits=True) for task in unfinished(stage, held)]
            yield from (tried.task for tried, _ in self.runner(shared, last))

    def results(self, stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        """Do all tasks; yield each with its result when it is finished."""
        yield from self.runner(stage, _largest_first(tasks))

    def call(
        self, functions: Sequence[Callable[[], Result]], *, is_light: bool = False
    ) -> list[Result]:
        """Call functions that can be pickled, in this order; is_light: as for `Stage`."""
        calls = [_Call(number, function) for number, function in enumerate(functions)]
        stage = Stage(None, partial(methodcaller, "function"), is_light)
        found = {call.number: result for call, result in self.results(stage, calls)}
        return [found[call.number] for call in calls]  # they finished in another order


@dataclass(frozen=True, slots=True)
class _Call:
    """A task that is a function of its own."""

    number: int
    function: Callable[[], Any]
    weight: int = 0

    @property
    def name(self) -> str:
        return f"call {self.number}"


@dataclass(frozen=True, slots=True)
class SharedTask(Generic[AnyLastingTask]):
    """A task that other processes may take, too."""

    task: AnyLastingTask
    waits: bool
    """Wait for a process that has taken it; otherwise it is passed over."""

    @property
    def weight(self) -> int:
        """Weight of the task."""
        return self.task.weight

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.task.name


def _start_shared(
    stage: Stage[AnyLastingTask],
) -> Callable[[SharedTask[AnyLastingTask]], bool]:
    assert stage.directory is not None, "which has the markers and locks"
    return partial(_do_shared, stage.directory, stage.start())


def _do_shared(
    directory: Path,
    do_task: Callable[[AnyLastingTask], Any],
    shared: SharedTask[AnyLastingTask],
) -> bool:
    """Do a task unless it is finished; False if another process has taken it.

    The process that does it holds the lock, not the one that hands it out: a job can have more
    ranks than a process may have open files."""
    marker = directory / shared.task.marker
    lock = lock_of(marker)
    with one_at_a_time(lock) if shared.waits else open_lock(lock) as file:
        if not shared.waits and file and try_lock(file) is False:
            return False
        if not marker.exists():  # the lock's last holder may have finished it
            do_task(shared.task)
    lock.unlink(missing_ok=True)  # a process that has opened it finds the marker
    return True


def _in_turn(
    stage: Stage[AnyLastingTask],
    waiting: list[AnyLastingTask],
    tasks: list[AnyLastingTask],
    part: tuple[int, int],
) -> Iterator[AnyLastingTask]:
    """Steps 1 and 2 of `Executor.take`; waiting: the unfinished tasks, for step 1."""
    mine = {task.marker for task in share(tasks, *part)}
    yield from _largest_first(task for task in waiting if task.marker in mine)
    if len(mine) == len(tasks):  # a single part: nothing to list again
        return
    others = _largest_first(task for task in unfinished(stage, tasks) if task.marker not in mine)
    first = len(others) * (part[0] - 1) // part[1]  # each part starts elsewhere
    yield from others[first:] + others[:first]


def _largest_first(tasks: Iterable[AnyTask]) -> list[AnyTask]:
    return sorted(tasks, key=lambda task: task.weight, reverse=True)


def _show(
    tasks: list[AnyLastingTask],
    waiting: list[AnyLastingTask],
    finished: Iterator[AnyLastingTask],
) -> None:
    """Show progress until all of `finished` has come; waiting: those of `tasks` not done before."""
    total, left = (sum(task.weight for task in some) for some in (tasks, waiting))
    for _ in with_progress(finished, lambda task: task.weight, total, total - left):
        pass


def unfinished(stage: Stage[AnyLastingTask], tasks: list[AnyLastingTask]) -> list[AnyLastingTask]:
    """The unfinished tasks."""
    assert stage.directory is not None, "which has the markers"
    # On network file systems a directory listing is fresher than cached lookups of single names.
    there = {path.name for path in stage.directory.iterdir()}
    return [task for task in tasks if task.marker not in there]


def share(tasks: list[AnyTask], number: int, count: int) -> list[AnyTask]:
    """Share `number`, from 1, of `count` shares of about equal weight."""
    weights = [0] * count  # every part computes all shares, so no messages
    mine = []
    for task in _largest_first(tasks):  # stable, so all parts cut the same shares
        lightest = weights.index(min(weights))  # within 4/3 of the best (Graham 1969)
        weights[lightest] += task.weight
        if lightest == number - 1:
            mine.append(task)
    return mine


def local_executor(workers: int) -> Executor:
    """An executor with `workers` processes on this machine; a single one is this process.

    They stay from stage to stage, and end with the executor."""
    waiting: list[_Pool] = []

    def finished(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        left = iter(tasks)
        first = [*itertools.islice(left, workers)]
        if len(first) > 1 and (waiting or not stage.is_light):  # one task needs no pool
            pool = waiting.pop() if waiting else _Pool(workers)
            yield from pool.run(stage, itertools.chain(first, left))
            waiting.append(pool)  # unless the stage failed
        elif first:
            do_task = stage.start()
            for task in itertools.chain(first, left):
                yield task, do_task(task)

    return Executor(finished)


class _Pool:
    """Processes that do the tasks of one stage after another."""

    def __init__(self, workers: int) -> None:
        # spawn: a forked child would inherit the locks of threads that do not exist in it
        context = get_context("spawn")
        # A stage can be large, so it is sent through a queue, whose thread waits for the workers.
        # With a task it would block this thread, and Ctrl-C, until they have finished importing.
        self.stages: Queue[tuple[int, Stage[Any]]] = context.Queue()
        self.stages.cancel_join_thread()  # an exit must not wait until stages are read
        self.number = 0  # of the stage, from 1
        self.workers = workers
        self.processes = ProcessPoolExecutor(workers, context, _start_worker, (self.stages,))
        # The queue's semaphores go with this object. A process that is still importing would not
        # find them and end with a traceback, so processes end first.
        weakref.finalize(self, _end, self.processes)

    def run(self, stage: Stage[AnyTask], tasks: Iterator[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        """As `Runner`; of no use after an error."""
        self.number += 1

        def submit(task: AnyTask) -> Future[Any]:
            return self.processes.submit(_do, self.number, task)

        try:
            with _without_interrupts():
                # one more for each worker, which then waits for nothing
                first = [*itertools.islice(tasks, 2 * self.workers)]
                for _ in first[: self.workers]:
                    self.stages.put((self.number, stage))
                futures = {submit(task): task for task in first}
            while futures:
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    task, result = futures.pop(future), future.result()
                    for following in itertools.islice(tasks, 1):
                        with _without_interrupts():  # it may start a process
                            futures[submit(following)] = following
                    yield task, result
        except BaseException as error:
            _end(self.processes)
            if not isinstance(error, BrokenProcessPool):
                raise
            raise DataError(
                f"one of {self.workers} workers died, killed or out of memory; finished work is "
                "kept: run the same command again, with fewer --workers if memory is short"
            ) from error


def _end(processes: ProcessPoolExecutor) -> None:
    """Stop all at once, as results are complete or absent; wait, as none may write later."""
    for process in [*(processes._processes or {}).values()]:  # has no public name before 3.14
        process.terminate()
    processes.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes started in this block; raise it afterwards if it was pressed.

    An interpreter that is interrupted while it starts dies with a fatal error. Children inherit the
    blocked signal; another thread of this process (Arrow's) may still receive it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield  # a shell started this command in the background
        return
    asked: list[int] = []  # a list, as the handler cannot assign a local name
    handler = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a pending Ctrl-C still reaches ours
        signal.signal(signal.SIGINT, handler)
    if asked:
        raise KeyboardInterrupt


@dataclass(slots=True)
class _Worker:
    """The state that a process of a `_Pool` keeps between tasks."""

    stages: Queue[tuple[int, Stage[Any]]]
    number: int = 0
    stage: Stage[Any] | None = None
    do_task: Callable[[Any], Any] | None = None

    def do(self, number: int, task: Task) -> Any:
        """Do a task of a stage, which is started first if it is another one."""
        if number != self.number:
            self.do_task = None  # frees what the stage before needed
        while number != self.number:  # those in which this process had no task come first
            self.number, self.stage = self.stages.get()
        if self.do_task is None:
            assert self.stage is not None
            self.do_task = self.stage.start()
        return self.do_task(task)


_worker: _Worker  # set once per process, by the pool's initializer


def _start_worker(stages: Queue[tuple[int, Stage[Any]]]) -> None:
    global _worker
    guard_outputs()
    threading.Thread(target=_follow_parent, daemon=True).start()
    _worker = _Worker(stages)


def _follow_parent() -> None:
    """Exit when the parent dies; otherwise the worker would wait forever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])  # readable once the parent has ended
    os._exit(1)  # from a thread: sys.exit would end only the thread


def _do(number: int, task: Task) -> Any:
    return _worker.do(number, task)
