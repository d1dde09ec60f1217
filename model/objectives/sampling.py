"""Samples words from a distribution such that rounding errors rarely change the sample.

Sampling is a race: each word gets an exponential waiting time divided by its probability, and the
first word wins. This is exact, and if probabilities move by a rounding error, as they do with the
number of ranks, the winner changes about that rarely. A search in cumulative probabilities would be
sensitive at each of the vocabulary's thousands of borders. The race has two rounds, first blocks of
words and then the words of one block, so a sample needs 2 sqrt(V) random numbers instead of V.
These come from a counter, on the device.

Legend: n draws, V words, G blocks, M words of a block.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""Increment of the counter that is mixed, as int64."""
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = 23
"""Random bits of a uniform number, few enough that it stays below 1 in float32."""


def race(seeds_n: Tensor, words: int) -> Tensor:
    """The waiting times [n, G + M] of both rounds for a vocabulary of that size.

    seeds_n: int64, any; equal seeds give equal samples. Apart from `first_word`, because inductor
    does the arithmetic of a counter in int32.
    """
    return waiting_times(seeds_n, sum(_rounds(words)))


def first_word(weights_nV: Tensor, waits: Tensor) -> Tensor:
    """The word [n] that wins each race, sampled in proportion to its weight.

    weights: float32, not negative; waits: of `race`.
    """
    words = weights_nV.shape[1]
    count, size = _rounds(words)
    padded = F.pad(weights_nV, (0, count * size - words))  # weight 0 never wins
    blocks_nGM = padded.view(len(padded), count, size)
    # 1. The first of some exponential times has the sum of their rates, so blocks race as words do.
    # The largest weight / wait is the smallest wait / weight, without a division by 0.
    block_n = (blocks_nGM.sum(-1) / waits[:, :count]).argmax(-1)
    inside_nM = blocks_nGM[torch.arange(len(block_n), device=block_n.device), block_n]
    # 2. Words of that block, by waits that the first race did not use.
    word_n: Tensor = block_n * size + (inside_nM / waits[:, count:]).argmax(-1)
    return word_n


def _rounds(words: int) -> tuple[int, int]:
    """Blocks, and words of a block."""
    size = math.isqrt(words - 1) + 1  # the square root, rounded up
    return -(-words // size), size


def waiting_times(seeds_n: Tensor, count: int) -> Tensor:
    """Exponential random numbers [n, count] in float32, above 0; depends only on the seeds."""
    counter = torch.arange(1, count + 1, device=seeds_n.device) * GOLDEN
    mixed = _mix(seeds_n[:, None] + counter)
    # + 0.5: never 0, whose logarithm is infinite.
    uniform = ((_shift_right(mixed, 64 - _BITS) + 0.5) * 2.0**-_BITS).float()
    return -uniform.log()


def _mix(words: Tensor) -> Tensor:
    """splitmix64's finalizer (Steele et al. 2014) on int64, which wraps like uint64."""
    words = (words ^ _shift_right(words, 30)) * _FIRST
    words = (words ^ _shift_right(words, 27)) * _SECOND
    return words ^ _shift_right(words, 31)


def _shift_right(words: Tensor, by: int) -> Tensor:
    """Shift right, treating the numbers as unsigned."""
    # int64 shifts copies of its sign in, which the mask clears.
    return (words >> by) & ((1 << (64 - by)) - 1)
