"""Runs an iterator in a thread, ahead of its reader."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Buffer(Generic[Item]):
    """Items between one writer and one reader.

    The writer of a full buffer continues only after half of it is read: waking a thread for every
    item would make the reader wait for the interpreter's lock each time.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.items: deque[Item] = deque()
        self.changed = threading.Condition()
        self.ended = False
        self.error: BaseException | None = None

    def put(self, item: Item) -> bool:
        """Add an item as soon as there is room; False if the reader has stopped."""
        with self.changed:
            if len(self.items) >= self.depth:
                self.changed.wait_for(lambda: self.ended or len(self.items) <= self.depth // 2)
            if not self.items:  # only then does the reader wait
                self.changed.notify()
            self.items.append(item)
            return not self.ended

    def end(self, error: BaseException | None = None) -> None:
        """Stop: the writer has no more items, or failed with `error`, or the reader has stopped."""
        with self.changed:
            self.ended = True
            self.error = error
            self.changed.notify()

    def get(self) -> Generator[Item, None, None]:
        """The items in order; raises the writer's error after the last one."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.items or self.ended)
                if not self.items:
                    break
                item = self.items.popleft()
                if len(self.items) == self.depth // 2:  # met once on the way down: one wake-up
                    self.changed.notify()
            yield item  # outside the lock, which the writer needs meanwhile
        if self.error is not None:
            raise self.error


def in_background(source: Generator[Item, None, None], depth: int) -> Generator[Item, None, None]:
    """The items of `source`, which a thread computes up to `depth` >= 1 items ahead.

    An error in `source` is raised here, after the items before it. Closing or dropping this
    generator closes `source` and joins the thread.
    """
    buffer: _Buffer[Item] = _Buffer(depth)

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in source:
                if not buffer.put(item):
                    break
            source.close()  # here: another thread cannot close a generator that runs
        except BaseException as raised:  # the reader raises it, where it can be handled
            error = raised
        buffer.end(error)

    thread = threading.Thread(target=work, name="in_background", daemon=True)
    thread.start()
    try:
        yield from buffer.get()
    finally:
        buffer.end()  # wakes a writer that waits for room
        thread.join()
