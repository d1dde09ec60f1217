"""A rank's weights and moments between two steps -> host memory, where they wait to be written.

All fragments are copied into one buffer. It is allocated for the first checkpoint and reused by all
later ones, so that memory does not grow. On a GPU the buffer is pinned and the copies are queued on
the stream of training: the next update runs after them without a wait on the host, and the writer's
thread calls `wait` until they are complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pipeline.training.optimizer.optimizer import FragmentState


class Snapshot:
    """Holds one copy at a time."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0)
        self._copied: torch.cuda.Event | None = None

    @torch.no_grad()
    def take(self, fragments: Iterable[FragmentState]) -> list[FragmentState]:
        """The same fragments in host memory; valid after `wait`, until the next `take`."""
        parts = list(fragments)
        numel = sum(tensor.numel() for part in parts for tensor in part[2:])  # after name, start
        on_gpu = any(part.weight.is_cuda for part in parts)
        # Only the first time: a rank's share does not change within a run.
        if self._buffer.numel() != numel:
            self._buffer = _host_memory(numel, on_gpu)
        copies, place = [], 0
        for part in parts:
            own = []
            for tensor in (part.weight, part.exp_avg, part.exp_avg_sq):
                own.append(self._buffer[place : place + tensor.numel()])
                own[-1].copy_(tensor, non_blocking=True)
                place += tensor.numel()
            copies.append(FragmentState(part.name, part.start, *own))
        if on_gpu:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()  # after the copies, before the next update
        return copies

    def wait(self) -> None:
        """Return when the copies are complete."""
        if self._copied is not None:
            self._copied.synchronize()


def _host_memory(numel: int, pinned: bool) -> torch.Tensor:
    """fp32 [numel]. Torch's own pinned memory comes in powers of two, up to twice the size."""
    buffer = torch.empty(numel)
    if pinned and numel:
        # if the system refuses, the copies block the caller, and nothing else changes
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        runtime.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0)
    return buffer
