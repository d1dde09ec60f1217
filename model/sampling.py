"""Draws words by their probabilities, so that rounding hardly ever changes what is drawn.

A race: each word has an exponential waiting time divided by its probability, the first one wins.
That draws exactly by the probabilities, and when these move by a rounding error, which they do with
the number of ranks, another word wins about that seldom. A search in cumulated probabilities would
change its answer at each of the vocabulary's thousands of borders. Words race in two rounds, first
blocks of them and then those of one block, so that a draw needs two square roots of the vocabulary
in random numbers and not all of it. These come from a counter, on the device.

Legend: n draws, V words, G blocks, M words of a block.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64
"""As int64: the step of a counter to mix."""
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
_BITS = 23
"""Of a uniform number, so that it is below 1 in float32."""


def sample(weights_nV: Tensor, seeds_n: Tensor) -> Tensor:
    """A word [n] for each row, drawn in proportion to its weights, float32 and not negative.

    seeds_n: int64, any; equal ones give equal draws.
    """
    words = weights_nV.shape[1]
    size = math.isqrt(words - 1) + 1
    count = -(-words // size)
    padded = F.pad(weights_nV, (0, count * size - words))
    blocks_nGM = padded.view(len(padded), count, size)
    waits = waiting_times(seeds_n, count + size)
    block_n = (blocks_nGM.sum(-1) / waits[:, :count]).argmax(-1)
    inside_nM = blocks_nGM[torch.arange(len(block_n), device=block_n.device), block_n]
    word_n: Tensor = block_n * size + (inside_nM / waits[:, count:]).argmax(-1)
    return word_n


def waiting_times(seeds_n: Tensor, count: int) -> Tensor:
    """Exponential random numbers [n, count] in float32, above 0: a function of the seeds alone."""
    counter = torch.arange(1, count + 1, device=seeds_n.device) * GOLDEN
    mixed = _mix(seeds_n[:, None] + counter)
    uniform = ((_shifted(mixed, 64 - _BITS) + 0.5) * 2.0**-_BITS).float()
    return -uniform.log()


def _mix(words: Tensor) -> Tensor:
    """splitmix64's finalizer (Steele et al. 2014) on int64, which wraps as uint64 does."""
    words = (words ^ _shifted(words, 30)) * _FIRST
    words = (words ^ _shifted(words, 27)) * _SECOND
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    """Shifted right as unsigned numbers."""
    return (words >> by) & ((1 << (64 - by)) - 1)
