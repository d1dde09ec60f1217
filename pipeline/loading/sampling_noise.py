"""A random number for each predicted position of a micro-batch, for ELECTRA's generator.

It is a function of the seed, the row, the pass over the data and the column in the row. So the
number of ranks or micro-batches does not change the samples, a resumed run samples the same tokens,
and a validation row always gets the same ones.
"""

from __future__ import annotations

import numba
import numpy as np

from pipeline.data.kernels.bits import GOLDEN, mix
from pipeline.data.kernels.permutation import IntArray
from pipeline.loading.order import Located


def draws(seed: int, samples: Located, positions: IntArray, length: int) -> IntArray:
    """64 random bits for each slot [K].

    samples: where the batch's rows come from, without filling rows; positions: row x length +
    column [K], 0 in unused slots.
    """
    drawn = np.zeros(len(positions), np.int64)
    if len(samples):
        origin = (samples.dataset, samples.pass_number, samples.row)
        _fill(np.uint64(seed), *origin, positions, length, drawn)
    return drawn


@numba.njit(cache=True, nogil=True)
def _fill(
    seed: np.uint64,
    dataset: IntArray,
    pass_number: IntArray,
    rows: IntArray,
    positions: IntArray,
    length: int,
    drawn: IntArray,
) -> None:
    """Fill `drawn` [K] for `positions` [K]; dataset, pass_number, rows: of each sample."""
    for slot in range(len(positions)):
        sample, place = divmod(positions[slot], length)
        word = mix(seed + GOLDEN)
        for part in (dataset[sample], pass_number[sample], rows[sample], place):
            word = mix(word + (np.uint64(part) + np.uint64(1)) * GOLDEN)
        drawn[slot] = np.int64(word)
