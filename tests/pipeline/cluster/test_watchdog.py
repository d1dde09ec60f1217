from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pipeline.cluster.watchdog import EXIT_HUNG, Watchdog

HANGS = """
import threading, time
from pipeline.cluster.watchdog import Watchdog

def waits_for_a_peer():
    threading.Event().wait(60)

with Watchdog(3, hang_seconds=0.5) as watchdog:
    for _ in range(8):
        time.sleep(0.15)
        watchdog.beat()
    print("beaten", flush=True)
    waits_for_a_peer()
"""


def test_a_hung_rank_shows_where_it_is_and_ends() -> None:
    result = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=50, check=False
    )
    assert result.returncode == EXIT_HUNG
    assert result.stdout == "beaten\n"
    assert "error: rank 3 on " in result.stderr
    assert "in waits_for_a_peer" in result.stderr


def test_a_signal_prints_the_stacks_of_a_process_which_continues(tmp_path: Path) -> None:
    code = (
        "import threading; from pipeline.cluster.watchdog import print_stacks_on_usr2\n"
        "def waits_for_a_peer():\n"
        "    print('waits', flush=True)\n"
        "    input()\n"
        "print_stacks_on_usr2()\n"
        "threading.Thread(target=waits_for_a_peer).start()"
    )
    stderr = tmp_path / "stderr"
    with stderr.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", code], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
        )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "waits\n"
    os.kill(process.pid, signal.SIGUSR2)
    deadline = time.monotonic() + 60
    while "in waits_for_a_peer" not in stderr.read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.communicate("\n", timeout=50)
    assert process.returncode == 0


def test_what_was_slow_from_the_start_is_not_hung() -> None:
    with Watchdog(0, hang_seconds=0.1) as watchdog:
        watchdog._longest = 1.0
        time.sleep(0.5)  # five times the limit, and half of the longest silence so far
        watchdog.beat()


def test_a_process_that_was_stopped_is_not_hung() -> None:
    code = (
        "import time; from pipeline.cluster.watchdog import Watchdog\n"
        "with Watchdog(0, hang_seconds=1.0) as watchdog:\n"
        "    for _ in range(10):\n"
        "        watchdog.beat(); print('beat', flush=True); time.sleep(0.1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "beat\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=50)
    assert process.returncode == 0


def test_items_pass_through_with_a_beat_each() -> None:
    watchdog = Watchdog(0, hang_seconds=9)
    assert list(watchdog.through(iter("abc"))) == ["a", "b", "c"]
    assert watchdog._beats == 3
