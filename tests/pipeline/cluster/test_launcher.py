"""Small processes stand in for launchers and ranks; the real ones are in test_faults.py."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.cluster import processes
from pipeline.cluster.launcher import REAPERS, LauncherWatch
from pipeline.cluster.stop_request import StopRequest
from tests.launching.process import ROOT
from tests.pipeline.preparing import wait_for_end, wait_until

RANK = """
import io, os, sys, time
from pathlib import Path
from pipeline.base.errors import guard_outputs
from pipeline.cluster import launcher
from pipeline.cluster.stop_request import StopRequest

guard_outputs()  # as each command does
folder, mode = Path(sys.argv[1]), sys.argv[2]
seconds, launcher.CHECK_SECONDS = float(sys.argv[3]), float(sys.argv[4])

def write(name, text):
    (folder / "new").write_text(str(text))
    (folder / "new").rename(folder / name)

stop = StopRequest()
watch = launcher.LauncherWatch(stop)
if mode == "orphaned":
    parent = os.getppid()
    write("rank", os.getpid())
    while os.getppid() == parent:
        time.sleep(0.01)
    write("reaper", os.getppid())
if mode == "quiet":
    sys.stdout = io.StringIO()  # as while DeepSpeed starts
if mode == "without prctl":
    launcher.ctypes.CDLL = lambda name: object()
watch.start()
stop.can_save = mode != "waiting"
write("rank", os.getpid())
if mode == "stuck":
    launcher.ORPHAN_SECONDS = 0.3
    sys.stdin.read()
until = time.monotonic() + seconds
while time.monotonic() < until and not stop.signalled and not (folder / "enough").exists():
    time.sleep(0.01)
print("a line for any reader", flush=True)
write("end", "stopped" if stop.signalled else "finished")
"""
LAUNCHER = """
import os, subprocess, sys, threading, time
given = dict(pair.split("=") for pair in sys.argv[1].split(",") if pair)

def start():
    subprocess.Popen(sys.argv[2:], env=os.environ | given)

if given.pop("THREAD", ""):  # it ends, but the launcher does not
    threading.Thread(target=start).start()
else:
    start()
time.sleep(60)
"""
SPAWN = """
import multiprocessing, os, runpy, sys, time

def rank(arguments):
    os.environ |= {"TORCHELASTIC_RUN_ID": "none", "RANK": "0"}
    sys.argv = arguments
    runpy.run_path(arguments[0])

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=rank, args=(sys.argv[2:],)).start()
    time.sleep(60)
"""
"""As torch's elastic_launch starts a function."""
SCRIPTS = {"launcher.py": LAUNCHER, "deepspeed": LAUNCHER, "spawn.py": SPAWN, "rank.py": RANK}


@dataclass(frozen=True)
class Tree:
    """Processes, each the parent of the next; the last is the rank."""

    folder: Path
    outermost: subprocess.Popen[str]
    rank: int

    def kill_above(self, generations: int) -> int:
        """Kill an ancestor of the rank, 1 for its parent; returns its number."""
        process = self.rank
        for _ in range(generations):
            process = processes.parent(process)
            assert process > 1, "signals to 0 and 1 reach processes outside this test"
        os.kill(process, signal.SIGKILL)
        return process

    def outlives(self) -> bool:
        """Whether the rank still runs after ten of its checks; then it is ended."""
        time.sleep(0.5)
        (self.folder / "enough").touch()
        return self.end() == "finished"

    def end(self) -> str:
        """How the rank ended: "stopped", "finished", or "" if it exited early."""
        wait_for_end(self.rank)
        path = self.folder / "end"
        return path.read_text() if path.exists() else ""

    def errors(self) -> str:
        """Everything on stderr, after all processes have ended."""
        os.killpg(self.outermost.pid, signal.SIGKILL)
        return self.outermost.communicate(timeout=60)[1]


