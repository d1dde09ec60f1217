"""The one loop around what a network does: what may work later is tried again, with pauses.

Pauses double from one second to two minutes, or are as long as Retry-After asks, within limits. A
transfer that gets on is not given up, however often it is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import sleep
from typing import TypeVar

from pipeline.base.errors import DataError, one_line

_ATTEMPTS = 30
"""Failures in a row before a file is given up; with pauses, about 50 minutes."""
_FIRST_ATTEMPTS = 5
"""The same for a list or a look at a file, if there is no answer; about 15 seconds."""
_PAUSE_SECONDS = 1.0
"""Pause after the first failure, doubled after each further one. Common Crawl asks for 1 s."""
_LONGEST_PAUSE_SECONDS = 120.0
_LONGEST_WISH_SECONDS = 600.0
"""The longest Retry-After that is waited for."""
_GAIN = 0.01
"""Share of a file that must arrive between two failures for them not to be in a row."""
_LONG_SECONDS = 8.0
"""A pause that is reported to the user."""

Answer = TypeVar("Answer")


class TryAgainError(Exception):
    """A failure that another attempt may not have; its message shows no secret of a URL."""

    def __init__(self, why: str, *, wait: float = 0.0, answered: bool = True) -> None:
        """wait: seconds that the server asks for; answered: whether there is a server."""
        super().__init__(why)
        self.wait = wait
        self.answered = answered


def patiently(
    shown: str,
    attempt: Callable[[], Answer],
    fetched: Callable[[], int] = lambda: 0,
    size: int = 0,
    attempts: int = _ATTEMPTS,
    advice: str = "",
) -> Answer:
    """The result of `attempt`, after as many attempts and pauses as it takes.

    shown: what is fetched, for messages; fetched: how many of `size` bytes there are; advice: what
    else the user can do. Raises DataError after too many failures in a row.
    """
    failures, best = 0, fetched()
    while True:
        try:
            return attempt()
        except TryAgainError as error:
            now = fetched()
            if now - best > _GAIN * size:  # a few bytes per attempt are not progress
                failures, best = 0, now
            failures += 1
            # No answer at all is a wrong address or no network, which fifty minutes do not change.
            most = attempts if size or error.answered else min(attempts, _FIRST_ATTEMPTS)
            if failures == most:
                count = f"; {failures} attempts" * (failures > 1)
                raise DataError(
                    f"{shown} cannot be fetched ({error}{count}); run the same command again to "
                    "continue, here or on a machine with network and the same TENFOLD_ROOT"
                    + f"; {advice}"
                    * bool(advice)
                ) from error
            pause = min(_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS)
            pause = max(pause, min(error.wait, _LONGEST_WISH_SECONDS))
            if pause >= _LONG_SECONDS:
                line = one_line(f"{shown}: {error}; next attempt in {pause:.0f} s")
                print(line, file=sys.stderr, flush=True)
            sleep(pause)
