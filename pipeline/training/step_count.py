"""What all ranks must know of a step before it is made, in one small all-reduce.

Started when a step is known, a step ahead of its use: the result is then there when it is needed,
and it is the same on every rank. Whole numbers only, so that no sum depends on its order.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
import torch.distributed as dist

from pipeline.loading.micro_batch import Counts


class StepResult(NamedTuple):
    """What the ranks know of a step together."""

    counts: Counts
    """Of all ranks."""
    stopping: bool
    """Whether one of them wants to stop."""
    loss: int
    """The sum of theirs."""
    micro_batches: int
    """The most that one of them has."""


class StepCount:
    """The counts of a step over all ranks, whether any of them wants to stop, and a loss.

    All travel in one small all-reduce; the most micro-batches of a rank in another beside it.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """group: None for the default; device: where it reduces (NCCL: the rank's GPU)."""
        self.group = group
        self.device = device
        self._started: deque[tuple[torch.Tensor, torch.Tensor, list[dist.Work]]] = deque()

    def start(
        self, counts: Counts, stop: bool = False, loss: int = 0, micro_batches: int = 1
    ) -> None:
        """Begin a step of which this rank has `counts`; stop: this rank wants to stop.

        loss: of an earlier step on this rank, as `spikes.LossWatch.send` gives it; micro_batches:
        of the step on this rank.
        """
        value = torch.tensor([int(stop), loss, *counts], device=self.device)
        most = torch.tensor([micro_batches], device=self.device)
        works = []
        if dist.is_available() and dist.is_initialized():
            for part, how in ((value, dist.ReduceOp.SUM), (most, dist.ReduceOp.MAX)):
                works.append(dist.all_reduce(part, how, group=self.group, async_op=True))
        self._started.append((value, most, works))

    def result(self) -> StepResult:
        """Of the oldest step started, over all ranks."""
        value, most, works = self._started.popleft()
        for work in works:
            work.wait()
        stops, loss, *counts = map(int, value.tolist())
        return StepResult(
            counts=Counts(*counts), stopping=stops > 0, loss=loss, micro_batches=int(most)
        )

    def drain(self) -> None:
        """Wait for what was started and nobody will ask for."""
        while self._started:
            self.result()
