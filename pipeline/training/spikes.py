"""Is the loss of a step a spike? Told from the steps before it, and the same on every rank.

It is one when it is more than `spikes.deviations` standard deviations above the median of the last
`spikes.window` losses. Their deviation is 1.4826 times the median distance from that median, which
a few spikes among them do not move (Leys et al. 2013, recalled). A phase's losses are compared with
its own alone: another length or batch moves the loss, and that is no spike. What a run may do about
one is what PaLM's authors did by hand (Chowdhery et al. 2022, sec. 5.1, recalled): go back to a
checkpoint before it, and go on without the sequences that were read around it.

A rank's own loss is on the host once its step's update is made, with no wait more. The sum over
ranks travels with the next step's count (step_count.py), or with the sums of a logged or saved step
where that comes sooner: no collective more, and no step is logged or saved before it is judged. It
travels as a whole number of 1/65,536 nats, so that neither ranks nor the way it took change it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from pipeline.config.run import Spikes

UNITS = 1 << 16
"""Of a nat: a step's loss, up to 1e8 nats, stays an exact float64 also as a sum over ranks."""
NOT_FINITE = 1 << 50
"""Stands for a loss that is not finite; 4,096 ranks of it still fit into 63 bits."""
CONSISTENCY = 1.4826
"""Standard deviations of a normal law in its median absolute deviation."""
LEAST_DEVIATION = 1e-3
"""Of the median: a curve as flat as that would be made of spikes."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A loss far above those before it."""

    step: int
    """Counted from 1."""
    loss: float
    """Nats a predicted token, as `usual`."""
    usual: float
    deviations: float
    """How far above."""

    def __str__(self) -> str:
        return (
            f"the loss of step {self.step:,} is {self.loss:.4g}, {self.deviations:,.1f} deviations "
            f"above the median {self.usual:.4g} of the steps before it"
        )


@dataclass(slots=True)
class _Loss:
    step: int
    own: int
    """Of this rank, summed over what it is a mean over, in 1/UNITS nats."""
    count: int
    """What it is a mean over, of all ranks."""
    judged: bool = False


class LossWatch:
    """The last losses of a run, and those of its last steps that are not judged yet."""

    def __init__(
        self,
        settings: Spikes,
        device: torch.device,
        recent: Iterable[float] = (),
        begins: Iterable[int] = (),
    ) -> None:
        """recent: what `recent` was when the run was saved; begins: after which steps of the run
        a phase of it begins."""
        self.settings = settings
        self.on = settings.deviations > 0
        self.recent = deque(recent, maxlen=settings.window)
        """Losses of the phase's last steps that had a finite one, in nats a predicted token."""
        self._begins = frozenset(begins)
        self._cuda = device.type == "cuda" and self.on
        self._host = torch.zeros((), dtype=torch.float64, pin_memory=self._cuda)
        self._copied = torch.cuda.Event() if self._cuda else None  # type: ignore[no-untyped-call]
        self._kept: deque[_Loss] = deque()
        self._sent: deque[_Loss | None] = deque()

    def copy(self, loss_sum: torch.Tensor) -> None:
        """Begin to bring a step's loss [] to the host, as `loss_parts.loss_sum` gives it."""
        if self.on:
            self._host.copy_(loss_sum, non_blocking=self._cuda)
            if self._copied:
                self._copied.record()

    def made(self, step: int, count: int) -> None:
        """The update after the last `copy` is made; for it the host has waited for the loss."""
        if not self.on:
            return
        if self._copied:
            self._copied.synchronize()
        loss = float(self._host)
        whole = round(loss * UNITS) if math.isfinite(loss) else NOT_FINITE
        self._kept.append(_Loss(step, min(whole, NOT_FINITE), count))

    def send(self) -> int:
        """This rank's loss of the oldest step that was not sent, 0 when there is none."""
        loss = self._kept.popleft() if self._kept else None
        self._sent.append(loss)
        return loss.own if loss else 0

    def receive(self, total: int) -> Spike | None:
        """Judge what was sent longest ago; total: over all ranks."""
        loss = self._sent.popleft()
        return self._judge(loss, total) if loss else None

    def owed(self) -> list[int]:
        """This rank's losses of the steps that are not judged yet, for one sum of all of them."""
        return [loss.own for loss in self._unjudged()]

    def settle(self, totals: Sequence[int]) -> Spike | None:
        """Judge these steps; totals: of `owed` over all ranks. The first spike ends it."""
        for loss, total in zip(self._unjudged(), totals, strict=True):
            if spike := self._judge(loss, total):
                return spike
        return None

    def go_back(self, recent: Iterable[float]) -> None:
        """Forget what came after a checkpoint; recent: as it was there."""
        self.recent = deque(recent, maxlen=self.settings.window)
        self._kept.clear()
        self._sent.clear()

    def _unjudged(self) -> list[_Loss]:
        return [loss for loss in (*self._sent, *self._kept) if loss and not loss.judged]

    def _judge(self, loss: _Loss, total: int) -> Spike | None:
        if loss.judged:
            return None
        loss.judged = True
        if loss.step - 1 in self._begins:
            self.recent.clear()
        if total >= NOT_FINITE:  # such a gradient has changed nothing
            return None
        value = total / UNITS / loss.count
        spike = None
        if len(self.recent) == self.settings.window:
            usual = statistics.median(self.recent)
            distance = statistics.median(abs(other - usual) for other in self.recent)
            deviation = max(CONSISTENCY * distance, LEAST_DEVIATION * usual)
            above = (value - usual) / deviation if deviation else 0.0
            if above > self.settings.deviations:
                spike = Spike(loss.step, value, usual, above)
        self.recent.append(value)
        return spike
