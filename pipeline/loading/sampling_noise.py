"""A random number for each predicted position of a batch, from where its sequence comes.

They are what ELECTRA's generator samples by. A function of the seed, of the row, of the pass over
the data and of the place in the row: so neither ranks nor micro-batches change what is sampled, a
run that goes on samples what it would have, and a validation row is always shown the same.
"""

from __future__ import annotations

import numba
import numpy as np

from pipeline.data.kernels.bits import GOLDEN, mix
from pipeline.data.kernels.permutation import IntArray
from pipeline.loading.order import Located


def draws(seed: int, samples: Located, positions: IntArray, length: int) -> IntArray:
    """64 random bits for each slot [K].

    samples: of the batch's rows, without filling; positions: row x length + place [K], those of
    unused slots in the first row or not.
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
    for slot in range(len(positions)):
        sample, place = divmod(positions[slot], length)
        word = mix(seed + GOLDEN)
        for part in (dataset[sample], pass_number[sample], rows[sample], place):
            word = mix(word + (np.uint64(part) + np.uint64(1)) * GOLDEN)
        drawn[slot] = np.int64(word)
