import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.base.errors import DataError
from pipeline.cluster import stop_request
from pipeline.cluster.stop_request import LEAVING_SECONDS, Deadline, StopRequest, process_seconds
from tests.pipeline.conftest import started
from tests.pipeline.test_train import wait_for

CODE = """
import sys, time
from pathlib import Path
import torch.distributed as dist
from pipeline.cluster.stop_request import StopRequest, exit_on_stop_signals

folder, mode = Path(sys.argv[1]), sys.argv[2]
stop = StopRequest()
stop.can_save = mode == "trains"
stop.before_exit = (folder / "left").touch
exit_on_stop_signals() if mode == "imports" else stop.listen()
(folder / "listens").touch()
if mode == "waits":
    dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).get("another rank")
until = time.monotonic() + 60
while time.monotonic() < until and not (folder / "enough").exists():
    time.sleep(0.01)
    if stop.requested:
        (folder / "asked").touch()
"""


@contextmanager
def listening(folder: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    """A process that listens; mode: "trains", "starts", "waits" for another rank, or "imports"."""
    script = folder / "script.py"
    script.write_text(CODE)
    with started(sys.executable, script, folder, mode) as process:
        wait_for(folder / "listens", process)
        yield process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("mode", ["starts", "waits", "imports"])
def test_before_training_a_signal_ends_a_rank_at_once(
    tmp_path: Path, number: signal.Signals, mode: str
) -> None:
    """Also one that waits for others inside torch, where no Python handler is called."""
    with listening(tmp_path, mode) as process:
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    if mode == "imports":
        assert not errors
    else:
        assert "exiting before training starts\n" in errors and len(errors.splitlines()) == 1
        assert (tmp_path / "left").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_repeated_signal_is_the_same_request(tmp_path: Path, number: signal.Signals) -> None:
    with listening(tmp_path, "trains") as process:
        for _ in range(2):
            process.send_signal(number)
            wait_for(tmp_path / "asked", process)
        (tmp_path / "enough").touch()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not (tmp_path / "left").exists()
    assert errors == f"warning: received {number.name}; saving and stopping\n"


def test_nohup_lets_a_run_outlive_its_terminal(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CODE)
    words = ("env", "--ignore-signal=HUP", sys.executable, tmp_path / "script.py", tmp_path)
    with started(*words, "trains") as process:
        wait_for(tmp_path / "listens", process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        wait_for(tmp_path / "asked", process)
        (tmp_path / "enough").touch()
        _, errors = process.communicate(timeout=60)
    assert errors == "warning: received SIGTERM; saving and stopping\n"


def test_only_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    """torchrun sends SIGTERM after the first."""
    with listening(tmp_path, "trains") as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            wait_for(tmp_path / "asked", process)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines() == [
        "warning: Ctrl-C (press it again to exit without saving); saving and stopping",
        "warning: second Ctrl-C; exiting without saving",
    ]


def test_a_deadline_and_damaged_data_request_a_stop_too() -> None:
    stop = StopRequest()
    stop.deadline = Deadline(math.inf, lambda: 1e9)
    assert not stop.requested and not stop.deadline.reached()
    stop.deadline = Deadline(1e-9, lambda: 0.0)
    assert stop.requested
    stop = StopRequest()
    stop.mistake = DataError("a shard is gone")
    assert stop.requested
    assert 0.0 < process_seconds() < 24 * 3600


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test advances."""
    found = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(stop_request.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(stop_request, "process_seconds", lambda: 100.0)
    return found


def test_it_leaves_time_for_a_step_and_a_checkpoint(clock: SimpleNamespace) -> None:
    until = Deadline(1.0, lambda: 30.0)  # 3,500 s from now
    steps = 0
    while not until.reached():
        clock.now += 25.0 if steps == 7 else 20.0
        steps += 1
    left = 1000.0 + 3500.0 - clock.now
    # after a long step, which reserved 50 s, the usual times apply again
    assert 2 * 30 + LEAVING_SECONDS + 20 <= left < 2 * 30 + LEAVING_SECONDS + 2 * 20 + 20
    assert until.reached()


def test_a_slower_checkpoint_moves_the_deadline(clock: SimpleNamespace) -> None:
    seconds = 1.0
    until = Deadline(1.0, lambda: seconds)
    clock.now += 3400.0
    assert not until.reached()
    seconds = 60.0
    assert until.reached()
