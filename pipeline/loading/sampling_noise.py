"""A random number for each predicted position of a micro-batch, for ELECTRA's generator.

It is a function of the seed, the row, the pass over the data and the column in the row. So the
number of ranks or micro-batches does not change the samples, a resumed run samples the same tokens,
and a validation row always gets the same ones.
"""

from __future__ import annotations

import numba
import numpy as np

from pipeline.kernels.bits import GOLDEN, mix
from pipeline.kernels.permutation import IntArray
from pipeline.loading.order import Located


def draws(seed: int, samples: Located, starts: IntArray, positions: IntArray) -> IntArray:
    """64 random bits for each slot [K].

    samples: where the batch's rows come from; starts: the first token of each row [R], ascending;
    positions: predicted tokens [K], 0 in unused slots.
    """
    drawn = np.zeros(len(positions), np.int64)
    if len(samples):
        row = np.searchsorted(starts, positions, side="right") - 1
        origin = (samples.dataset[row], samples.pass_number[row], samples.row[row])
        _fill(np.uint64(seed), *origin, positions - starts[row], drawn)
    return drawn


@numba.njit(cache=True, nogil=True)
def _fill(
    seed: np.uint64,
    dataset: IntArray,
    pass_number: IntArray,
    rows: IntArray,
    places: IntArray,
    drawn: IntArray,
) -> None:
    """Fill `drawn` [K]; the others [K]: of each slot."""
    for slot in range(len(drawn)):
        word = mix(seed + GOLDEN)
        for part in (dataset[slot], pass_number[slot], rows[slot], places[slot]):
            word = mix(word + (np.uint64(part) + np.uint64(1)) * GOLDEN)
        drawn[slot] = np.int64(word)
