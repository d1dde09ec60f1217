"""Order of copies and of what is handed out, with streams that only note what they are asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.evaluation import device_copies
from pipeline.evaluation.device_copies import on_device


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_copy_starts_before_the_kernels_of_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Kernels wait for their own copy only, and keep its memory from the stream of copies. A CPU
    takes what it is given."""
    batches: Any = iter([object()])
    assert on_device(batches, torch.device("cpu")) is batches
    said: list[str] = []

    def read() -> Any:
        for number in range(count):
            said.append(f"read {number}")
            yield batch_of(number)

    def batch_of(number: int) -> SimpleNamespace:
        """With a tensor that notes which stream it belongs to."""

        def to(device: torch.device) -> SimpleNamespace:
            said.append(f"{device} copies {number}")
            return batch

        tensor = SimpleNamespace(record_stream=lambda _: said.append(f"kernels own {number}"))
        batch = SimpleNamespace(number=number, to=to, tensors=lambda: {"input_ids": tensor})
        return batch

    @contextmanager
    def beside(_: object) -> Iterator[None]:
        said.append("beside")
        yield
        said.append("back")

    stream = SimpleNamespace(
        record_event=lambda: sum("copies" in line for line in said) - 1,
        wait_event=lambda number: said.append(f"kernels wait for {number}"),
    )
    monkeypatch.setattr(torch.cuda, "stream", beside)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(device_copies, "_copy_stream", lambda device: stream)
    for batch in on_device(read(), torch.device("cuda")):
        said.append(f"kernels of {batch.number}")  # type: ignore[attr-defined]
    expected: list[str] = []
    for number in range(count + (count > 0)):
        if number < count:
            expected += [f"read {number}", "beside", f"cuda copies {number}", "back"]
        if number:
            expected += [f"kernels {what} {number - 1}" for what in ("wait for", "own", "of")]
    assert said == expected
