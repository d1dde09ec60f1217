"""Order of copies and of what is handed out, with streams that only note what they are asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pipeline.evaluation import device_copies
from pipeline.evaluation.device_copies import on_device


class Noted:
    """A micro-batch, its only tensor, and its event."""

    def __init__(self, said: list[str], number: int) -> None:
        self.said, self.number = said, number

    def to(self, device: torch.device) -> Noted:
        self.said.append(f"{device} copies {self.number}")
        return self

    def tensors(self) -> dict[str, Noted]:
        return {"input_ids": self}

    def record_stream(self, stream: object) -> None:
        self.said.append(f"kernels own {self.number}")


class Stream:
    """Stands for both streams."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def __enter__(self) -> None:
        self.said.append("beside")

    def __exit__(self, *_: object) -> None:
        self.said.append("back")

    def record_event(self) -> int:
        return sum("copies" in line for line in self.said) - 1

    def wait_event(self, number: int) -> None:
        self.said.append(f"kernels wait for {number}")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_copy_starts_before_the_kernels_of_the_one_before_it(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Kernels wait for their own copy only, and keep its memory from the stream of copies. A CPU
    takes what it is given."""
    batches: Any = iter([object()])
    assert on_device(batches, torch.device("cpu")) is batches
    said: list[str] = []
    stream = Stream(said)
    monkeypatch.setattr(torch.cuda, "stream", lambda given: given)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(device_copies, "_copy_stream", lambda device: stream)

    def read() -> Any:
        for number in range(count):
            said.append(f"read {number}")
            yield Noted(said, number)

    for batch in on_device(read(), torch.device("cuda")):
        said.append(f"kernels of {batch.number}")  # type: ignore[attr-defined]
    expected: list[str] = []
    for number in range(count + (count > 0)):
        if number < count:
            expected += [f"read {number}", "beside", f"cuda copies {number}", "back"]
        if number:
            expected += [f"kernels {what} {number - 1}" for what in ("wait for", "own", "of")]
    assert said == expected
