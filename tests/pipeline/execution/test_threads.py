"""Results come in order, an error in its place, and few wait for whoever takes them."""

import threading
from collections.abc import Iterator

import pytest

from pipeline.execution import threads
from pipeline.execution.threads import do_on_threads, on_threads


def test_results_come_in_the_order_of_the_items() -> None:
    together = threading.Barrier(4)

    def square(item: int) -> int:
        if item < 4:
            together.wait(60)  # passes only if four run at a time
        return item * item

    assert list(on_threads(square, range(1000))) == [item * item for item in range(1000)]
    assert list(on_threads(square, [])) == []


def test_few_results_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_AHEAD", 3)
    taken = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = on_threads(str, items())
    assert next(results) == "0" and len(taken) == 3
    assert next(results) == "1" and len(taken) == 4
    results.close()  # type: ignore[attr-defined]
    assert len(taken) == 4


def test_an_error_is_raised_in_its_place() -> None:
    def check(item: int) -> int:
        if item == 5:
            raise OSError(f"no file {item}")
        return item

    results = on_threads(check, range(10))
    assert [next(results) for _ in range(5)] == list(range(5))
    with pytest.raises(OSError, match="no file 5"):
        next(results)
    with pytest.raises(OSError, match="no file 5"):
        do_on_threads(check, range(10))
