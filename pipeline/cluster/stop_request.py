"""Why and when a run stops early: a signal, a deadline, damaged data, or a launcher that is gone.

SIGTERM, SIGUSR1, SIGHUP (the terminal is gone) and the first Ctrl-C ask a run that trains to save
and end. A run that has not started to train has nothing to save and ends at once. A second Ctrl-C
ends any run at once.

Python calls a signal's handler between two instructions of the main thread, so a rank that waits
inside torch for another rank would not notice it. The interpreter's C handler writes the number of
each signal to a socket at once, and a thread of ours reads it there.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.base.errors import EXIT_BY_USER, EXIT_INTERRUPTED, DataError, PipelineError

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
_IGNORED_FOR_US = (signal.SIGINT, signal.SIGHUP)
"""Signals that a shell's `&` and `nohup` ignore in what they start, and we keep that."""
LEAVING_SECONDS = 10.0
"""Time to leave the other ranks and end Python."""


def exit_on_stop_signals() -> None:
    """End this process at once on a stop signal, until `StopRequest.listen` hears it.

    Call this before torch is imported, which takes seconds and has nothing to save.
    """
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))


class Deadline:
    """`--hours`: when to stop, so that the run is saved before its wall time is over.

    Wall time counts from the start of the process, imports included. `reached` is called between
    two micro-batches: the time between two calls, and the time of a checkpoint, are measured while
    the run trains.
    """

    def __init__(self, hours: float, save_seconds: Callable[[], float]) -> None:
        """hours: infinity for no limit; save_seconds: the time of a checkpoint, as known now."""
        self._save_seconds = save_seconds
        self._asked_at = math.inf
        self._gaps: deque[float] = deque(maxlen=50)  # forgets the first step, which compiles
        left = math.inf if math.isinf(hours) else hours * 3600 - process_seconds()
        self._ends_at = time.monotonic() + left

    def reached(self) -> bool:
        """True if another micro-batch could make it too late to save."""
        now = time.monotonic()
        self._gaps.append(max(0.0, now - self._asked_at))  # the first call has no gap: -inf
        self._asked_at = now
        return now + self.needed() > self._ends_at

    def needed(self) -> float:
        """Seconds from a request to the end of the process."""
        # The answer is used after the next micro-batch: time for that one, and for a slower one.
        slowest = max(self._gaps, default=0.0)
        return 2 * slowest + 2 * self._save_seconds() + LEAVING_SECONDS


def process_seconds() -> float:
    """The age of this process."""
    # Field 22 of proc(5): the start, in ticks since the boot, suspended time included.
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


class StopRequest:
    """The requests of this process that all ranks save and end, with their reasons."""

    def __init__(self) -> None:
        self.signalled = False
        self.deadline: Deadline | None = None
        self.mistake: DataError | None = None
        """The mistake in this rank's data; all ranks raise it once the run is saved."""
        self.can_save = False
        """True if the run has reached its training loop, which saves. Until then a request ends
        this process at once: it could wait half an hour for ranks that are gone."""
        self.before_exit: Callable[[], None] = lambda: None
        """Called before a request ends this process at once."""
        self._interrupted = False
        self._has_error = False
        self._told = threading.Event()

    @property
    def requested(self) -> bool:
        """True if the run should stop after the current step."""
        return self.is_urgent or self.mistake is not None

    @property
    def is_urgent(self) -> bool:
        """True if the run should stop within the current step.

        Call this between two micro-batches: the deadline measures them by these calls.
        """
        late = self.deadline is not None and self.deadline.reached()
        return late or self.signalled

    def seconds_to_save(self) -> float:
        """Seconds to save and end, as known now; 0 before training."""
        return self.deadline.needed() if self.deadline else 0.0

    def listen(self) -> None:
        """Make signals request a stop. Call this from the main thread."""
        heard, written = socket.socketpair()
        written.setblocking(False)  # `set_wakeup_fd` requires it: a C handler must not wait
        # Detached, or it would be closed as garbage. A full buffer has requests enough.
        signal.set_wakeup_fd(written.detach(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            if number not in _IGNORED_FOR_US or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)  # the thread hears it
        threading.Thread(target=self._hear, args=(heard,), name="signals", daemon=True).start()

    def keep_error(self) -> None:
        """Let a request change nothing more: this process ends with an error's exit code.

        Launchers send SIGTERM to the other ranks as soon as one has ended. One that is about to
        report the same error would say nothing of it and ask to be started again.
        """
        self._has_error = True

    def wait_for_request(self, seconds: float) -> bool:
        """After `keep_error`: whether a stop is requested within this time."""
        return self._told.wait(seconds)

    def request(self, reason: str) -> None:
        """Ask all ranks to save and end, or end this process at once if it has not trained yet.

        reason: for the line that the first rank of each node prints.
        """
        if self._has_error:
            self._told.set()
            return
        if self.can_save:
            # A batch system may signal the batch script and each rank: one line is enough.
            repeated, self.signalled = self.signalled, True
            if not repeated:
                _say(f"warning: {reason}; saving and stopping")
            return
        _say(f"warning: {reason}; exiting before training starts")
        with suppress(OSError, PipelineError):
            self.before_exit()
        os._exit(EXIT_INTERRUPTED)

    def _hear(self, heard: socket.socket) -> None:
        while numbers := heard.recv(64):  # a byte for each signal: its number
            for number in filter(STOP_SIGNALS.__contains__, numbers):
                self._receive(signal.Signals(number))

    def _receive(self, number: signal.Signals) -> None:
        if number != signal.SIGINT:
            self.request(f"received {number.name}")
        elif self._interrupted:
            _say("warning: second Ctrl-C; exiting without saving")
            os._exit(EXIT_BY_USER)
        else:
            self._interrupted = True
            self.request("Ctrl-C (press it again to exit without saving)")


def _say(line: str) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":
        with suppress(OSError, ValueError):
            # in one write, as the process may end before a second one
            print(f"{line}\n", end="", file=sys.stderr, flush=True)
