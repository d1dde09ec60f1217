"""The ranks of an MPI job as one executor: the first hands out tasks, all ranks do them.

Ranks exchange small messages with the first rank only, and sleep between two polls: MPI's own
waiting would keep cores busy. The first rank sends messages in its main thread and does tasks in
another one. Every rank reports errors to the first, which prints the error and aborts the job. The
launcher ends the job when a rank dies. Parts are whole or absent, so the next run continues after
what is finished.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from pipeline.data.execution.workers import AnyTask, Stage, Task
from pipeline.errors import (
    EXIT_BY_USER,
    EXIT_USER_ERROR,
    ConfigError,
    PipelineError,
    run_command,
)

if TYPE_CHECKING:
    from mpi4py import MPI

LAUNCHERS = {
    # variables of size and rank: Open MPI's mpirun; MPICH's, Intel's and Cray's mpiexec and Slurm's
    # pmi2; srun of any kind (not a batch script, which is one process whatever was allocated)
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
}
NAP_SECONDS = 0.005
"""Between two looks for a message: a hundredth of a task's time."""
_LAST_WORD_SECONDS = 2.0
"""For the first rank to say what is wrong."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that a launcher started."""

    comm: MPI.Intracomm
    rank: int
    size: int
    hosts: int

    @contextmanager
    def leading(self) -> Iterator[None]:
        """What the first rank does in here; then all leave. Errors are `run_together`'s."""
        try:
            yield
        except SystemExit as stop:
            if not stop.code:
                self._dismiss()
            raise
        self._dismiss()

    def run(self, stage: Stage[AnyTask], tasks: list[AnyTask]) -> Iterator[AnyTask]:
        """Have all ranks do `tasks`; each free rank gets the next. Called by the first rank."""
        waiting = deque(tasks)
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        work = threading.Thread(target=_work, args=(0, inbox.get, outbox.put), daemon=True)
        work.start()

        def give(rank: int, message: object) -> None:
            if rank == 0:
                inbox.put(message)
            else:
                self.comm.send(message, dest=rank)

        for rank in range(min(self.size, len(tasks))):
            give(rank, stage)
            give(rank, waiting.popleft())
        for _ in tasks:
            rank, report = self._next_report(outbox)
            if isinstance(report, Exception):
                raise report
            if waiting:
                give(rank, waiting.popleft())
            yield report
        inbox.put(None)

    def follow(self) -> None:
        """What every other rank does: tasks, until the first rank says that there are no more."""
        # srun ends all when one ends; the exit code of an error is then everyone's.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_USER_ERROR))
        try:
            _work(self.rank, self._hear, lambda report: self.comm.send(report, dest=0))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            time.sleep(_LAST_WORD_SECONDS)
            sys.exit(EXIT_BY_USER)

    def _hear(self) -> Any:
        while not self.comm.iprobe(source=0):
            time.sleep(NAP_SECONDS)
        message = self.comm.recv(source=0)
        if isinstance(message, int):
            os._exit(message)
        return message

    def _next_report(self, own: queue.SimpleQueue[Any]) -> tuple[int, Any]:
        """Who has finished a task, and which, or what went wrong; own: of this rank's thread."""
        from mpi4py import MPI

        status = MPI.Status()
        while True:
            if self.comm.iprobe(status=status):
                return status.Get_source(), self.comm.recv(source=status.Get_source())
            try:
                return 0, own.get(timeout=NAP_SECONDS)
            except queue.Empty:
                continue

    def _dismiss(self) -> None:
        for rank in range(1, self.size):
            self.comm.send(None, dest=rank)


def _work(
    rank: int, receive: Callable[[], Any], report: Callable[[Task | Exception], None]
) -> None:
    """Receive a stage, then its tasks, then the next stage, until None.

    Reports each task that is done, or the error.
    """
    try:
        message = receive()
        while message is not None:
            message = _do_all(rank, message, receive, report)
    except (PipelineError, OSError) as error:
        report(error)
        receive()  # till the first rank ends all
    except Exception:  # a mistake of ours; the first rank shows where
        report(RuntimeError(f"rank {rank}:\n{traceback.format_exc()}"))
        receive()


def _do_all(
    rank: int,
    stage: Stage[Any],
    receive: Callable[[], Any],
    report: Callable[[Task | Exception], None],
) -> Any:
    """Do the tasks that follow `stage`; returns the message after them, a stage or None."""
    with (stage.directory / f"rank-{rank:05d}.log").open("a") as log:
        _write(log, f"rank {rank}, process {os.getpid()} on {socket.gethostname()}")
        do_task = stage.start()
        while (message := receive()) is not None and not isinstance(message, Stage):
            began_at = time.monotonic()
            do_task(message)
            seconds = time.monotonic() - began_at
            _write(log, f"{message.name}, {message.weight / 1e6:.1f} MB: {seconds:.1f} s")
            report(message)
    return message


