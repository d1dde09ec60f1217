"""The ranks of an MPI job as one executor: rank 0 hands out tasks, and all ranks do them.

1. Rank 0 sends each rank the stage and a first task. It does its own tasks in a second thread.
2. A rank reports each finished task to rank 0, which sends it the next one.
3. An error is reported in the same way. Rank 0 prints it and aborts the job.
4. After the last stage, rank 0 dismisses the others.

Ranks sleep between polls, as MPI's own waiting keeps cores busy. The launcher ends the job if a
rank dies. Parts are complete or absent, so the next run keeps finished work.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.metadata
import itertools
import os
import queue
import signal
import socket
import stat
import struct
import sys
import termios
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pipeline.base.command_line import cores
from pipeline.base.errors import (
    EXIT_BY_USER,
    EXIT_USER_ERROR,
    ConfigError,
    PipelineError,
    run_command,
)
from pipeline.execution.workers import AnyTask, Executor, Stage, Task, local_executor

if TYPE_CHECKING:
    from mpi4py import MPI

LAUNCHERS = {
    # world size: rank, as set by Open MPI's mpirun; by MPICH's, Intel's and Cray's mpiexec and
    # Slurm's pmi2; by every srun (a batch script is one process, whatever its allocation)
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
}
NAP_SECONDS = 0.005
"""Time between polls for a message: a hundredth of a task's time."""
_LAST_WORD_SECONDS = 2.0
"""Time for rank 0 to print an error before the job ends."""
_STAGGER_SECONDS = 4.0
"""Most time between the starts of two ranks on busy nodes."""
_Report = tuple[Task, Any] | Exception


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's rank in an MPI job."""

    comm: MPI.Intracomm
    rank: int
    size: int
    hosts: int

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Dismiss the other ranks after the block, unless it fails; see `run_together`."""
        try:
            yield
        except SystemExit as stop:
            # With an error `run_together` ends all ranks, which need its exit code.
            if not stop.code:
                self._dismiss()
            raise
        self._dismiss()

    def run(self, stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        """Have all ranks do `tasks`; each free rank gets the next one. Called by rank 0."""
        waiting = iter(tasks)
        busy = 0
        # Rank 0's own worker talks through queues, so only the main thread calls MPI.
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        work = threading.Thread(target=_work, args=(0, inbox.get, outbox.put), daemon=True)
        work.start()

        def give(rank: int, message: object) -> None:
            if rank == 0:
                inbox.put(message)
            else:
                self.comm.send(message, dest=rank)

        # 1. Ranks come first in the zip: when they are used up, no task has been taken in vain.
        for rank, task in zip(range(self.size), waiting):
            give(rank, stage)
            give(rank, task)
            busy += 1
        while busy:
            # 2. A result, or 3. an error: from another rank, or from rank 0's thread.
            rank, report = self._next_report(outbox)
            if isinstance(report, Exception):
                raise report
            busy -= 1
            for task in itertools.islice(waiting, 1):
                give(rank, task)
                busy += 1
            # The rank is busy again before the caller, who may be slow, handles this result.
            yield report
        inbox.put(None)  # ends the thread; the other ranks wait for the next stage

    def follow(self) -> None:
        """Do tasks until rank 0 dismisses this rank. Called by every other rank."""
        # srun terminates all ranks when one exits; all then report the exit code of an error.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_USER_ERROR))
        try:
            _work(self.rank, self._hear, lambda report: self.comm.send(report, dest=0))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would print a traceback
            # The launcher sends Ctrl-C to all ranks: only rank 0 prints a line about it.
            time.sleep(_LAST_WORD_SECONDS)
            sys.exit(EXIT_BY_USER)

    def _hear(self) -> Any:
        while not self.comm.iprobe(source=0):
            time.sleep(NAP_SECONDS)
        message = self.comm.recv(source=0)
        if isinstance(message, int):  # an exit code, from `_end_all` under srun
            os._exit(message)
        return message

    def _next_report(self, own: queue.SimpleQueue[Any]) -> tuple[int, Any]:
        """The next rank to report, and its finished task with the result, or error.

        own: rank 0's own reports.
        """
        from mpi4py import MPI

        status = MPI.Status()
        while True:
            if self.comm.iprobe(status=status):
                return status.Get_source(), self.comm.recv(source=status.Get_source())
            try:
                return 0, own.get(timeout=NAP_SECONDS)  # the nap, which an own report ends early
            except queue.Empty:
                continue

    def _dismiss(self) -> None:
        # 4. None ends `_work` on each of them.
        for rank in range(1, self.size):
            self.comm.send(None, dest=rank)


def _work(rank: int, receive: Callable[[], Any], report: Callable[[_Report], None]) -> None:
    """Receive a stage, then its tasks, then the next stage, until None.

    Reports each finished task with its result, or the error.
    """
    try:
        message = receive()
        while message is not None:
            message = _do_all(rank, message, receive, report)
    except (PipelineError, OSError) as error:
        report(error)
        receive()  # waits until rank 0 ends the job
    except Exception:  # a bug; rank 0 prints the traceback
        report(RuntimeError(f"rank {rank}:\n{traceback.format_exc()}"))
        receive()


def _do_all(
    rank: int,
    stage: Stage[Any],
    receive: Callable[[], Any],
    report: Callable[[_Report], None],
) -> Any:
    """Do the tasks that follow `stage`; returns the message after them, a stage or None."""
    path = stage.directory / f"rank-{rank:05d}.log" if stage.directory else Path(os.devnull)
    # A log for each rank: lines of many writers would mix in one file on a shared file system.
    with path.open("a") as log:
        _write(log, f"rank {rank}, process {os.getpid()} on {socket.gethostname()}")
        do_task = stage.start()
        while (message := receive()) is not None and not isinstance(message, Stage):
            started_at = time.monotonic()
            result = do_task(message)
            seconds = time.monotonic() - started_at
            _write(log, f"{message.name}, {message.weight / 1e6:.1f} MB: {seconds:.1f} s")
            report((message, result))
    return message


def spread(
    parse: Callable[[], argparse.Namespace],
    do: Callable[[argparse.Namespace, Executor], None],
    *,
    instead: str = "use --part",
    announced: bool = True,
) -> None:
    """The `main` of a command whose tasks are spread over this machine's workers or MPI ranks.

    parse: reads the command line, which has --workers; do: the command, called once, with the
    number of processes as `workers`; instead: what else a user without MPI can do; announced: print
    how many ranks there are.
    """
    ranks = join_mpi(instead)
    if ranks is None:
        arguments = parse()
        arguments.workers = arguments.workers or cores()
        do(arguments, local_executor(arguments.workers))
    elif ranks.rank:
        # Without parsing: a mistake in the command line is printed once, by rank 0.
        ranks.follow()
    else:
        with ranks.leading():
            arguments = parse()
            if arguments.workers:
                raise ConfigError(
                    f"--workers {arguments.workers}: under MPI every rank is a worker; omit "
                    "--workers, and start one rank per core"
                )
            if announced:
                print(f"{ranks.size} ranks on {ranks.hosts} node(s)", flush=True)
            arguments.workers = ranks.size
            do(arguments, Executor(ranks.run))


def run_together(main: Callable[[], None]) -> None:
    """`run_command` for a command that may run under MPI: an error on any rank ends all ranks."""
    try:
        run_command(main)
    except SystemExit as stop:
        if stop.code and _has_joined():
            _end_all(stop.code if isinstance(stop.code, int) else 1)
        raise
    except BaseException:
        if _has_joined():
            traceback.print_exc()  # here, as `_end_all` does not return
            _end_all(1)
        raise


def _has_joined() -> bool:
    if "mpi4py.MPI" not in sys.modules:  # importing it would initialize MPI
        return False
    from mpi4py import MPI

    return MPI.Is_initialized() and MPI.COMM_WORLD.size > 1


def _end_all(code: int) -> NoReturn:
    """End every rank so that the launcher exits with `code`.

    mpiexec loses the codes of ranks that exit one by one, and keeps the code of an abort. srun
    returns the highest code, which is 137 for ranks killed by an abort, so under srun rank 0 asks
    each rank to exit.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    sys.stdout.flush()  # os._exit and an abort flush nothing
    sys.stderr.flush()
    by_srun = _number("SLURM_STEP_NUM_TASKS") > 0 and "PMI_HOSTNAME" not in os.environ
    if not by_srun or comm.rank:
        _wait_till_read()
        comm.Abort(code)
        os._exit(code)  # Abort may return
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))  # sent once a rank has exited
    for rank in range(1, comm.size):
        comm.send(code, dest=rank)
    until = time.monotonic() + _LAST_WORD_SECONDS / 2
    while time.monotonic() < until:  # MPI makes progress only inside calls
        comm.iprobe()
        time.sleep(NAP_SECONDS)
    os._exit(code)


