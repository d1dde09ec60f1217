from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import CheckpointError
from pipeline.training.lease import LEASE, STALE_SECONDS, hold

OTHER = {
    "token": "other", "host": "node7", "place": "another boot", "process": 4711,
    "process_started": "1", "slurm_job": "",
}  # fmt: skip


def leave(run: Path, age: float = 0.0, **changed: Any) -> None:
    """The lease of another job, touched `age` seconds ago."""
    path = run / LEASE
    path.write_text(json.dumps(OTHER | changed))
    stamp = time.time() - age
    os.utime(path, (stamp, stamp))


def test_one_job_at_a_time(tmp_path: Path) -> None:
    with hold(tmp_path):
        expected = r"belongs to a live job \(process \d+ on"
        with pytest.raises(CheckpointError, match=expected), hold(tmp_path):
            pass
        assert (tmp_path / LEASE).exists()
    assert not list(tmp_path.iterdir())
    with hold(tmp_path):
        pass


def test_a_job_elsewhere_is_live_until_its_heart_has_stopped(tmp_path: Path) -> None:
    leave(tmp_path, age=STALE_SECONDS / 2)
    expected = r"process 4711 on node7, seen (29|30|31) s ago"
    with pytest.raises(CheckpointError, match=expected), hold(tmp_path):
        pass
    leave(tmp_path, age=STALE_SECONDS + 5)
    with hold(tmp_path):
        assert json.loads((tmp_path / LEASE).read_text())["process"] == os.getpid()


def test_a_lease_of_the_future_is_live_while_it_is_touched(tmp_path: Path) -> None:
    """Clocks were set back: ages say nothing any more."""
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


def test_a_requeue_of_the_same_slurm_job_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path, slurm_job="1234")
    monkeypatch.setenv("SLURM_JOB_ID", "1235")
    with pytest.raises(CheckpointError, match="Slurm job 1234"), hold(tmp_path):
        pass
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    with hold(tmp_path):
        pass


def test_a_process_killed_on_this_machine_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from pipeline.training.lease import hold\n"
        "with hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "held\n"
    with pytest.raises(CheckpointError, match="live job"), hold(tmp_path):
        pass
    process.kill()
    process.wait()
    with hold(tmp_path):
        pass


def test_the_heart_beats(tmp_path: Path) -> None:
    with hold(tmp_path, heartbeat_seconds=0.02):
        os.utime(tmp_path / LEASE, (1, 1))
        deadline = time.monotonic() + 10
        while (tmp_path / LEASE).stat().st_mtime < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_holder_that_was_replaced_ends_itself(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from pipeline.training.lease import hold\n"
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
