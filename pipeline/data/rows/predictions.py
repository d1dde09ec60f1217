"""Stored masks as a list of predictions, and back: to take some of them out of the masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.data.rows.masks import RANDOM, Masks
from pipeline.data.tokenizers.token_ids import Ids

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions in one duplicate of the masks of n rows, in order."""

    places: IntArray
    """[predictions] positions in the concatenated tokens of the rows."""
    actions: npt.NDArray[np.uint8]
    """[predictions] MASK, RANDOM or KEPT."""
    random_ids: Ids
    """[predictions] the ids shown instead; 0 where the action is not RANDOM."""

    @classmethod
    def of(cls, masks: Masks, row_offsets: IntArray) -> Predictions:
        """Read `masks`; row_offsets: [n + 1] positions in the tokens.

        Raises ValueError if the columns contradict each other.
        """
        bits = np.unpackbits(masks.positions, bitorder="little")
        set_bits = np.flatnonzero(bits)
        first_bits = 8 * masks.position_offsets.astype(np.int64)
        rows = np.searchsorted(first_bits, set_bits, "right") - 1
        counts = np.bincount(rows, minlength=len(row_offsets) - 1)
        slots = np.stack([(masks.actions >> shift) & 3 for shift in (0, 2, 4, 6)], 1).ravel()
        # before they are followed: damaged offsets would index outside the actions
        if (np.diff(masks.action_offsets) != (counts + 3) // 4).any():
            raise ValueError("actions do not match positions")
        # counted from 0 in each row, because its actions begin at a byte of their own
        ranks = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        actions = slots[4 * masks.action_offsets[rows].astype(np.int64) + ranks]
        is_random = actions == RANDOM
        if (np.diff(masks.random_offsets) != np.bincount(rows[is_random], None, len(counts))).any():
            raise ValueError("random ids do not match actions")
        random_ids = np.zeros(len(rows), masks.random_ids.dtype)
        random_ids[is_random] = masks.random_ids
        places = set_bits - first_bits[rows] + row_offsets[rows]
        if (places >= row_offsets[rows + 1]).any():  # spare bits of a row's last byte
            raise ValueError("a position is after the end of its row")
        return cls(places, actions, random_ids)

    @classmethod
    def merge(cls, some: Predictions, others: Predictions) -> Predictions:
        """Both, in order."""
        places = np.concatenate([some.places, others.places])
        actions = np.concatenate([some.actions, others.actions])
        random_ids = np.concatenate([some.random_ids, others.random_ids])
        order = np.argsort(places, kind="stable")
        return cls(places[order], actions[order], random_ids[order])

    @property
    def columns(self) -> tuple[IntArray, npt.NDArray[np.uint8], Ids]:
        """The fields in order."""
        return self.places, self.actions, self.random_ids

    def select(self, chosen: npt.NDArray[np.bool_]) -> Predictions:
        """The predictions for which `chosen` [predictions] is True."""
        return Predictions(self.places[chosen], self.actions[chosen], self.random_ids[chosen])

    def to_masks(self, row_offsets: IntArray, swapped: npt.NDArray[np.bool_] | None) -> Masks:
        """The inverse of `of`; swapped: as in `Masks`."""
        rows = np.searchsorted(row_offsets, self.places, "right") - 1
        counts = np.bincount(rows, minlength=len(row_offsets) - 1)
        position_offsets = _offsets((np.diff(row_offsets) + 7) // 8)
        bits = np.zeros(8 * position_offsets[-1], np.uint8)
        # bitmaps start at whole bytes, so a row's bits are not at its tokens' places
        bits[8 * position_offsets[rows] + self.places - row_offsets[rows]] = 1
        action_offsets = _offsets((counts + 3) // 4)
        slots = np.zeros(4 * action_offsets[-1], np.uint8)
        ranks = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots[4 * action_offsets[rows] + ranks] = self.actions
        is_random = self.actions == RANDOM
        quarters = slots.reshape(-1, 4)
        return Masks(
            positions=np.packbits(bits, bitorder="little"),
            position_offsets=position_offsets.astype(np.int32),
            # four slots of two bits fill a byte, lowest first
            actions=np.bitwise_or.reduce(quarters << np.array([0, 2, 4, 6], np.uint8), 1),
            action_offsets=action_offsets.astype(np.int32),
            random_ids=self.random_ids[is_random],
            random_offsets=_offsets(np.bincount(rows[is_random], None, len(counts))).astype(
                np.int32
            ),
            counts=counts,
            swapped=swapped,
        )


def _offsets(sizes: IntArray) -> IntArray:
    """[n + 1] where values of these sizes start, one after the other."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