def _wait_till_read() -> None:
    """Wait until the launcher has read this process's output, which an abort would discard."""
    until = time.monotonic() + _LAST_WORD_SECONDS
    for descriptor in (1, 2):
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):  # a file keeps what is written
            while _unread(descriptor) and time.monotonic() < until:
                time.sleep(NAP_SECONDS)


def _unread(pipe: int) -> int:
    """Unread bytes in a pipe; works on its writing end too."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def announced_size() -> int:
    """The number of processes according to the launcher; 1 without a launcher."""
    # mpirun inside a batch script: Slurm's step has one process, mpirun several.
    return max(1, *(_number(name) for name in LAUNCHERS))


def join_mpi(instead: str = "use --part") -> Ranks | None:
    """Initialize MPI and return this process's rank; None, without mpi4py, for one process.

    instead: what else a user without MPI can do. Raises ConfigError, on rank 0 only, if a launcher
    started several processes that MPI does not connect: each would do all the work and overwrite
    the others' files.
    """
    if announced_size() == 1:
        return None
    try:
        return _join(instead)
    except ConfigError:
        if any(_number(rank) > 0 for rank in LAUNCHERS.values()):
            # Some launchers terminate all ranks when one exits, and return the code of any of them.
            signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_USER_ERROR))
            time.sleep(2 * _STAGGER_SECONDS)  # rank 0 should be the first to exit
            sys.exit(EXIT_USER_ERROR)
        time.sleep(_STAGGER_SECONDS)  # until the other ranks have that handler
        raise


def _avoid_ucx() -> None:
    """Make PyPI's MPICH use libfabric, unless the user has chosen a network module.

    With UCX, MPICH passes 4,096 bytes to the process manager, although an address has a few
    hundred; the rest is whatever follows in memory. It compresses runs of zeros and writes lines of
    up to 1,080 characters, but Slurm's pmi2 reads 1,024 (seen with MPICH 5.0.2 and Slurm 22.05). So
    the memory's content decides whether the job starts, or fails or hangs in MPI_Init.
    """
    with suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("mpich")
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")


def _join(instead: str) -> Ranks:
    _avoid_ucx()
    sizes = {name: _number(name) for name in LAUNCHERS if _number(name) > 1}
    shown = ", ".join(f"{name}={value}" for name, value in sizes.items())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the error that is raised below
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # RuntimeError: mpi4py is installed but finds no MPI library
        raise ConfigError(
            f"a launcher started several processes ({shown}), which need MPI: {error}; "
            f"pip install mpi4py and load your site's MPI, or {instead}"
        ) from error
    comm = MPI.COMM_WORLD
    # mpirun of one MPI with the library of another gives N times rank 0, each with exit code 0.
    if comm.size == 1 or comm.size not in sizes.values():
        library = MPI.Get_library_version().strip().splitlines()[0].strip("\0 ,")
        raise ConfigError(
            f"a launcher started several processes ({shown}), but MPI sees {comm.size}: the "
            f"launcher belongs to another MPI than mpi4py's ({library}); use that MPI's mpiexec, "
            f"srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI), or {instead}"
        )
    hosts = comm.allgather(socket.gethostname())
    return Ranks(comm, comm.rank, comm.size, len(set(hosts)))


def _number(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0


def _write(log: TextIO, text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=log, flush=True)