@contextmanager
def tree(
    folder: Path, kinds: str, mode: str = "", seconds: float = 120, check: float = 0.05
) -> Iterator[Tree]:
    """Start a rank under ancestors of these kinds, the outermost first.

    seconds: how long the rank runs if it is not stopped; check: the pause between its checks.
    """
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)

    def python(script: str, *given: str) -> list[str]:
        return [sys.executable, str(folder / script), *given]

    commands = {
        "shell": ["sh", "-c", '"$@"; exit', "sh"],
        "python": python("launcher.py", ""),
        "torchrun": python("launcher.py", "TORCHELASTIC_RUN_ID=none,RANK=0"),
        "thread": python("launcher.py", "TORCHELASTIC_RUN_ID=none,RANK=0,THREAD=1"),
        "spawn": [*python("spawn.py"), "-c"],
        "runner": python("deepspeed", ""),
        "launch": python("launcher.py", "CROSS_RANK=0,RANK=0"),
    }
    rank = python("rank.py", str(folder), mode, str(seconds), str(check))
    command = [part for kind in kinds.split() for part in commands[kind]]
    command += rank[1:] if kinds == "spawn" else rank
    foreign = ("TORCHELASTIC_RUN_ID", "CROSS_RANK", "RANK", "LOCAL_RANK")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    outermost = subprocess.Popen(
        command, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        wait_until((folder / "rank").exists)
        yield Tree(folder, outermost, int((folder / "rank").read_text()))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(outermost.pid, signal.SIGKILL)
        outermost.communicate(timeout=60)


@pytest.mark.parametrize(
    ("kinds", "generations", "mode", "check"),
    [
        ("torchrun", 1, "", 60),  # the kernel says it long before the first check
        ("torchrun", 1, "without prctl", 0.05),
        ("torchrun", 1, "quiet", 0.05),  # its output is redirected to memory
        ("torchrun", 1, "unread", 0.05),  # a message without a reader does not end it
        ("torchrun shell", 2, "", 0.05),
        ("spawn", 1, "", 0.05),
        ("launch", 1, "", 0.05),
        ("runner launch", 1, "", 0.05),
        ("runner launch", 2, "", 0.05),
        ("runner launch shell", 3, "", 0.05),
    ],
)
def test_a_rank_stops_when_its_launcher_dies(
    tmp_path: Path, kinds: str, generations: int, mode: str, check: float
) -> None:
    """Also through a wrapper script, and if only the `deepspeed` command is killed."""
    with tree(tmp_path, kinds, mode, check=check) as found:
        if mode == "unread":
            for output in (found.outermost.stdout, found.outermost.stderr):
                assert output
                output.close()
        launcher = found.kill_above(generations)
        assert found.end() == "stopped"
        said = f"warning: the launcher (process {launcher}) is gone; saving and stopping\n"
        assert mode == "unread" or found.errors() == said


@pytest.mark.parametrize(
    ("kinds", "generations"),
    [
        ("shell", 1), ("python", 1), ("shell torchrun", 2), ("python torchrun", 2),
        ("torchrun shell", 1), ("shell launch", 2), ("python launch", 2), ("thread", 0),
    ],
)  # fmt: skip
def test_a_rank_outlives_processes_that_are_not_its_launcher(
    tmp_path: Path, kinds: str, generations: int
) -> None:
    """A process alone outlives its parent, a rank its wrapper, the parent of its launcher, and the
    thread that started it: the kernel sends the parent-death signal when that ends."""
    with tree(tmp_path, kinds) as found:
        if generations:
            found.kill_above(generations)
        assert found.outlives()
        assert found.errors() == ""


def test_before_the_ranks_have_met_a_rank_exits_at_once(tmp_path: Path) -> None:
    with tree(tmp_path, "torchrun", "waiting") as found:
        found.kill_above(1)
        assert found.end() == ""
        assert found.errors().endswith(" is gone; exiting before training starts\n")


def test_a_rank_that_waits_for_the_dead_shows_its_stacks_and_ends(tmp_path: Path) -> None:
    """The limits of torch are half an hour."""
    with tree(tmp_path, "torchrun", "stuck") as found:
        launcher = found.kill_above(1)
        assert found.end() == ""
        first, second, *stacks = found.errors().splitlines()
    assert first == f"warning: the launcher (process {launcher}) is gone; saving and stopping"
    assert re.match(rf"error: rank 0 on \S+ has not ended .* \(process {launcher}\)", second)
    assert any("rank.py" in line for line in stacks)


@pytest.mark.parametrize("kind", ["torchrun", "launch"])
def test_a_launcher_killed_before_the_first_check_is_noticed(tmp_path: Path, kind: str) -> None:
    """Importing torch takes seconds."""
    with tree(tmp_path, kind, "orphaned", seconds=2) as found:
        found.kill_above(1)
        wait_until((tmp_path / "reaper").exists)
        reaper = int((tmp_path / "reaper").read_text())
        if processes.is_python(reaper) or (reaper > 1 and processes.name(reaper) not in REAPERS):
            pytest.skip(f"here {processes.name(reaper)} adopts orphans")
        assert found.end() == ""
        errors = found.errors()
    mark = "TORCHELASTIC_RUN_ID" if kind == "torchrun" else "CROSS_RANK"
    assert errors == (
        f"warning: the launcher that set {mark} is gone; unset {mark} to start without one; "
        "exiting before training starts\n"
    )


def test_without_proc_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the launcher may be process 1."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(processes, "_read", lambda process, file: "")
    monkeypatch.setattr(LauncherWatch, "_end", lambda self, reason: pytest.fail(reason))
    LauncherWatch(StopRequest()).start()
