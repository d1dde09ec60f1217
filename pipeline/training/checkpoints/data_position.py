"""How far a run has read its shards: of each sequence length apart, as it has shards of each.

Phases of the same length go on where the one before stopped. With every step's batch known, this
follows from the step alone; it is stored all the same, as a fork may have begun anew, or with
another batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Reading(NamedTuple):
    """Of the shards of one sequence length."""

    sequence_length: int
    sequences: int = 0
    """Consumed so far, which is also where it goes on."""
    skipped: tuple[tuple[int, int], ...] = ()
    """[begin, end) of places in the order that are not read, see `data.order`."""


Readings = tuple[Reading, ...]
"""At most one of each length, the shortest first."""


def reading_of(readings: Readings, sequence_length: int) -> Reading:
    """That of a length, at its beginning where nothing was read yet."""
    for reading in readings:
        if reading.sequence_length == sequence_length:
            return reading
    return Reading(sequence_length)


def with_reading(readings: Readings, reading: Reading) -> Readings:
    """With another one of its length."""
    others = [own for own in readings if own.sequence_length != reading.sequence_length]
    return tuple(sorted([*others, reading]))


def skipped_in_words(readings: Readings) -> list[str]:
    """The places that are not read; with their lengths where there are several."""
    several = len(readings) > 1
    return [
        f"[{begin:,}, {end:,})" + f" of {reading.sequence_length}" * several
        for reading in readings
        for begin, end in reading.skipped
    ]


def from_json(values: Sequence[Sequence[Any]]) -> Readings:
    """As JSON gives them back."""
    return tuple(
        Reading(length, sequences, tuple((begin, end) for begin, end in skipped))
        for length, sequences, skipped in values
    )
