"""Linear layers that multiply with oneDNN in float32 inference on CPUs.

torch uses MKL for float32 matrix products on CPUs. On AMD processors MKL uses 256-bit vectors,
oneDNN the widest available: with AVX-512, 246 instead of 100 GFLOP/s per core on an AMD EPYC
(tests/benchmarks/RESULTS.md). GELU in the same operator costs a tenth of the product; on its own it
costs more than the product, since it reads and writes memory again. oneDNN's operator is part of
torch, but has no backward pass, and torch's counter of FLOPs does not see it.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

APPROXIMATIONS = {"gelu": "none", "gelu_tanh": "tanh"}
"""Activations of `EncoderConfig` -> their names in `F.gelu`."""
HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")  # a private operator, so it may vanish


class Linear(nn.Linear):
    """`nn.Linear`, multiplied by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return linear(input, self.weight, self.bias)


class LinearGelu(nn.Linear):
    """`Linear`, then GELU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        activation: Literal["gelu", "gelu_tanh"],
        bias: bool = True,
    ) -> None:
        """activation: the exact GELU, or its approximation by tanh."""
        super().__init__(inputs, outputs, bias)
        self.approximate = APPROXIMATIONS[activation]

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return linear(input, self.weight, self.bias, self.approximate)


def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, approximate: str | None = None
) -> Tensor:
    """`F.linear`, through oneDNN for float32 on a CPU if no gradient is recorded.

    approximate: of the GELU that follows, as `F.gelu` takes it; None: none follows.
    """
    if _suits_onednn(input, weight):
        after = "none" if approximate is None else "gelu"
        # The last two arguments are the GELU's: no numbers, and its approximation.
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            input, weight, bias, after, [], approximate or ""
        )
        return product
    product = F.linear(input, weight, bias)
    return product if approximate is None else F.gelu(product, approximate=approximate)


def _suits_onednn(input: Tensor, weight: Tensor) -> bool:
    return (
        HAS_ONEDNN
        and input.device.type == "cpu"
        and input.dtype == weight.dtype == torch.float32
        and weight.dim() == 2
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")  # autocast does not cast for this operator
    )
