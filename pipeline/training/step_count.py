"""What all ranks must know of a step before it is made, in one small all-reduce.

Started when a step is known, a step ahead of its use: the result is then there when it is needed,
and it is the same on every rank. Whole numbers only, so that no sum depends on its order.
"""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist

_STOP_BIT = 40


class StepCount:
    """The predicted tokens of a step over all ranks, whether any of them wants to stop, and a loss.

    All travel in one 16-byte all-reduce.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """group: None for the default; device: where it reduces (NCCL: the rank's GPU)."""
        self.group = group
        self.device = device
        self._started: deque[tuple[torch.Tensor, dist.Work | None]] = deque()

    def start(self, predictions: int, stop: bool = False, loss: int = 0) -> None:
        """Begin a step in which this rank has `predictions`; stop: this rank wants to stop.

        loss: of an earlier step on this rank, as `spikes.LossWatch.send` gives it.
        """
        value = torch.tensor([predictions + (int(stop) << _STOP_BIT), loss], device=self.device)
        work = None
        if dist.is_available() and dist.is_initialized():
            work = dist.all_reduce(value, group=self.group, async_op=True)
        self._started.append((value, work))

    def result(self) -> tuple[int, bool, int]:
        """Of the oldest step started: predictions of all ranks, whether one wants to stop, and the
        sum of `loss`."""
        value, work = self._started.popleft()
        if work is not None:
            work.wait()
        total, loss = map(int, value.tolist())
        return total & ((1 << _STOP_BIT) - 1), total >> _STOP_BIT > 0, loss

    def drain(self) -> None:
        """Wait for what was started and nobody will ask for."""
        while self._started:
            self.result()
