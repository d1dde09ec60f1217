"""A linear layer that uses oneDNN for float32 inference on CPUs.

torch sends float32 products on CPUs to MKL, which keeps to 256-bit vectors on AMD's processors;
oneDNN, which torch has too and uses for bfloat16, takes the widest that a processor has: on an AMD
EPYC with AVX-512, 246 instead of 100 GFLOP/s per core. Its operator has no backward pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """`nn.Linear`, with `linear` for its product."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return linear(input, self.weight, self.bias)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, through oneDNN for float32 on a CPU when no gradient is needed."""
    if _suits_onednn(input):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
        return product
    return F.linear(input, weight, bias)


def _suits_onednn(input: Tensor) -> bool:
    return (
        HAS_ONEDNN
        and input.device.type == "cpu"
        and input.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
