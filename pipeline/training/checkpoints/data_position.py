"""The position of a run in its shards, for each order of samples separately.

A phase continues where the previous phase with the same order stopped. The position follows from
the step, as the batch of every step is known. It is stored nevertheless: a fork may have started
from the first sequence, or with another batch.
"""

from __future__ import annotations

from typing import NamedTuple

from pipeline.planning.phases import LATER_ORDER


class Reading(NamedTuple):
    """The position in one order of samples."""

    order: int
    """Its number, see `Phase.order`."""
    sequences: int = 0
    """Consumed so far, which is also the next position."""
    skipped: tuple[tuple[int, int], ...] = ()
    """[begin, end) of places in the order that are skipped, see `pipeline.loading.order`."""


Readings = tuple[Reading, ...]
"""Sorted by the number of the order, at most one for each."""


def reading_of(readings: Readings, order: int) -> Reading:
    """The reading of an order; it has 0 sequences if nothing was read yet."""
    for reading in readings:
        if reading.order == order:
            return reading
    return Reading(order)


def with_reading(readings: Readings, reading: Reading) -> Readings:
    """The readings with that of one order replaced."""
    others = [own for own in readings if own.order != reading.order]
    # By number, as `Readings` promises: equal positions are equal tuples.
    return tuple(sorted([*others, reading]))


def describe_skipped(readings: Readings) -> list[str]:
    """The skipped places, as [begin, end); with their sequence length if there are several."""
    found = []
    for reading in readings:
        # What remains of an order's number is its sequence length.
        length = f" of {reading.order % LATER_ORDER}" if len(readings) > 1 else ""
        found += [f"[{begin:,}, {end:,}){length}" for begin, end in reading.skipped]
    return found
