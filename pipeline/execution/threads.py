"""Many small files read, renamed or removed on threads: on a shared file system each waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS = 32
"""A call to a shared file system takes 0.5 to 5 ms, in which a thread only waits."""
_AHEAD = 4 * THREADS
"""Most results that wait to be taken."""


def on_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int = THREADS
) -> Iterator[Result]:
    """Yield the results for all items, in their order; `function` mostly waits for files.

    The first error is raised in its place, and what has not begun by then never does.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                # Bounds memory: a slow caller stops the reading ahead.
                if len(waiting) >= _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Also when the caller stops taking results.
            pool.shutdown(cancel_futures=True)


def do_on_threads(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `function` for all items, in any order, on threads."""
    for _ in on_threads(function, items):
        pass
