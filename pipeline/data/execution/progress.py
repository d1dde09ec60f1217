"""Progress: a bar on a terminal, elsewhere a line per minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from tqdm import tqdm

from pipeline.durations import in_words

SECONDS_BETWEEN_LINES = 60.0

Weighted = TypeVar("Weighted")


def with_progress(
    finished: Iterable[Weighted], weight: Callable[[Weighted], int], total: int, done: int
) -> Iterator[Weighted]:
    """Yield each finished item and show progress towards `total`, in bytes of text.

    done: bytes finished by earlier runs. Lines come from a thread, as an item may take hours.
    """
    bar = tqdm(total=total, initial=done, unit="B", unit_scale=True, desc="preparing", disable=None)
    started_at = time.monotonic()
    now_done = done

    def say() -> None:
        print(progress_line(total, now_done, done, time.monotonic() - started_at), flush=True)

    with bar, _each_minute(say) if bar.disable else nullcontext():
        for item in finished:
            now_done += weight(item)
            bar.update(weight(item))
            yield item


@contextmanager
def _each_minute(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` once a minute while the block runs."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(SECONDS_BETWEEN_LINES):
            say()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def progress_line(total: int, now_done: int, done_before: int, seconds: float) -> str:
    """Bytes done, their share, this run's rate, and the remaining time."""
    share = f"{now_done / 1e9:,.2f} of {total / 1e9:,.2f} GB ({now_done / max(total, 1):.0%})"
    if now_done == done_before:
        return f"preparing: {share}, no part finished yet in {in_words(seconds)}"
    rate = (now_done - done_before) / max(seconds, 1e-9)
    left = in_words((total - now_done) / rate)
    return f"preparing: {share}, {rate / 1e6:,.1f} MB/s, {left} left"
