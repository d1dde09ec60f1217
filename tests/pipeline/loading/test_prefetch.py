"""A thread ahead of its reader: same items, bounded depth, errors in their place."""

import threading
from collections.abc import Generator

import pytest

from pipeline.loading.prefetch import in_background
from tests.pipeline.preparing import wait_until


def counting(made: list[int], error: str = "") -> Generator[int, None, None]:
    """Counts up, or fails after three numbers; made: the numbers so far, and -1 once closed."""
    try:
        for number in range(3 if error else 1000):
            made.append(number)
            yield number
        raise ValueError(error)
    finally:
        made.append(-1)


@pytest.mark.parametrize("depth", [1, 2, 7, 100])
def test_items_come_in_order(depth: int) -> None:
    before = threading.active_count()
    assert list(in_background((number for number in range(50)), depth)) == list(range(50))
    assert threading.active_count() == before


def test_the_thread_is_at_most_depth_items_ahead_and_ends_when_closed() -> None:
    before, made = threading.active_count(), list[int]()
    items = in_background(counting(made), 4)
    assert next(items) == 0
    assert threading.active_count() == before + 1
    wait_until(lambda: len(made) >= 5)  # one taken, four waiting
    for taken in range(1, 100):
        assert next(items) == taken
        assert len(made) <= taken + 1 + 4 + 1  # one of which waits for room
    items.close()
    assert made[-1] == -1 and len(made) < 200 and threading.active_count() == before


def test_an_error_comes_after_the_items_before_it() -> None:
    items = in_background(counting([], "damaged"), 8)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(items)
