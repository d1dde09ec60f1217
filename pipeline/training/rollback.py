"""A spike of the loss -> the checkpoint to go back to, and the sequences to skip from there on.

As PaLM's authors did by hand (Chowdhery et al. 2022, sec. 5.1, recalled): some steps before the
spike, without what was read then and around it. What is skipped are places in the order of samples,
so it is the same for any ranks and however often the run is resumed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data.order import Order, Share
from pipeline.run import Spikes
from pipeline.training.checkpoint import State, saved_steps


class Rollback(Exception):
    """The run goes back to a checkpoint; raised on every rank at the same place."""

    def __init__(self, spike_step: int, directory: Path) -> None:
        """directory: of the checkpoint."""
        super().__init__(f"back to {directory}")
        self.spike_step = spike_step
        self.directory = directory


def checkpoint_before(checkpoints: Path, spike_step: int, skip_before: int) -> Path | None:
    """The newest checkpoint before all steps to be skipped, else the oldest before the spike."""
    steps = {step: path for step, path in saved_steps(checkpoints).items() if step < spike_step}
    early = [step for step in steps if step < spike_step - skip_before]
    chosen = max(early) if early else min(steps, default=None)
    return None if chosen is None else steps[chosen]


def skipped_around(
    settings: Spikes, order: Order, share: Share, spike_step: int, state: State
) -> tuple[tuple[int, int], ...]:
    """What `order` skips and what is read around a spike: sorted, disjoint [begin, end) of places.

    share: of any rank; state: of the checkpoint from which the run goes on.
    """
    first = max(state.step, spike_step - 1 - settings.skip_before)
    last = spike_step + settings.skip_after
    begin = state.sequences + sum(map(share.sequences_of, range(state.step, first)))
    stop = begin + sum(map(share.sequences_of, range(first, last)))
    places = order.places(np.array([begin, stop - 1]))
    ranges = sorted([*order.skipped, (int(places[0]), int(places[1]) + 1)])
    merged = ranges[:1]
    for begin, end in ranges[1:]:
        if begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)
