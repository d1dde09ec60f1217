"""Ranks whose launcher was killed save and stop, as on SIGTERM.

A launcher that gets SIGKILL cannot stop its ranks. They would continue as orphans and hold the run
directory, and the same command would be refused. So each rank checks once a second that the process
that launched it is still there. A process started any other way is left alone: with nohup it
outlives the shell that started it.

A rank's launcher is its nearest ancestor that was started without the rank's own variables, which
skips wrapper scripts in between. Every launcher is a Python process. If the launcher dies before
the first check, process 1 or another reaper has adopted the rank; a reaper that is not Python shows
that the launcher is gone. Any other ancestor proves nothing, and the rank continues.

With torchrun its store dies too, and so may any other rank at any moment: what a rank still waits
for may never come, and torch's own limits are half an hour. So one limit holds for all of it, from
the last step to the end of the process: a rank that is still there after ORPHAN_SECONDS, or the
time that its step and its checkpoint need if that is longer, prints its stacks and ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from pipeline.cluster import processes
from pipeline.cluster.stop_request import StopRequest
from pipeline.cluster.watchdog import end_with_stacks

TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Set by torch's elastic agent: torchrun, `accelerate launch`, `elastic_launch`."""
DEEPSPEED = "CROSS_RANK"
"""Set by deepspeed.launcher.launch, which the `deepspeed` command starts on each node."""
RUNNERS = ("deepspeed", "ds", "deepspeed.launcher.runner")
"""Scripts and modules that start deepspeed.launcher.launch."""
REAPERS = ("systemd", "slurmstepd", "containerd-shim", "conmon", "tini")
"""Processes other than process 1 that adopt orphans."""
CHECK_SECONDS = 1.0
ORPHAN_SECONDS = 90.0
"""Time that a rank without a launcher may take to save and end. A file server may show another
rank's files after 60 s (acdirmax of nfs(5)), and a board of Weights & Biases is given 45 s."""
PR_SET_PDEATHSIG = 1
"""The option's number in linux/prctl.h."""


class LauncherWatch:
    """Requests a stop when the launcher is gone; does nothing in a process without a launcher."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop
        self._watched: dict[int, str] = {}
        """Process IDs and start times."""
        self._woken = threading.Event()

    def start(self) -> None:
        """Check now, then keep checking in a thread. Call this from the main thread."""
        mark = next((name for name in (TORCHRUN, DEEPSPEED) if name in os.environ), "")
        # Without /proc this process has no start time, and nothing could be watched.
        if not mark or not processes.read_start_time(os.getpid()):
            return
        launcher, started = _find_launcher()
        if started and processes.is_python(launcher):
            self._watched = {launcher: started} | _find_runner(launcher)
            self._wake_on_parent_death()
            threading.Thread(target=self._watch, name="launcher", daemon=True).start()
        # It died while this rank imported, and the rank was adopted.
        elif launcher == 1 or processes.name(launcher) in REAPERS:
            self._end(f"the launcher that set {mark} is gone; unset {mark} to start without one")

    def _watch(self) -> None:
        while True:
            for process, started in self._watched.items():
                if processes.read_start_time(process) != started:
                    self._end(f"the launcher (process {process}) is gone")
                    return
            self._woken.wait(CHECK_SECONDS)
            self._woken.clear()

    def _wake_on_parent_death(self) -> None:
        """Check at once when the parent dies; if the kernel refuses, the next check is soon enough.

        SIGTERM would be wrong here: the kernel also sends the signal when the parent is a wrapper
        script, or when only the thread that started this process ends.
        """
        signal.signal(signal.SIGRTMIN, lambda number, frame: self._woken.set())
        # prctl reads longs; ctypes would pass ints, whose upper halves are undefined.
        arguments = map(ctypes.c_ulong, (signal.SIGRTMIN, 0, 0, 0))
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, *arguments)

    def _end(self, reason: str) -> None:
        # Before the request, so that the limit holds whatever the request leads to.
        threading.Thread(target=self._limit, args=(reason,), name="orphan", daemon=True).start()
        self._stop.request(reason)

    def _limit(self, reason: str) -> None:
        """End this process if it is still here after the limit.

        Counts its own wake-ups, as the watchdog does: time in which the process was stopped does
        not count.
        """
        pause, waited = min(CHECK_SECONDS, ORPHAN_SECONDS / 10), 0.0
        # asked each time, as a run measures its checkpoints
        while waited < max(ORPHAN_SECONDS, self._stop.seconds_to_save()):
            time.sleep(pause)
            waited += pause
        rank = os.environ.get("RANK", "0")
        end_with_stacks(f"rank {rank}", f"has not ended in {waited:.0f} s although {reason}")


def _find_launcher() -> tuple[int, str]:
    """The launcher, or the process that took its place, and when it started ("" if hidden)."""
    names = [name for name in (TORCHRUN, DEEPSPEED, "RANK") if name in os.environ]
    given = {f"{name}={os.environ[name]}" for name in names}

    def nearest() -> int:
        process = os.getppid()
        # Wrapper scripts inherit the rank's variables; their launcher was started without.
        while process and given <= processes.environment(process):
            process = processes.parent(process)
        return process

    while True:
        process = nearest()
        started = processes.read_start_time(process)
        # A launcher that dies in between is no longer the nearest: look again.
        if started or process == nearest():
            return process, started


def _find_runner(launcher: int) -> dict[int, str]:
    """The `deepspeed` command that started this launcher, if one did.

    Users see and kill that process, and it leaves its child running.
    """
    runner = processes.parent(launcher) if DEEPSPEED in os.environ else 0
    words = [word for word in processes.command(runner)[1:] if not word.startswith("-")]
    found = processes.is_python(runner) and bool(words) and Path(words[0]).name in RUNNERS
    return {runner: processes.read_start_time(runner)} if found else {}