def run_together(main: Callable[[], None]) -> None:
    """`run_command` for what MPI may have started: with the error of one rank all end, at once."""
    try:
        run_command(main)
    except SystemExit as stop:
        if stop.code and _has_joined():
            _end_all(stop.code if isinstance(stop.code, int) else 1)
        raise
    except BaseException:
        if _has_joined():
            traceback.print_exc()
            _end_all(1)
        raise


def _has_joined() -> bool:
    if "mpi4py.MPI" not in sys.modules:
        return False
    from mpi4py import MPI

    return MPI.Is_initialized() and MPI.COMM_WORLD.size > 1


def _end_all(code: int) -> NoReturn:
    """End every rank so that the launcher's exit code is `code`.

    mpiexec loses the codes of ranks that leave one by one, and keeps that of an abort. srun's is
    the highest of all, which is 137 of those that an abort kills: there each is asked to leave.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    sys.stdout.flush()
    sys.stderr.flush()
    by_srun = _number("SLURM_STEP_NUM_TASKS") > 0 and "PMI_HOSTNAME" not in os.environ
    if not by_srun or comm.rank:
        _wait_till_read()
        comm.Abort(code)
        os._exit(code)  # an abort may come back
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))  # as soon as one has left
    for rank in range(1, comm.size):
        comm.send(code, dest=rank)
    until = time.monotonic() + _LAST_WORD_SECONDS / 2
    while time.monotonic() < until:  # MPI sends while it is called
        comm.iprobe()
        time.sleep(NAP_SECONDS)
    os._exit(code)


def _wait_till_read() -> None:
    """Until the launcher has taken what this process said: an abort overtakes it in the pipe."""
    until = time.monotonic() + _LAST_WORD_SECONDS
    for descriptor in (1, 2):
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            while _unread(descriptor) and time.monotonic() < until:
                time.sleep(NAP_SECONDS)


def _unread(pipe: int) -> int:
    """Bytes that wait in a pipe, of which we may hold the writing end."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


def announced_size() -> int:
    """How many processes a launcher says it started; 1 without one."""
    return max(1, *(_number(name) for name in LAUNCHERS))


def join() -> Ranks | None:
    """Meet the other ranks; None without a launcher, and then mpi4py is not even imported.

    ConfigError, from the first process alone, when a launcher started several that cannot meet:
    each would do all the work, and write over the others' files.
    """
    if announced_size() == 1:
        return None
    try:
        return _join()
    except ConfigError:
        if any(_number(rank) > 0 for rank in LAUNCHERS.values()):
            # Some launchers end all when one ends, and take the exit code from whom they ended.
            signal.signal(signal.SIGTERM, lambda *_: os._exit(EXIT_USER_ERROR))
            time.sleep(_LAST_WORD_SECONDS)
            sys.exit(EXIT_USER_ERROR)
        raise


def _leave_ucx_out() -> None:
    """Let the MPICH of PyPI use libfabric, where this environment has it and the user chose none.

    With UCX it hands the process manager 4,096 bytes, although the address has a few hundred; the
    others are what follows in memory. It shortens runs of zeros and writes lines of up to 1,080
    characters; Slurm's pmi2 reads 1,024 (seen with MPICH 5.0.2 and Slurm 22.05). The content of the
    memory decides whether the job starts, ends in MPI_Init or hangs there.
    """
    with suppress(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("mpich")
        os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")


def _join() -> Ranks:
    _leave_ucx_out()
    told = {name: _number(name) for name in LAUNCHERS if _number(name) > 1}
    said = ", ".join(f"{name}={value}" for name, value in told.items())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what is refused below
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # RuntimeError: mpi4py is there, and finds no MPI library
        raise ConfigError(
            f"a launcher started several processes ({said}), which need MPI: {error}; "
            "pip install mpi4py and load your site's MPI, or use --part"
        ) from error
    comm = MPI.COMM_WORLD
    if comm.size == 1 or comm.size not in told.values():
        library = MPI.Get_library_version().strip().splitlines()[0].strip("\0 ,")
        raise ConfigError(
            f"a launcher started several processes ({said}), but MPI sees {comm.size}: it belongs "
            f"to another MPI than mpi4py's ({library}); use that one's mpiexec, or srun --mpi=pmi2 "
            "(MPICH) or --mpi=pmix (Open MPI), or --part"
        )
    hosts = comm.allgather(socket.gethostname())
    return Ranks(comm, comm.rank, comm.size, len(set(hosts)))


def _number(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else 0


def _write(log: TextIO, text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=log, flush=True)
