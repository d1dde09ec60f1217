"""Progress: a bar on a terminal, elsewhere a line per minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 60.0

Weighted = TypeVar("Weighted")


def with_progress(
    finished: Iterable[Weighted],
    weight: Callable[[Weighted], int],
    total: int,
    done: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Weighted]:
    """Yield each finished item and show progress towards `total`, in bytes of text.

    done: bytes finished by earlier runs.
    """
    bar = tqdm(total=total, initial=done, unit="B", unit_scale=True, desc="preparing", disable=None)
    started_at = shown_at = clock()
    now_done = done
    with bar:
        for item in finished:
            now_done += weight(item)
            bar.update(weight(item))
            now = clock()
            if bar.disable and now - shown_at >= SECONDS_BETWEEN_LINES:
                print(progress_line(total, now_done, done, now - started_at), flush=True)
                shown_at = now
            yield item


def progress_line(total: int, now_done: int, done_before: int, seconds: float) -> str:
    """Bytes done, their share, this run's rate, and the remaining time."""
    rate = max((now_done - done_before) / max(seconds, 1e-9), 1e-9)
    left = hours_and_minutes((total - now_done) / rate)
    return (
        f"preparing: {now_done / 1e9:,.2f} of {total / 1e9:,.2f} GB ({now_done / total:.0%}), "
        f"{rate / 1e6:,.1f} MB/s, {left} left"
    )


def hours_and_minutes(seconds: float) -> str:
    """`3 h 07 min`, rounded up to whole minutes."""
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"
