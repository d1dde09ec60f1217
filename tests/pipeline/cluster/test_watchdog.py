import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE

from pipeline.cluster.watchdog import EXIT_HUNG, Watchdog
from tests.launching import process

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
    result = process.run([sys.executable, "-c", HANGS], timeout=50)
    assert (result.returncode, result.stdout) == (EXIT_HUNG, "beaten\n")
    assert "error: rank 3 on " in result.stderr and "in waits_for_a_peer" in result.stderr


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
        command = [sys.executable, "-c", code]
        waiting = process.start(command, stdin=PIPE, stdout=PIPE, stderr=file)
    assert waiting.stdout and waiting.stdout.readline() == "waits\n"
    os.kill(waiting.pid, signal.SIGUSR2)
    deadline = time.monotonic() + 60
    while "in waits_for_a_peer" not in stderr.read_text():
        assert waiting.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    waiting.communicate("\n", timeout=50)
    assert waiting.returncode == 0


def test_what_was_slow_from_the_start_is_not_hung() -> None:
    """Items pass through with a beat each."""
    watchdog = Watchdog(0, hang_seconds=9)
    assert [*watchdog.through(iter("abc"))] == ["a", "b", "c"] and watchdog._beats == 3
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
    beating = process.start([sys.executable, "-c", code], stdout=PIPE)
    assert beating.stdout and beating.stdout.readline() == "beat\n"
    os.kill(beating.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(beating.pid, signal.SIGCONT)
    beating.communicate(timeout=50)
    assert beating.returncode == 0
