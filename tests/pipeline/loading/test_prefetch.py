"""A thread ahead of its reader: same items, bounded depth, errors in their place."""

import threading
from collections.abc import Generator

import pytest

from pipeline.loading.prefetch import in_background


class Source:
    """Counts up; records how far it got and whether it was closed."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.made = 0
        self.closed = False
        self.changed = threading.Condition()

    def items(self) -> Generator[int, None, None]:
        try:
            for number in range(self.count):
                with self.changed:
                    self.made = number + 1
                    self.changed.notify()
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed = True

    def wait(self, made: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.made >= made, timeout=30)


@pytest.mark.parametrize("depth", [1, 2, 7, 100])
def test_items_come_in_order(depth: int) -> None:
    before = threading.active_count()
    assert list(in_background(Source(50).items(), depth)) == list(range(50))
    assert threading.active_count() == before


def test_the_thread_is_at_most_depth_items_ahead_and_ends_when_closed() -> None:
    before = threading.active_count()
    source = Source(1000)
    items = in_background(source.items(), 4)
    assert next(items) == 0
    assert threading.active_count() == before + 1
    source.wait(5)  # one taken, four waiting
    for taken in range(1, 100):
        assert next(items) == taken
        assert source.made <= taken + 1 + 4 + 1  # one of which waits for room
    items.close()
    assert source.closed and source.made < 200 and threading.active_count() == before


def test_an_error_comes_after_the_items_before_it() -> None:
    items = in_background(Source(3, ValueError("damaged")).items(), 8)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="damaged"):
        next(items)
