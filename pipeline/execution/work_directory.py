"""OUT/.work: the directory of finished parts, and its lock.

A command that does everything holds an exclusive lock. A part of a job array (`--part i/n`) holds a
shared lock. It takes tasks, its own share first, until each is finished or in progress elsewhere,
and asks for the exclusive lock then. Only the last part gets it, so exactly one process publishes
the shards, while no other writes. The kernel releases the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.base.errors import DataError
from pipeline.base.files import open_lock, try_lock
from pipeline.execution.ledger import record_once
from pipeline.execution.workers import AnyLastingTask, Executor, Stage, share

WORK = ".work"
_LOCK = "lock"


@dataclass(slots=True)
class WorkDirectory:
    """OUT/.work while this process has it locked."""

    path: Path
    lock: BinaryIO
    has_locks: bool
    """False on a file system without locks."""

    def finish(
        self,
        stage: Stage[AnyLastingTask],
        tasks: list[AnyLastingTask],
        executor: Executor,
        part: tuple[int, int] | None,
    ) -> bool:
        """Do the tasks, or a part's share. True if this process is the one to publish the shards.

        Prints why not. part: None for a command that does everything.
        """
        if part is None:
            executor.run(stage, tasks)
            return True
        name = f"part {part[0]}/{part[1]} is finished"
        if not self.has_locks:
            # It is unknown which tasks of other parts are in progress.
            executor.run(stage, share(tasks, *part))
            print(f"{name}; run the command without --part once all parts are finished")
            return False
        # Waiting would idle this part's cores: the last part finishes what a dead one left.
        executor.take(stage, tasks, part, waits=False)
        if not self.take_alone():
            print(f"{name}; other parts are running, and the last to finish publishes the shards")
            return False
        executor.run(stage, tasks)  # those of a part that died after this one passed them over
        return True

    def take_alone(self) -> bool:
        """Upgrade to the exclusive lock. False, with the lock released, if another process has one.

        The kernel releases a lock before it upgrades it, so if several processes ask at the same
        time, one of them gets it.
        """
        return bool(try_lock(self.lock))


@contextmanager
def work_directory(
    output: Path,
    fingerprint: str,
    plan: dict[str, Any],
    is_done: Callable[[], bool],
    *,
    shared: bool = False,
    explain: Callable[[Path], object] = lambda work: None,
    made_of: str = "recipe, input, tokenizer or version",
) -> Iterator[WorkDirectory | None]:
    """OUT/.work, locked and checked against fingerprint and plan; None if `output` is complete.

    plan: what must not change between a run and its restart, as JSON; shared: allow other processes
    that do shares of the same work; explain: called if the plan differs and the fingerprint does
    not, to raise a more precise error; made_of: what decides the fingerprint, in words. Raises
    DataError if `output` holds something else, is in use, or cannot be written.
    """
    directory = output / WORK
    # In this order: other processes may start or finish between any two of these checks.
    foreign = output.is_dir() and any(path != directory for path in output.iterdir())
    if foreign and not directory.exists() and not is_done():
        raise DataError(f"--output {output} holds other files; name a new directory")
    work = _enter(output, directory, is_done, shared)
    if work is None:
        yield None
        return
    with work.lock:  # closing the file releases the lock
        _check_plan(directory, {"fingerprint": fingerprint} | plan, explain, made_of)
        yield work


def _enter(
    output: Path, directory: Path, is_done: Callable[[], bool], shared: bool
) -> WorkDirectory | None:
    """Lock the directory. Its last holder may finish and remove it while this process waits."""
    while not is_done():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = open_lock(directory / _LOCK)
        except FileNotFoundError:  # removed between the two calls: made again, unless it is done
            continue
        except OSError as error:
            raise DataError(
                f"cannot write to {output}: {error.strerror}; name another --output"
            ) from error
        # Closes the lock file, and so releases it, on every way out but the last.
        with ExitStack() as unless_held:
            unless_held.enter_context(lock)
            has_locks = _lock(lock, output, shared)
            # Checked again under the lock: its last holder may have published meanwhile.
            if is_done():
                return None
            unless_held.pop_all()
            return WorkDirectory(directory, lock, has_locks)
    return None


def _lock(lock: BinaryIO, output: Path, shared: bool) -> bool:
    """Lock the open file; False on a file system without locks."""
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if not shared:
            raise DataError(f"another process is writing {output}; wait for it") from error
        # Usually a part that briefly checks whether all are done.
        print(f"waiting for another process that has locked {output}", flush=True)
        fcntl.flock(lock, operation)
    except OSError:
        # Parts appear by rename, so two runs at a time only waste work.
        advice = (
            "when all parts are finished, run the command without --part"
            if shared
            else "start one command at a time"
        )
        print(f"note: {output} is on a file system without locks; {advice}", flush=True)
        return False
    return True


def _check_plan(
    directory: Path, content: dict[str, Any], explain: Callable[[Path], object], made_of: str
) -> None:
    """Write the plan, or compare it with the existing one."""
    remedy = f"remove {directory} to start over, or name another --output"
    found = record_once(directory / "plan.json", content, remedy)
    if found != content:
        # The same result from other splits or files: the caller can say which.
        if found.get("fingerprint") == content["fingerprint"]:
            explain(directory)
        raise DataError(f"{directory.parent} holds unfinished work of another {made_of}; {remedy}")
