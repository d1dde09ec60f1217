"""A document has ten seconds of CPU; then it is dropped, and counted with that reason.

Ordinary documents take milliseconds, so the limit drops the same documents on any machine: it is
for input that was made, or happens, to keep a parser busy. Python code is interrupted. A call of C
code is not, but what takes quadratic time there is refused or rewritten before (`wikitext`,
`main_text`, `clean`); the limit is then noticed when the call returns, and so it is outside of the
main thread, where signals do not arrive.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 10.0
TOO_SLOW = f"over {SECONDS:.0f} s of CPU"
"""The reason for which such a document is dropped."""
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
    else:
        yield
    if time.thread_time() > ends_at:
        raise TimeLimitError


def _interrupt(number: int, frame: FrameType | None) -> None:
    # The timer counts the CPU time of all threads.
    if time.thread_time() > _deadline:
        raise TimeLimitError
