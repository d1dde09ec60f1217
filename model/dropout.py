"""Dropout by a hash, the same on every device, and by draws from torch's generator.

In pretraining, hidden vectors are dropped by a hash of their token's key and their component:

1. A token's key is 32 random bits. The loader hashes them from the seed and the token's origin:
   dataset, pass, row and column. So training drops the same numbers on any device, any number of
   ranks and in micro-batches of any size, and a resumed run repeats them.
2. Each place of dropout in the network hashes the keys with its own number, so that places are
   independent.
3. A number is kept if the hash of its token's key at this place and its component is at least a
   threshold.

The backward pass computes the hash again, and no mask is stored. Compiled for a GPU, residual,
dropout and LayerNorm take 34 instructions per number in place of the 88 with torch's Philox
generator, and their backward pass 63 in place of 56 (counted on the null GPU, not measured).

Without keys (fine-tuning), and for attention weights outside of flash attention's kernels, `drop`
draws from torch's generator. On a CPU it splits each 64-bit draw into four 16-bit numbers: 1 ns per
number, where a Bernoulli draw takes 6 ns, a tenth of a step of RoBERTa-base at length 512.

Legend: T tokens, D width, S places of dropout.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HASHES = 1 << 32
"""Values of a hash."""
LEAST = -(1 << 31)
"""The least hash: an int32."""
GOLDEN = -1640531535
"""2^32 / golden ratio as an int32, odd: its multiples differ in many bits (Knuth, vol. 3, 6.4)."""
BLOCK = 1 << 16
"""Numbers hashed at a time on a CPU: their int32 fit in the cache."""
LEVELS = 1 << 16
LOWEST = -(1 << 15)


class Dropout(nn.Module):
    """Zeroes each number with a given probability in training, and scales up the rest."""

    def __init__(self, probability: float, applies: bool = True) -> None:
        """applies: False where a design has no dropout, whatever the probability."""
        super().__init__()
        self.probability, self.applies = probability, applies

    def forward(self, value_TD: Tensor, keys_T: Tensor | None = None) -> Tensor:
        """keys: of the tokens at this place, int32; None draws from torch's generator, which takes
        any shape."""
        if not (self.training and self.applies and self.probability):
            return value_TD
        if keys_T is None:
            return drop(value_TD, self.probability)
        dropped = round(self.probability * HASHES)
        return cast(Tensor, _HashedDropout.apply(value_TD, keys_T, dropped))  # type: ignore[no-untyped-call]


class _HashedDropout(torch.autograd.Function):
    """Keeps no mask for the backward pass, which hashes again."""

    @staticmethod
    def forward(ctx: Any, value_TD: Tensor, keys_T: Tensor, dropped: int) -> Tensor:
        ctx.save_for_backward(keys_T)
        ctx.dropped = dropped
        return _scaled(value_TD, keys_T, dropped)

    @staticmethod
    def backward(ctx: Any, grad_TD: Tensor) -> tuple[Tensor | None, ...]:
        (keys_T,) = ctx.saved_tensors
        return _scaled(grad_TD, keys_T, ctx.dropped), None, None


def keys_of_places(keys_T: Tensor, places: int) -> Tensor:
    """Keys of tokens, int32 [T] -> their keys at each place [S, T], which are independent."""
    numbers = torch.arange(1, places + 1, dtype=torch.int32, device=keys_T.device)
    return _mix(keys_T ^ (numbers * GOLDEN)[:, None])


def _scaled(value_TD: Tensor, keys_T: Tensor, dropped: int) -> Tensor:
    """The kept numbers, scaled up, and 0 for the share `dropped` / `HASHES`."""
    if value_TD.is_cuda and not torch.compiler.is_compiling():
        # At ZeRO stage 3, where nothing is compiled: a dozen kernels would each move a tensor.
        return _compiled()(value_TD, keys_T, dropped)
    # The scale follows the rounded probability. It is float32: as bfloat16, 1 / 0.9 is 0.2 % off.
    factor_TD = _kept(keys_T, value_TD.shape[1], dropped).float()
    factor_TD *= HASHES / (HASHES - dropped)
    return (value_TD * factor_TD).to(value_TD.dtype)


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(_scaled)


def _kept(keys_T: Tensor, width: int, dropped: int) -> Tensor:
    """True for each number [T, D] whose hash is not one of the `dropped` least."""
    components_D = torch.arange(width, dtype=torch.int32, device=keys_T.device)
    if keys_T.device.type != "cpu" or torch.compiler.is_compiling():
        return _mix(keys_T[:, None] ^ components_D) >= LEAST + dropped
    kept_TD = torch.empty(len(keys_T), width, dtype=torch.bool)
    rows = max(1, BLOCK // width)
    for start in range(0, len(keys_T), rows):
        keys = keys_T[start : start + rows, None]
        torch.ge(_mix(keys ^ components_D), LEAST + dropped, out=kept_TD[start : start + rows])
    return kept_TD


def _mix(bits: Tensor) -> Tensor:
    """MurmurHash3's 32-bit finalizer (Appleby 2011), a bijection of int32: exactly the share
    p of all hashes is below a threshold, with p rounded to a multiple of 2^-32.

    Products wrap around. A shift with a mask is a logical shift, which torch lacks for int32.
    """
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * -2048144789  # 0x85ebca6b
    bits = (bits ^ ((bits >> 13) & 0x7FFFF)) * -1028477387  # 0xc2b2ae35
    return bits ^ ((bits >> 16) & 0xFFFF)


def drop(value: Tensor, probability: float) -> Tensor:
    """`value` of any shape with each number zeroed with this probability, the rest scaled up; drawn
    from torch's generator."""
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
    """A number is dropped if its `random_int16` is below this threshold. The probability is rounded
    to a multiple of 2**-16, and the scale follows it, so the expectation is exact."""
    return LOWEST + round(probability * LEVELS)


def kept_scale(probability: float) -> float:
    """Factor by which the kept numbers are multiplied."""
    return LEVELS / (LEVELS - round(probability * LEVELS))
