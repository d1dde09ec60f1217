"""A child's mistake is the parent's line, a request to stop reaches it, and it keeps the lock."""

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.base.errors import EXIT_INTERRUPTED
from pipeline.execution.ledger import hold_lock
from pipeline.experiments.children import ChildError, Children
from tests.launching.process import ROOT
from tests.pipeline.preparing import wait_until


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `child_module`, to be written."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    return tmp_path / "child_module.py"


def parent(code: str, tmp_path: Path) -> "subprocess.Popen[str]":
    """Runs code that has fcntl, Children, hold_lock and `folder`."""
    begin = (
        "import fcntl; from pathlib import Path; from pipeline.execution.ledger import hold_lock\n"
        "from pipeline.experiments.children import Children\n"
        f"folder = Path({str(tmp_path)!r})\n"
    )
    command = [sys.executable, "-c", begin + code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_it_prints_is_read_or_logged(module: Path, tmp_path: Path) -> None:
    module.write_text("import sys; print('out'); print('err', sys.argv[1], file=sys.stderr)")
    log = tmp_path / "logs" / "a.log"
    assert Children().run(["child_module", 7], log, reads=True) == "out\n"
    assert log.read_text() == "err 7\n"
    assert Children().run(["child_module", 8], log) == ""
    assert sorted(log.read_text().split("\n")[1:]) == ["", "err 8", "out"]


def test_a_failure_is_one_line_and_an_interruption_interrupts(module: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for code, message, exit_code in (
        ("print('error: one'); print('error: no room'); print(''); sys.exit(3)", "no room;", 3),
        ("raise KeyError('x')", r"ended with code 1 \(KeyError: 'x'\)", 1),
        ("os.kill(os.getpid(), 9)", r"ended with signal 9 \(it printed nothing\)", -9),
    ):
        module.write_text(f"import os, sys\n{code}")
        with pytest.raises(ChildError, match=f"^{message}") as found:
            Children().run(["child_module"], log)
        assert found.value.code == exit_code
        assert str(found.value).endswith(f"full output: {log}")
    module.write_text(f"import sys; sys.exit({EXIT_INTERRUPTED})")
    with pytest.raises(SystemExit) as stop:
        Children().run(["child_module"], log)
    assert stop.value.code == EXIT_INTERRUPTED


def test_a_request_to_stop_reaches_the_child(module: Path, tmp_path: Path) -> None:
    module.write_text(
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({EXIT_INTERRUPTED}))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch(); time.sleep(60)"
    )
    code = "x = Children(); x.listen(); x.run(['child_module'], folder / 'log')"
    with parent(code, tmp_path) as process:
        wait_until((tmp_path / "ready").exists, process)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == EXIT_INTERRUPTED


def test_a_process_without_a_child_ends_at_once(module: Path, tmp_path: Path) -> None:
    """Also one that waits for a lock, which Python would otherwise resume waiting for."""
    code = (
        "Children().listen(); file = (folder / 'lock').open('w')\n"
        "print('ready', flush=True); fcntl.flock(file, fcntl.LOCK_EX)"
    )
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with parent(code, tmp_path) as process:
            assert process.stdout and process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == EXIT_INTERRUPTED


def test_a_child_keeps_the_lock(module: Path, tmp_path: Path) -> None:
    """Also when its parent is killed; it is free when the child ends."""
    ready, stop, lock = tmp_path / "ready", tmp_path / "stop", tmp_path / "a.lock"
    module.write_text(
        "import pathlib, time\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        f"while not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.01)"
    )
    code = (
        "with hold_lock(folder / 'a.lock') as lock:\n"
        "    Children().run(['child_module'], folder / 'log', lock)"
    )
    with parent(code, tmp_path) as process:
        wait_until(ready.exists)
        process.kill()
    with hold_lock(lock) as mine:
        assert mine is None
    stop.touch()

    def is_free() -> bool:
        with hold_lock(lock) as mine:
            return mine is not None

    wait_until(is_free)
