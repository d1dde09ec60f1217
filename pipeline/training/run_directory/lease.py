"""RUN/lease.json: one process at a time writes a run directory.

The holder touches the file every few seconds. A second start that finds a lease

- continues if the holder has ended on this machine;
- is refused while the lease is fresh, i.e. touched within STALE_SECONDS;
- in the holder's own Slurm job, is refused while the holder runs on this machine, even if the lease
  is stale; if the holder ran elsewhere (on another node, in a container), a requeue, which raises
  SLURM_RESTART_COUNT, continues at once.

A holder that was replaced after a long stop ends itself instead of overwriting its successor's
files. Ages are read from the file system's own clock. If that clock was set back, the second start
watches whether the lease is still being touched. A damaged lease is one of an unknown holder: it is
refused while it is fresh.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from pipeline.base.errors import EXIT_USER_ERROR, CheckpointError
from pipeline.base.files import write_whole
from pipeline.base.process_scope import process_scope
from pipeline.base.typed_json import build, read_object
from pipeline.cluster.processes import read_start_time

LEASE = "lease.json"
HEARTBEAT_SECONDS = 10.0
CLOCK_SECONDS = 1.0
"""Allowed difference between the clocks that set a file's modification time."""
STALE_SECONDS = 60.0
"""Age at which a lease counts as abandoned: several heartbeats, should a file system stall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The content of lease.json: the process that wrote it."""

    token: str
    """Unique to each start."""
    host: str
    place: str
    """See `process_scope`."""
    process: int
    process_started: str
    slurm_job: str
    """Empty outside Slurm."""
    slurm_restart_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a run directory, or that held it and ended without a message."""

    host: str
    process: int
    slurm_job: str
    seen_seconds: float
    """Seconds since it touched the lease, by this machine's clock."""
    alive: bool
    """True if it still runs; for a process on another machine, if its lease is fresh."""


def find_holder(run: Path) -> Holder | None:
    """The holder in the lease of `run`; None without a lease. Writes nothing.

    Raises ValueError if the lease is damaged.
    """
    path = run / LEASE
    lease = _read(path)
    if lease is None:
        return None
    try:
        seen = max(0.0, time.time() - path.stat().st_mtime)
    except FileNotFoundError:
        return None
    if lease.place == process_scope():
        alive = read_start_time(lease.process) == lease.process_started
    else:
        alive = seen < STALE_SECONDS
    return Holder(
        host=lease.host,
        process=lease.process,
        slurm_job=lease.slurm_job,
        seen_seconds=seen,
        alive=alive,
    )


