"""What takes too long is interrupted, or noticed at its end."""

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.time_limit import TimeLimitError, drop_slow, limited, slow_items


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)


def compute(seconds: float) -> None:
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass


def test_code_that_is_not_fast_enough_is_interrupted() -> None:
    began_at = time.thread_time()
    with pytest.raises(TimeLimitError), limited():
        compute(30)
    assert time.thread_time() - began_at < 20
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    # waiting and other threads do not count, and errors pass through
    for _ in range(3):
        with limited():
            compute(0.001)
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    compute(0.1)  # nothing is left to interrupt it
    other = threading.Thread(target=compute, args=(0.2,))
    with limited():
        other.start()
        other.join()
        time.sleep(0.06)
    with pytest.raises(KeyError), limited():
        raise KeyError
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_another_thread_notices_at_the_end() -> None:
    def work() -> None:
        with limited():
            compute(0.1)

    with ThreadPoolExecutor(1) as threads, pytest.raises(TimeLimitError):
        threads.submit(work).result()


def test_slow_records_are_dropped_and_batches_done_again() -> None:
    """The time of their consumer does not count."""

    def records() -> Iterator[str]:
        for name, seconds in (("a", 0.0), ("slow", 0.06), ("b", 0.0), ("c", 0.0)):
            compute(seconds)
            yield name

    found = []
    for record in drop_slow(records(), lambda record: f"no {record}"):
        found.append(record)
        compute(0.1)
    assert found == ["a", "no slow", "b", "c"]
    # a batch is done again only if it took long
    done: list[int] = []

    def do_one(index: int) -> None:
        done.append(index)
        compute(0.06 if index == 1 else 0)

    assert slow_items(time.thread_time(), do_one, 3) == [] == done
    began_at = time.thread_time()
    compute(0.06)
    assert slow_items(began_at, do_one, 3) == [1] and done == [0, 1, 2]
