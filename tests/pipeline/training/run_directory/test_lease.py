import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.training.run_directory.lease import LEASE, STALE_SECONDS, find_holder, hold, is_free
from tests.damaged_json import changed, damaged
from tests.pipeline.preparing import started

OTHER = {
    "token": "other", "host": "node7", "place": "another boot", "process": 4711,
    "process_started": "1", "slurm_job": "", "slurm_restart_count": 0,
}  # fmt: skip


def leave(run: Path, age: float = 0.0, **changed: Any) -> None:
    """The lease of another job, touched `age` seconds ago."""
    path = run / LEASE
    path.write_text(json.dumps(OTHER | changed))
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))


@contextmanager
def holder(run: Path, heartbeat: float = 9, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A live process that holds `run`."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pipeline.training.run_directory.lease import hold\n"
        f"with hold(Path(sys.argv[1]), {heartbeat}): print('held', flush=True); time.sleep(60)"
    )
    with started(sys.executable, "-c", code, run, **environment) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process


def refused(run: Path, match: str, **options: Any) -> None:
    with pytest.raises(CheckpointError, match=match), hold(run, **options):
        pass


def taken(run: Path, **options: Any) -> dict[str, Any]:
    """The lease of this process, which nothing keeps from holding `run`."""
    with hold(run, **options):
        lease: dict[str, Any] = json.loads((run / LEASE).read_text())
    assert lease["process"] == os.getpid() and not (run / LEASE).exists()
    return lease


def wait_for_a_touch(path: Path) -> None:
    """Of a file that was set back to the second 1."""
    deadline = time.monotonic() + 20
    while path.stat().st_mtime < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with hold(tmp_path):
        refused(tmp_path, r"live job \(process \d+ on")
        assert (tmp_path / LEASE).exists()
    assert not list(tmp_path.iterdir())
    taken(tmp_path)


def test_a_job_elsewhere_is_live_until_its_heartbeat_stops(tmp_path: Path) -> None:
    leave(tmp_path, age=STALE_SECONDS / 2)
    refused(tmp_path, r"process 4711 on node7, seen (29|30|31) s ago")
    leave(tmp_path, age=STALE_SECONDS + 5)
    taken(tmp_path)


def test_a_lease_from_the_future_is_live_while_it_is_touched(tmp_path: Path) -> None:
    """Clocks were set back: ages are meaningless."""
    leave(tmp_path, age=-3600)
    taken(tmp_path, heartbeat_seconds=0.1)
    leave(tmp_path, age=-3600)
    beat = threading.Timer(0.1, os.utime, (tmp_path / LEASE,))
    beat.start()
    refused(tmp_path, "process 4711 on node7, seen 0 s ago", heartbeat_seconds=0.5)
    beat.join()


def in_job(monkeypatch: pytest.MonkeyPatch, job: str, restarts: int | None) -> None:
    """Run as Slurm job `job`. Before the first restart Slurm sets no count: None."""
    monkeypatch.setenv("SLURM_JOB_ID", job)
    if restarts is not None:
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_start_on_this_machine_is_refused_while_the_first_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """In a Slurm job also after a requeue, and if the first is stopped and its lease is stale."""
    with holder(tmp_path, SLURM_JOB_ID="1234") as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.utime(tmp_path / LEASE, (1, 1))
        else:
            refused(tmp_path, "live job")
        lease = (tmp_path / LEASE).read_bytes()
        expected = (
            rf"this Slurm job, 1234 \(process {process.pid} on \S+, seen \d+ s ago\); wait for it, "
            r"or name another --output$"
        )
        for restarts in (None, 0, 1):
            in_job(monkeypatch, "1234", restarts)
            refused(tmp_path, expected)
            assert (tmp_path / LEASE).read_bytes() == lease
        process.kill()
        process.wait()
        monkeypatch.delenv("SLURM_RESTART_COUNT")
        taken(tmp_path)  # at once, without a requeue
        if not stopped:  # and from outside the job
            (tmp_path / LEASE).write_bytes(lease)
            monkeypatch.delenv("SLURM_JOB_ID")
            taken(tmp_path)


@pytest.mark.parametrize(
    ("job", "restarts", "age", "refusal"),
    [
        ("1234", 2, 0, ""),
        ("1234", 1, 0, r"this Slurm job, 1234 \(process 4711 on node7, seen 0 s ago"),
        ("1234", 1, STALE_SECONDS + 5, ""),
        ("1234", None, 0, "this Slurm job, 1234"),
        ("1235", 2, 0, r"live job \(Slurm job 1234, process 4711 on node7"),
    ],
)
def test_a_requeue_continues_at_once_and_a_second_start_elsewhere_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    job: str, restarts: int | None, age: float, refusal: str,
) -> None:  # fmt: skip
    """The holder is job 1234 after its first restart, on another node or in another container."""
    leave(tmp_path, age, slurm_job="1234", slurm_restart_count=1)
    in_job(monkeypatch, job, restarts)
    if refusal:
        refused(tmp_path, refusal)
    else:
        assert taken(tmp_path)["slurm_restart_count"] == restarts


def test_the_holder_touches_its_lease_also_if_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / LEASE
    with hold(tmp_path, heartbeat_seconds=0.02):
        os.utime(path, (1, 1))
        wait_for_a_touch(path)
        path.write_bytes(b"{")
        os.utime(path, (1, 1))
        wait_for_a_touch(path)


def test_a_holder_that_was_replaced_ends_itself(tmp_path: Path) -> None:
    with holder(tmp_path, 0.02) as process:
        temporary = tmp_path / "new"
        temporary.write_text(json.dumps(OTHER))
        temporary.replace(tmp_path / LEASE)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "was taken over by process 4711 on node7" in errors


def test_a_damaged_lease_is_that_of_an_unknown_job(tmp_path: Path) -> None:
    """It is named while it is fresh; a stale one is taken over."""
    path = tmp_path / LEASE
    wrong = [json.dumps(values).encode() for _, values in changed(OTHER)]
    cases = [content for _, content in damaged(json.dumps(OTHER).encode())]
    for content in [*cases, *(content for content in wrong if b"slurm_job" not in content)]:
        path.write_bytes(content)
        refused(tmp_path, rf"^[^\n]*{path} is damaged[^\n]*\Z")
        assert not is_free(tmp_path)
        with pytest.raises(ValueError, match=r"."):
            find_holder(tmp_path)
    stamp = time.time() - STALE_SECONDS - 5
    os.utime(path, (stamp, stamp))
    taken(tmp_path)
