"""What all ranks must know of a step before it is made, in one small all-reduce.

Started when a step is known, a step ahead of its use: the result is then there when it is needed,
and it is the same on every rank. Whole numbers only, so that no sum depends on its order.
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist

from pipeline.data.batch import Counts


class StepCount:
    """The counts of a step over all ranks, whether any of them wants to stop, and a loss."""

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """group: None for the default; device: where it reduces (NCCL: the rank's GPU)."""
        self.group = group
        self.device = device
        self._started: deque[tuple[torch.Tensor, dist.Work | None]] = deque()

    def start(self, counts: Counts, stop: bool = False, loss: int = 0) -> None:
        """Begin a step of which this rank has `counts`; stop: this rank wants to stop.

        loss: of an earlier step on this rank, as `spikes.LossWatch.send` gives it.
        """
        value = torch.tensor([int(stop), loss, *counts], device=self.device)
        work = None
        if dist.is_available() and dist.is_initialized():
            work = dist.all_reduce(value, group=self.group, async_op=True)
        self._started.append((value, work))

    def result(self) -> tuple[Counts, bool, int]:
        """Of the oldest step started: counts of all ranks, whether one wants to stop, and the sum
        of `loss`."""
        value, work = self._started.popleft()
        if work is not None:
            work.wait()
        stops, loss, *counts = map(int, value.tolist())
        return Counts(*counts), stops > 0, loss

    def drain(self) -> None:
        """Wait for what was started and nobody will ask for."""
        while self._started:
            self.result()
