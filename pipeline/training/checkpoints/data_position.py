"""How far a run has read its shards, for each sequence length separately.

A phase continues where the previous phase of the same length stopped. The position follows from the
step, as the batch of every step is known. It is stored nevertheless: a fork may have started from
the first sequence, or with another batch.
"""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """The position in the shards of one sequence length."""

    sequence_length: int
    sequences: int = 0
    """Consumed so far, which is also the next position."""
    skipped: tuple[tuple[int, int], ...] = ()
    """[begin, end) of places in the order that are skipped, see `pipeline.loading.order`."""


Readings = tuple[Reading, ...]
"""At most one per length, the shortest first."""


def reading_of(readings: Readings, sequence_length: int) -> Reading:
    """The reading of a length; it has 0 sequences if nothing was read yet."""
    for reading in readings:
        if reading.sequence_length == sequence_length:
            return reading
    return Reading(sequence_length)


def with_reading(readings: Readings, reading: Reading) -> Readings:
    """The readings with that of one length replaced."""
    others = [own for own in readings if own.sequence_length != reading.sequence_length]
    return tuple(sorted([*others, reading]))


def describe_skipped(readings: Readings) -> list[str]:
    """The skipped places, as [begin, end); with their sequence length if there are several."""
    found = []
    for reading in readings:
        length = f" of {reading.sequence_length}" if len(readings) > 1 else ""
        found += [f"[{begin:,}, {end:,}){length}" for begin, end in reading.skipped]
    return found
