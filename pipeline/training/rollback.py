"""A spike of the loss -> the checkpoint to go back to, and the sequences to skip from there on.

As PaLM's authors did by hand (Chowdhery et al. 2022, sec. 5.1, recalled): some steps before the
spike, without what was read then and around it. What is skipped are places in the order of samples,
so it is the same for any ranks and however often the run is resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.config.run import Spikes
from pipeline.loading.order import places_of
from pipeline.training.checkpoints.data_position import Readings, reading_of, with_reading
from pipeline.training.checkpoints.read import State, saved_steps


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
    settings: Spikes,
    read_in: Callable[[int], tuple[int, int]],
    spike_step: int,
    now: Readings,
    state: State,
) -> Readings:
    """What is read when a run goes on from a checkpoint's state without what is around a spike.

    read_in: sequence length and sequences of the step after so many; now: when the spike was found.
    """
    first = max(state.step, spike_step - 1 - settings.skip_before)
    begins, ends = dict[int, int](), dict[int, int]()
    for step in range(state.step, spike_step + settings.skip_after):
        length, sequences = read_in(step)
        begin = ends.get(length, reading_of(state.readings, length).sequences)
        if step >= first:
            begins.setdefault(length, begin)
        ends[length] = begin + sequences
    found = state.readings
    for length in {reading.sequence_length for reading in (*now, *state.readings)} | begins.keys():
        skipped = reading_of(now, length).skipped
        if length in begins:
            skipped = _with_range(skipped, begins[length], ends[length])
        found = with_reading(found, reading_of(found, length)._replace(skipped=skipped))
    return found


def _with_range(
    skipped: tuple[tuple[int, int], ...], begin: int, end: int
) -> tuple[tuple[int, int], ...]:
    """With what is at positions [begin, end) of the rest: sorted, disjoint places."""
    places = places_of(np.array([begin, end - 1]), skipped)
    ranges = sorted([*skipped, (int(places[0]), int(places[1]) + 1)])
    merged = ranges[:1]
    for begin, end in ranges[1:]:
        if begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)
