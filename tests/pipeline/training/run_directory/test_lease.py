from __future__ import annotations

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
def holder(run: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A live process that holds `run`."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pipeline.training.run_directory.lease import hold\n"
        "with hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, run],
        stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    ) as process:  # fmt: skip
        try:
            assert process.stdout and process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may themselves run in a Slurm job."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with hold(tmp_path):
        expected = r"belongs to a live job \(process \d+ on"
        with pytest.raises(CheckpointError, match=expected), hold(tmp_path):
            pass
        assert (tmp_path / LEASE).exists()
    assert not list(tmp_path.iterdir())
    with hold(tmp_path):
        pass


def test_a_job_elsewhere_is_live_until_its_heartbeat_stops(tmp_path: Path) -> None:
    leave(tmp_path, age=STALE_SECONDS / 2)
    expected = r"process 4711 on node7, seen (29|30|31) s ago"
    with pytest.raises(CheckpointError, match=expected), hold(tmp_path):
        pass
    leave(tmp_path, age=STALE_SECONDS + 5)
    with hold(tmp_path):
        assert json.loads((tmp_path / LEASE).read_text())["process"] == os.getpid()


def test_a_lease_from_the_future_is_live_while_it_is_touched(tmp_path: Path) -> None:
    """Clocks were set back: ages are meaningless."""
    leave(tmp_path, age=-3600)
    with hold(tmp_path, heartbeat_seconds=0.1):
        assert json.loads((tmp_path / LEASE).read_text())["process"] == os.getpid()
    leave(tmp_path, age=-3600)
    beat = threading.Timer(0.1, os.utime, (tmp_path / LEASE,))
    beat.start()
    expected = r"process 4711 on node7, seen 0 s ago"
    with pytest.raises(CheckpointError, match=expected), hold(tmp_path, heartbeat_seconds=0.5):
        pass
    beat.join()


def test_a_process_killed_on_this_machine_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(CheckpointError, match="live job"), hold(tmp_path):
            pass
        process.kill()
        process.wait()
        with hold(tmp_path):
            pass


def in_job(monkeypatch: pytest.MonkeyPatch, job: str, restarts: int | None) -> None:
    """Run as Slurm job `job`. Before the first restart Slurm sets no count: None."""
    monkeypatch.setenv("SLURM_JOB_ID", job)
    if restarts is not None:
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))


@pytest.mark.parametrize("restarts", [None, 0, 1])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_start_in_a_slurm_job_is_refused_while_the_first_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int | None, stopped: bool
) -> None:
    """Also after a requeue, and if the first is stopped and its lease is stale."""
    with holder(tmp_path, SLURM_JOB_ID="1234") as process:
        if stopped:
            process.send_signal(signal.SIGSTOP)
            os.utime(tmp_path / LEASE, (1, 1))
        lease = (tmp_path / LEASE).read_bytes()
        in_job(monkeypatch, "1234", restarts)
        expected = (
            rf"in use by an earlier start in this Slurm job, 1234 \(process {process.pid} on \S+, "
            r"seen \d+ s ago\); wait for it, or name another --output$"
        )
        with pytest.raises(CheckpointError, match=expected), hold(tmp_path):
            pass
        assert (tmp_path / LEASE).read_bytes() == lease
        process.kill()
        process.wait()
        with hold(tmp_path):  # at once, without a requeue
            pass


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    restarts: int | None,
    age: float,
    refusal: str,
) -> None:
    """The holder is job 1234 after its first restart, on another node or in another container."""
    leave(tmp_path, age, slurm_job="1234", slurm_restart_count=1)
    in_job(monkeypatch, job, restarts)
    if refusal:
        with pytest.raises(CheckpointError, match=refusal), hold(tmp_path):
            pass
    else:
        with hold(tmp_path):
            assert json.loads((tmp_path / LEASE).read_text())["slurm_restart_count"] == restarts


def test_the_holder_touches_its_lease(tmp_path: Path) -> None:
    with hold(tmp_path, heartbeat_seconds=0.02):
        os.utime(tmp_path / LEASE, (1, 1))
        deadline = time.monotonic() + 10
        while (tmp_path / LEASE).stat().st_mtime < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_holder_that_was_replaced_ends_itself(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from pipeline.training.run_directory.lease import hold\n"
        "with hold(Path(sys.argv[1]), 0.02): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "held\n"
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
        with pytest.raises(CheckpointError, match=f"{path} is damaged") as caught, hold(tmp_path):
            pass
        assert "\n" not in str(caught.value) and not is_free(tmp_path)
        with pytest.raises(ValueError, match=r"."):
            find_holder(tmp_path)
    stamp = time.time() - STALE_SECONDS - 5
    os.utime(path, (stamp, stamp))
    with hold(tmp_path):
        assert json.loads(path.read_text())["process"] == os.getpid()


def test_a_holder_whose_lease_is_damaged_still_counts_as_live(tmp_path: Path) -> None:
    path = tmp_path / LEASE
    with hold(tmp_path, heartbeat_seconds=0.01):
        path.write_bytes(b"{")
        os.utime(path, (1, 1))
        ends_at = time.monotonic() + 20
        while path.stat().st_mtime < 2 and time.monotonic() < ends_at:
            time.sleep(0.01)
        assert path.stat().st_mtime > 2
