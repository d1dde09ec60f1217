"""A linear layer that multiplies with oneDNN in float32 inference on CPUs.

torch uses MKL for float32 matrix products on CPUs. On AMD processors MKL uses 256-bit vectors,
oneDNN the widest available: with AVX-512, 246 instead of 100 GFLOP/s per core on an AMD EPYC
(tests/benchmarks/RESULTS.md). oneDNN's operator is part of torch, but has no backward pass, and
torch's counter of FLOPs does not see it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """`nn.Linear`, multiplied by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        return linear(input, self.weight, self.bias)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, through oneDNN for float32 on a CPU if no gradient is recorded."""
    if _suits_onednn(input, weight):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
        return product
    return F.linear(input, weight, bias)


def _suits_onednn(input: Tensor, weight: Tensor) -> bool:
    return (
        HAS_ONEDNN
        and input.device.type == "cpu"
        and input.dtype == weight.dtype == torch.float32
        and weight.dim() == 2
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
