"""A document has ten seconds of CPU; then it is dropped, and counted with that reason.

The limit holds for each stage that a document passes: a reader or extraction, cleaning, and the
filters. Ordinary documents take milliseconds, so it drops the same documents on any machine: it is
for input that was made, or happens, to keep a parser busy. What takes 10 s on one machine and 9 on
another is dropped on only one of them; extracted files and decisions keep what they dropped, and
`prepare` makes a task's parts again if a restart drops others.

Parsers of mark-up and of books are interrupted (`limited`). A call of C code is not, but what takes
quadratic time there is refused or rewritten before (`wikitext`, `main_text`, `clean`); the limit is
then noticed when the call returns, and so it is outside of the main thread, where signals do not
arrive. Other readers and the kernels take linear time, so nothing interrupts them: the time of each
record and batch is taken, and what took too long is dropped (`drop_slow`, `slow_items`).
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

SECONDS = 10.0
TOO_SLOW = f"over {SECONDS:.0f} s of CPU"
"""The reason for which such a document is dropped."""
_BETWEEN_SAMPLES = 0.1  # seconds by the clock
_AGAIN = 1.0  # seconds until it is interrupted again, in case that something caught the first


class TimeLimitError(Exception):
    """A document took too long."""


_deadline = math.inf


@contextmanager
def limited() -> Iterator[None]:
    """Raises TimeLimitError if the block takes more than SECONDS of this thread's CPU time."""
    global _deadline
    ends_at = time.thread_time() + SECONDS
    if threading.current_thread() is threading.main_thread():
        _deadline = ends_at
        if signal.getsignal(signal.SIGPROF) is not _interrupt:
            signal.signal(signal.SIGPROF, _interrupt)
        signal.setitimer(signal.ITIMER_PROF, SECONDS, _AGAIN)
        try:
            yield
        finally:
            _deadline = math.inf
            signal.setitimer(signal.ITIMER_PROF, 0)
    else:  # signals reach only the main thread
        yield
    if time.thread_time() > ends_at:
        raise TimeLimitError


AnyRecord = TypeVar("AnyRecord")


def drop_slow(
    records: Iterable[AnyRecord], dropped: Callable[[AnyRecord], AnyRecord]
) -> Iterator[AnyRecord]:
    """The records, with `dropped` of those that took over SECONDS of CPU since the one before.

    The clock is asked for each record, as CPU time takes ten times as long to ask for.
    """
    began_at = sampled_at = time.monotonic()
    cpu = time.thread_time()
    for record in records:
        # A thread's CPU time is never more than the clock's, so the cheap one rules out nearly all.
        if exceeds(time.monotonic() - began_at) and exceeds(time.thread_time() - cpu):
            record = dropped(record)
        yield record
        began_at = time.monotonic()
        if began_at - sampled_at > _BETWEEN_SAMPLES:
            sampled_at, cpu = began_at, time.thread_time()


def exceeds(seconds: float) -> bool:
    """True if this is more than a document has."""
    return seconds > SECONDS


def slow_items(began_at: float, do_one: Callable[[int], object], count: int) -> list[int]:
    """Indices of the items, of `count`, that take too long if each is done separately.

    began_at: this thread's CPU time when the first of them was started; if they took less together,
    none does. So the time of ordinary items is taken once for all.
    """
    if not exceeds(time.thread_time() - began_at):
        return []
    slow = []
    for index in range(count):
        began_at = time.thread_time()
        do_one(index)
        if exceeds(time.thread_time() - began_at):
            slow.append(index)
    return slow


def _interrupt(number: int, frame: FrameType | None) -> None:
    # The timer counts the CPU time of all threads.
    if time.thread_time() > _deadline:
        raise TimeLimitError
