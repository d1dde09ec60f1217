"""Rows of a step -> micro-batches of flat tokens, within what one micro-batch holds.

On a CPU a micro-batch has as many tokens as its rows, and shapes vary. A GPU needs the same shapes
at every step, so there the plan fixes a `Capacity` for a whole phase, and what is not used is dead:
computed, and without any effect. To leave little dead, the rows of a step are placed together:

1. Each row, in the order of the step, goes to the first micro-batch that has room for its tokens,
   its predictions, its pieces and one more row; if none has, to a new one.
2. Rows of a micro-batch lie one after another, in the order of the step; dead tokens come last.

Which rank reads a row never changes, so the number of micro-batches differs from rank to rank;
ranks agree on the largest one when they exchange the step's loss denominators, and the others run
micro-batches without a row. Placing rows changes neither the shards nor the order of samples nor
which samples form a step.

Legend: n rows of a step on this rank, R rows of a micro-batch.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.kernels.permutation import IntArray

EXCEEDED = 0.01
"""Share of steps in which any rank has more tokens than `expected_tokens` says; such a step takes
one more micro-batch on every rank."""


class Capacity(NamedTuple):
    """Limits of a micro-batch; on a GPU, the sizes of its tensors."""

    tokens: int
    """T."""
    predictions: int
    """K."""
    rows: int
    """R."""
    pieces: int
    """P, those of dead tokens excepted."""

    def dead_pieces(self, length: int) -> int:
        """The pieces of at most `length` tokens that dead tokens form, at most."""
        return -(-self.tokens // length)


def place(
    tokens: IntArray, predictions: IntArray, pieces: IntArray, capacity: Capacity, least: int = 1
) -> list[IntArray]:
    """The rows [R] of each micro-batch, ascending; at least `least` micro-batches, the last ones
    maybe empty.

    tokens, predictions, pieces: of each row [n]; rows without tokens are in no micro-batch. Every
    row fits in a micro-batch of its own.
    """
    read = np.flatnonzero(tokens)  # rows of excluded shards have none
    sizes = np.stack([tokens[read], predictions[read], np.ones_like(read), pieces[read]], 1)
    chosen, used = _first_fit(sizes.astype(np.int64), np.array(capacity, np.int64))
    order = np.argsort(chosen, kind="stable")  # 2. stable: the step's order
    bounds = np.searchsorted(chosen[order], np.arange(max(used, least) + 1)).tolist()
    return [read[order[first:stop]] for first, stop in pairwise(bounds)]


def expected_tokens(
    lengths: IntArray, weights: npt.NDArray[np.float64], rows: int, ranks: int
) -> tuple[float, float]:
    """Tokens of `rows` rows on average, and at most, on the rank that has most of them.

    lengths: tokens of some rows; weights: how many rows each of them represents. At most: exceeded
    in `EXCEEDED` of the steps.
    """
    shares = weights / weights.sum()
    mean = float(lengths @ shares)
    deviation = float(((lengths - mean) ** 2 @ shares) ** 0.5)
    # A sum of many rows is about normal; a union bound covers the ranks.
    above = NormalDist().inv_cdf(1 - EXCEEDED / ranks) * deviation * rows**0.5
    return rows * mean, min(rows * mean + above, rows * float(lengths.max()))


@numba.njit(cache=True, nogil=True)
def _first_fit(sizes: IntArray, capacity: IntArray) -> tuple[IntArray, int]:
    """The micro-batch of each row [n], and their number.

    sizes: [n, 4] what each row takes; capacity: [4].
    """
    count, kinds = sizes.shape
    chosen = np.empty(count, np.int64)
    left = np.empty((count, kinds), np.int64)  # at most a micro-batch per row
    used = first = 0
    for row in range(count):
        # 1. First fit, from the first micro-batch that is not full.
        batch = first
        while batch < used and not _fits(sizes[row], left[batch]):
            batch += 1
        if batch == used:
            left[used] = capacity
            used += 1
        left[batch] -= sizes[row]
        chosen[row] = batch
        while first < used and (left[first, 0] < 3 or left[first, 2] == 0):
            first += 1  # full: a row has three tokens at least
    return chosen, used


@numba.njit(cache=True, nogil=True)
def _fits(sizes: IntArray, left: IntArray) -> bool:
    for kind in range(sizes.size):  # noqa: SIM110 -- numba takes no generator
        if sizes[kind] > left[kind]:
            return False
    return True
