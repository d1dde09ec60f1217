"""What all ranks must know about a step before it runs, all-reduced one step ahead.

The reduction starts as soon as a step is known, so that its result is ready when it is needed. Only
whole numbers are summed, so that no sum depends on its order.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
import torch.distributed as dist

from pipeline.loading.micro_batch import LossCounts


class StepResult(NamedTuple):
    """What all ranks together know about a step."""

    counts: LossCounts
    """Sums over all ranks."""
    stopping: bool
    """True if any rank requests a stop."""
    loss: int
    """Sum of the ranks' losses."""
    micro_batches: int
    """The largest number of any rank."""


class StopVote:
    """A vote of the ranks on stopping within a step, read one micro-batch after it is asked."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        """group: None for the default."""
        self.group = group
        self._asked: tuple[torch.Tensor, dist.Work | None] | None = None

    def ask(self, stop: bool) -> None:
        """Start to share whether this rank wants to stop. Collective."""
        # Without a group there is nothing to share: this rank's own answer.
        vote, work = torch.tensor([int(stop)]), None
        if dist.is_available() and dist.is_initialized():
            work = dist.all_reduce(vote, dist.ReduceOp.MAX, group=self.group, async_op=True)
        self._asked = vote, work

    def passed(self) -> bool:
        """The answer to the last `ask`; False if there was none. Collective."""
        if self._asked is None:
            return False
        vote, work = self._asked
        self._asked = None  # an answer is read once
        if work:
            work.wait()
        return bool(vote.item())


class StepCount:
    """All-reduces the counts of a step, the stop requests and an earlier loss.

    All of these take one all-reduce; the largest number of micro-batches takes another one.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """group: None for the default; device: that of reduced tensors (NCCL: the rank's GPU)."""
        self.group = group
        self.device = device
        self._started: deque[tuple[torch.Tensor, torch.Tensor, list[dist.Work]]] = deque()

    def start(
        self, counts: LossCounts, stop: bool = False, loss: int = 0, micro_batches: int = 1
    ) -> None:
        """Start to share this rank's part of a step; stop: this rank requests a stop.

        loss: this rank's loss of an earlier step, from `LossWatch.send`; micro_batches: number of
        this rank's micro-batches of the step.
        """
        # int64: the sum is exact, so neither order nor number of ranks changes it.
        value = torch.tensor([int(stop), loss, *counts], device=self.device)
        most = torch.tensor([micro_batches], device=self.device)
        works = []
        if dist.is_available() and dist.is_initialized():
            for part, how in ((value, dist.ReduceOp.SUM), (most, dist.ReduceOp.MAX)):
                works.append(dist.all_reduce(part, how, group=self.group, async_op=True))
        # In order: `result` takes the oldest, as all ranks start steps in the same order.
        self._started.append((value, most, works))

    def result(self) -> StepResult:
        """The result of the oldest step that was started."""
        value, most, works = self._started.popleft()
        for work in works:
            work.wait()
        stops, loss, *counts = map(int, value.tolist())
        return StepResult(
            counts=LossCounts(*counts), stopping=stops > 0, loss=loss, micro_batches=int(most)
        )

    def drain(self) -> None:
        """Wait for the started steps and drop their results."""
        while self._started:
            self.result()
