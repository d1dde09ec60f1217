"""Dropout with 16 random bits per number on a CPU, where torch's own generator is too slow.

On a CPU torch draws a Bernoulli number in 6 ns: for the attention weights of RoBERTa-base at length
512 that is a tenth of a whole step. Splitting each 64-bit draw of the same default generator into
four 16-bit numbers takes 1 ns per number. The probability is rounded to a multiple of 2**-16 and
the scale follows the rounded value, so the expectation is exact. On a GPU torch's dropout is used.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16
LOWEST = -(1 << 15)


class Dropout(nn.Module):
    """Zeroes each number with a given probability in training, and scales up the rest."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, value: Tensor) -> Tensor:
        """value: any shape."""
        return drop(value, self.probability) if self.training else value


def drop(value: Tensor, probability: float) -> Tensor:
    """`value` of any shape with each number zeroed with this probability, the rest scaled up."""
    if probability == 0:
        return value
    if value.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(value, probability)
    kept = random_int16(value.shape) >= threshold(probability)
    return value * kept.to(value.dtype).mul_(kept_scale(probability))


def random_int16(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Uniform 16-bit integers on the CPU, from torch's default generator."""
    count = math.prod(shape)
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)  # any int64
    return draws.view(torch.int16)[:count].view(shape)


def threshold(probability: float) -> int:
    """A number is dropped if its `random_int16` is below this threshold."""
    return LOWEST + round(probability * LEVELS)


def kept_scale(probability: float) -> float:
    """Factor by which the kept numbers are multiplied."""
    return LEVELS / (LEVELS - round(probability * LEVELS))
