"""A rank that hangs -> the stacks of all its threads on stderr, and the end of its process.

`kill -USR2 PID` prints the stacks of a rank that has not hung for that long; it continues.

A rank that waits forever (for a dead peer, a file server, in a deadlock) blocks the whole job and
its GPUs. The launcher sees the process end, and ends or restarts the others. Ranks that wait for
the hung one print their own stacks, so the log shows where each rank was.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn, TypeVar

EXIT_HUNG = 70
"""EX_SOFTWARE of sysexits.h: an internal failure, not a user's mistake."""
PATIENCE = 10
"""Multiple of the longest silence so far: what is slow from the start is not hung."""

T = TypeVar("T")


def print_stacks_on_usr2() -> None:
    """On SIGUSR2, print the stacks of all threads on stderr, even while Python waits in torch.

    Batch systems ask for a stop with SIGTERM or SIGUSR1.
    """
    faulthandler.register(signal.SIGUSR2, all_threads=True)


class Watchdog:
    """Watches this process inside `with`; call `beat` when something is finished."""

    def __init__(self, rank: int, hang_seconds: float) -> None:
        self._rank = rank
        self._hang_seconds = hang_seconds
        self._beats = 0
        self._longest = 0.0
        self._beaten_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._beaten_at = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def beat(self) -> None:
        """Report progress."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._beaten_at)
        self._beaten_at = now
        self._beats += 1  # a count: a clock also runs while the process is stopped

    def through(self, items: Iterator[T]) -> Iterator[T]:
        """The items, with a beat for each."""
        for item in items:
            self.beat()
            yield item

    def _watch(self) -> None:
        # Counts its own wake-ups: a process that was stopped for an hour and then continues has not
        # been silent for an hour.
        pause = min(1.0, self._hang_seconds / 10)
        silent, beats = 0.0, self._beats
        while not self._ended.wait(pause):
            silent = 0.0 if self._beats != beats else silent + pause
            beats = self._beats
            if silent >= max(self._hang_seconds, PATIENCE * self._longest):
                self._end(silent)

    def _end(self, silent: float) -> None:
        end_with_stacks(f"rank {self._rank}", f"has made no progress for {silent:.0f} s")


def end_with_stacks(who: str, why: str) -> NoReturn:
    """End this process, with a line and the stacks of its threads; any thread may call this."""
    print(
        f"error: {who} on {socket.gethostname()} {why} and ends; its threads' stacks follow; run "
        "the same command again",
        file=sys.stderr,
        flush=True,
    )
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_HUNG)  # sys.exit would end one thread, or wait for all others
