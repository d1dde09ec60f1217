"""The losses of a run -> spikes, the same ones on every rank.

A spike is a loss more than `spikes.deviations` standard deviations above the median of the last
`spikes.window` losses. The deviation is 1.4826 times the median distance from that median, which
a few spikes in the window do not change (Leys et al. 2013, recalled). Losses are compared within a
phase only: another length or batch changes the loss, and that is not a spike.

A rank's own loss is on the host once the update of its step is made, without an extra wait. It is
all-reduced with the next step's counts (step_count.py), or with the sums of a logged or saved step
if those come first. So there is no extra collective, and a step is judged before it is logged or
saved. Losses are summed as whole numbers of 1/65,536 nats, so that neither the number of ranks nor
the order of the sum changes it.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from pipeline.config.training_settings import SpikeSettings

UNITS = 1 << 16
"""Units per nat: a loss of up to 1e8 nats, and its sum over ranks, is an exact float64."""
NOT_FINITE = 1 << 50
"""Stands for a loss that is not finite; the sum over 4,096 ranks still fits into 63 bits."""
CONSISTENCY = 1.4826
"""Standard deviations of a normal distribution per median absolute deviation."""
LEAST_DEVIATION = 1e-3
"""Lower bound of the deviation, relative to the median: otherwise any change of a flat curve is a
spike."""


@dataclass(frozen=True, slots=True)
class Spike:
    """A loss far above the losses before it."""

    step: int
    """The step, counted from 1."""
    loss: float
    """Nats per predicted token."""
    usual: float
    """Median of the losses before it."""
    deviations: float
    """Deviations above that median."""

    def __str__(self) -> str:
        return (
            f"the loss of step {self.step:,} is {self.loss:.4g}, {self.deviations:,.1f} deviations "
            f"above the median {self.usual:.4g} of the steps before it"
        )


@dataclass(slots=True)
class _Loss:
    step: int
    own: int
    """This rank's sum, in 1/UNITS nats."""
    count: int
    """Count over all ranks: the loss is the sum over all ranks divided by it."""
    judged: bool = False


class LossWatch:
    """The last losses of a phase, and the losses that are not judged yet."""

    def __init__(
        self,
        settings: SpikeSettings,
        device: torch.device,
        recent: Iterable[float] = (),
        phase_starts: Iterable[int] = (),
    ) -> None:
        """recent: `self.recent` of the checkpoint; phase_starts: the steps made before each phase,
        whose losses are compared with their own phase only."""
        self.settings = settings
        self.on = settings.deviations > 0
        self.recent = deque(recent, maxlen=settings.window)
        """Finite losses of the phase's last steps, in nats per predicted token."""
        self._phase_starts = frozenset(phase_starts)
        self._cuda = device.type == "cuda" and self.on
        # Pinned, or the copy would make the host wait.
        self._host = torch.zeros((), dtype=torch.float64, pin_memory=self._cuda)
        self._copied = torch.cuda.Event() if self._cuda else None  # type: ignore[no-untyped-call]
        self._kept: deque[_Loss] = deque()
        self._sent: deque[_Loss | None] = deque()

    def copy(self, loss_sum: torch.Tensor) -> None:
        """Start to copy a step's loss [], as `loss_parts.loss_sum` returns it, to the host."""
        if self.on:
            self._host.copy_(loss_sum, non_blocking=self._cuda)
            if self._copied:
                self._copied.record()

    def record(self, step: int, count: int) -> None:
        """Record the last copied loss. Call this after the update, which waits for the loss."""
        if not self.on:
            return
        if self._copied:
            self._copied.synchronize()
        loss = float(self._host)
        whole = round(loss * UNITS) if math.isfinite(loss) else NOT_FINITE
        self._kept.append(_Loss(step, min(whole, NOT_FINITE), count))  # finite may be larger

    def send(self) -> int:
        """This rank's loss of the oldest step that was not sent, 0 if there is none."""
        loss = self._kept.popleft() if self._kept else None
        self._sent.append(loss)
        return loss.own if loss else 0

    def receive(self, total: int) -> Spike | None:
        """Judge the loss that was sent first; total: its sum over all ranks."""
        loss = self._sent.popleft()
        return self._judge_one(loss, total) if loss else None

    def unjudged(self) -> list[int]:
        """This rank's losses of the steps that are not judged yet."""
        return [loss.own for loss in self._unjudged()]

    def judge(self, totals: Sequence[int]) -> Spike | None:
        """Judge the `unjudged` losses up to the first spike; totals: their sums over all ranks."""
        for loss, total in zip(self._unjudged(), totals, strict=True):
            if spike := self._judge_one(loss, total):
                return spike
        return None

    def reset(self, recent: Iterable[float]) -> None:
        """Forget the losses that are not judged; recent: `self.recent` of the checkpoint."""
        self.recent = deque(recent, maxlen=self.settings.window)
        self._kept.clear()
        self._sent.clear()

    def _unjudged(self) -> list[_Loss]:
        return [loss for loss in (*self._sent, *self._kept) if loss and not loss.judged]

    def _judge_one(self, loss: _Loss, total: int) -> Spike | None:
        if loss.judged:  # with a logged step's sums; its total comes again with the next counts
            return None
        loss.judged = True
        if loss.step - 1 in self._phase_starts:
            self.recent.clear()
        if total >= NOT_FINITE:  # its gradient was not finite either and changed nothing
            return None
        value = total / UNITS / loss.count
        spike = None
        # Early losses fall too fast for a median to mean anything.
        if len(self.recent) == self.settings.window:
            usual = statistics.median(self.recent)
            distance = statistics.median(abs(other - usual) for other in self.recent)
            deviation = max(CONSISTENCY * distance, LEAST_DEVIATION * usual)
            above = (value - usual) / deviation if deviation else 0.0
            if above > self.settings.deviations:
                spike = Spike(loss.step, value, usual, above)
        # A spike as well: the median hardly moves, and a lasting rise becomes usual.
        self.recent.append(value)
        return spike
