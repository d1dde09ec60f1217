"""Progress of a command: a bar on a terminal, elsewhere a line per minute."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TypeVar

from tqdm import tqdm

from pipeline.base.durations import in_words

SECONDS_BETWEEN_LINES = 60.0

Item = TypeVar("Item")
Weighted = TypeVar("Weighted")


def tracked(
    items: Iterable[Item], doing: str, unit: str, total: int | None = None
) -> Iterator[Item]:
    """Yield each item, and count those that are done as `counting` does.

    total: number of items, if `items` has no length.
    """
    total = len(items) if isinstance(items, Sized) else total
    with counting(doing, unit, total) as add:
        for item in items:
            yield item
            add(1)


@contextmanager
def counting(doing: str, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error. Yields a function to call with the units just done.

    doing: e.g. verifying; unit: in the plural, e.g. shards; total: None if unknown.
    """
    row = int(os.environ.get("LOCAL_RANK", "0"))  # ranks of torchrun share a terminal
    # disable=None shows the bar on terminals only; `_counting` prints lines elsewhere.
    bar = tqdm(total=total, desc=doing, unit=f" {unit}", disable=None, leave=False, position=row)

    stream = sys.stderr  # a block may redirect what it calls, and lines come from a thread

    def say(done: int, seconds: float) -> None:
        print(count_line(doing, unit, done, total, seconds), file=stream, flush=True)

    with _counting(bar, say) as add:
        yield add


def count_line(doing: str, unit: str, done: int, total: int | None, seconds: float) -> str:
    """Units done, and if their number is known their share and the remaining time."""
    if total is None:
        return f"{doing}: {done:,} {unit} in {in_words(seconds)}"
    share = f"{doing}: {done:,} of {total:,} {unit} ({done / max(total, 1):.0%})"
    if not done:
        return f"{share} in {in_words(seconds)}"
    return f"{share}, {in_words((total - done) * seconds / done)} left"


def with_progress(
    finished: Iterable[Weighted], weight: Callable[[Weighted], int], total: int, done: int
) -> Iterator[Weighted]:
    """Yield each finished item and show progress towards `total`, in bytes of text.

    done: bytes finished by earlier runs. Lines come from a thread, as an item may take hours.
    """
    bar = tqdm(
        total=total, initial=done, unit="B", unit_scale=True, desc="preparing", disable=None,
        leave=False,
    )  # fmt: skip

    def say(now_done: int, seconds: float) -> None:
        print(progress_line(total, done + now_done, done, seconds), flush=True)

    with _counting(bar, say) as add:
        for item in finished:
            add(weight(item))
            yield item


@contextmanager
def _counting(bar: tqdm, say: Callable[[int, float], None]) -> Iterator[Callable[[int], None]]:
    """Move the bar, or call `say` once a minute with what was added and the seconds since."""
    started_at = time.monotonic()
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        bar.update(count)

    def say_now() -> None:
        say(done, time.monotonic() - started_at)

    with bar, calling_each(SECONDS_BETWEEN_LINES, say_now) if bar.disable else nullcontext():
        yield add


@contextmanager
def calling_each(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Call `call` every so many seconds while the block runs, by a thread of its own."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.wait(seconds):
            call()

    thread = threading.Thread(target=work, daemon=True)  # ends with the process
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def progress_line(total: int, now_done: int, done_before: int, seconds: float) -> str:
    """Bytes done, their share, this run's rate, and the remaining time."""
    size, unit = (1e9, "GB") if total >= 1e9 else (1e6, "MB")
    share = f"{now_done / size:,.2f} of {total / size:,.2f} {unit} ({now_done / max(total, 1):.0%})"
    if now_done == done_before:
        return f"preparing: {share}, no part finished yet in {in_words(seconds)}"
    rate = (now_done - done_before) / max(seconds, 1e-9)
    left = in_words((total - now_done) / rate)
    return f"preparing: {share}, {rate / 1e6:,.1f} MB/s, {left} left"


def note(text: str) -> None:
    """Print a line for the user on stderr, over the bar of another rank."""
    cleared = "\r\033[K" if sys.stderr.isatty() else ""  # of another rank's bar
    print(f"{cleared}{text}", file=sys.stderr, flush=True)


def note_loading(package: str) -> None:
    """Say on a terminal that a package is about to be imported, unless it is imported already.

    It takes seconds, or a minute from a busy file system. Elsewhere a mistake stays one line.
    """
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    if first and sys.stderr.isatty() and package not in sys.modules and find_spec(package):
        note(f"loading {package}")