@contextmanager
def hold(run: Path, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Hold `run` inside. Raises CheckpointError if a live job holds it."""
    path = run / LEASE
    token = uuid.uuid4().hex
    # Two jobs that start at once would both find no live holder, and both write a lease.
    with _one_at_a_time(run):
        _refuse_if_live(path, heartbeat_seconds)
        write_whole(path, json.dumps(asdict(_mine(token)), indent=1).encode())
    ended = threading.Event()
    heart = threading.Thread(
        target=_beat, args=(path, token, heartbeat_seconds, ended), name="lease", daemon=True
    )
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()
        if _has_token(path, token):  # not after another job has taken over
            path.unlink(missing_ok=True)


def is_free(run: Path, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> bool:
    """True if `run` is held by this process or by no live job."""
    try:
        lease = _read(run / LEASE)
        if lease and replace(lease, token="") == _mine(""):  # whatever its token
            return True
    except ValueError:
        pass
    try:
        _refuse_if_live(run / LEASE, heartbeat_seconds)
    except CheckpointError:
        return False
    return True


def _refuse_if_live(path: Path, heartbeat_seconds: float) -> None:
    try:
        holder = _read(path)
    except ValueError as error:
        if (age := _age_unless_clock_is_off(path, heartbeat_seconds)) < STALE_SECONDS:
            raise CheckpointError(
                f"{path} is damaged ({error}), and was touched {age:.0f} s ago by a job that "
                "cannot be named; wait a minute, or remove the file if no job writes there"
            ) from error
        return
    if not holder:
        return
    in_sight = holder.place == process_scope()
    alive = in_sight and read_start_time(holder.process) == holder.process_started
    same_job = bool(holder.slurm_job) and holder.slurm_job == os.environ.get("SLURM_JOB_ID")
    requeued = same_job and _restart_count() > holder.slurm_restart_count
    if not alive and (in_sight or requeued):  # known to have ended, however fresh its lease
        return
    age = _age_unless_clock_is_off(path, heartbeat_seconds)
    if age < STALE_SECONDS or (alive and same_job):
        raise CheckpointError(f"{path.parent} {_in_use(holder, age, same_job)}")


def _age_unless_clock_is_off(path: Path, heartbeat_seconds: float) -> float:
    """Seconds since the last touch; if the clock was set back, 0 while the lease is touched."""
    age = _age_seconds(path)
    if age < -CLOCK_SECONDS:
        return 0.0 if _beats(path, 3 * heartbeat_seconds) else STALE_SECONDS  # a beat may be late
    return max(0.0, age)


def _in_use(holder: Lease, age: float, same_job: bool) -> str:
    process = f"process {holder.process} on {holder.host}, seen {age:.0f} s ago"
    if same_job:
        use = f"is in use by an earlier start in this Slurm job, {holder.slurm_job} ({process})"
    else:
        job = f"Slurm job {holder.slurm_job}, " if holder.slurm_job else ""
        use = f"belongs to a live job ({job}{process})"
    return f"{use}; wait for it, or name another --output"


def _beats(path: Path, seconds: float) -> bool:
    """True if a lease is still touched; for a lease from the future, after clocks were set back."""
    touched, ends_at = path.stat().st_mtime_ns, time.monotonic() + seconds
    while time.monotonic() < ends_at:
        time.sleep(seconds / 30)
        with suppress(FileNotFoundError):
            if path.stat().st_mtime_ns != touched:
                return True
    return False


def _beat(path: Path, token: str, seconds: float, ended: threading.Event) -> None:
    """Touch the lease until it ends; touching needs no space, so a full disk does not hinder it."""
    while not ended.wait(seconds):
        try:
            holder = _read(path)
            if holder and holder.token != token:
                print(
                    f"error: {path.parent} was taken over by process {holder.process} on "
                    f"{holder.host}; this one stops without writing",
                    file=sys.stderr,
                    flush=True,
                )
                # At once, and all threads: the successor owns these files.
                os._exit(EXIT_USER_ERROR)
            os.utime(path)
        except ValueError:
            with suppress(OSError):
                os.utime(path)  # damaged: the next start must still see a live holder
        except OSError:
            continue  # a stalled or remounting file system: the next beat may get through


def _mine(token: str) -> Lease:
    """The lease of this process."""
    return Lease(
        token=token,
        host=socket.gethostname(),
        place=process_scope(),
        process=os.getpid(),
        process_started=read_start_time(os.getpid()),
        slurm_job=os.environ.get("SLURM_JOB_ID", ""),
        slurm_restart_count=_restart_count(),
    )


def _restart_count() -> int:
    """Number of times Slurm has requeued this job."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _age_seconds(path: Path) -> float:
    """Seconds since the last touch, by the clock of that file system."""
    probe = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        # A new file has the server's time, as the lease has; this host's clock may differ.
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return STALE_SECONDS  # released in the meantime
    finally:
        probe.unlink(missing_ok=True)


def _read(path: Path) -> Lease | None:
    """The lease; None if there is none. Raises ValueError if it is damaged."""
    try:
        content = read_object(path)
    except FileNotFoundError:
        return None
    known = {field.name for field in fields(Lease)}  # a newer version may add entries
    return build(Lease, {name: value for name, value in content.items() if name in known})


def _has_token(path: Path, token: str) -> bool:
    """True if the lease is ours; not if it is damaged."""
    try:
        lease = _read(path)
    except ValueError:
        return False
    return lease is not None and lease.token == token


@contextmanager
def _one_at_a_time(run: Path) -> Iterator[None]:
    """Let jobs that start at the same time check the lease one after the other."""
    descriptor = os.open(run, os.O_RDONLY)
    try:
        with suppress(OSError):  # without locks on the file system, the heartbeat ends the loser
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
