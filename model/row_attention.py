"""Attention with a backward pass on a CPU: a block of a few rows at a time.

With dropout, torch has no fused kernel on a CPU: it writes scores, weights, random numbers and
dropped weights of the whole batch to memory, four arrays of rows x H x S x S, and keeps three of
them for the backward pass. Here rows are processed in blocks, so these arrays stay in the
processor's cache, and only the weights are kept; their sign bit marks dropped ones.

Legend: N places of all blocks, D width, H heads, K head size; n rows of a block, L its places.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from model.dropout import kept_scale, random_int16, threshold
from model.pieces import RowBlock

SIGN = -(1 << 31)


def row_attention(projected_N3HK: Tensor, blocks: list[RowBlock], dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(K)) value with dropped weights [N, H, K]; float32, on a CPU.

    projected: query, key and value at every place. Each place attends to the tokens of its row;
    outputs at places without a token are undefined.
    """
    return cast(Tensor, _RowAttention.apply(projected_N3HK, blocks, dropout))  # type: ignore[no-untyped-call]


class _RowAttention(torch.autograd.Function):
    """Flash attention's backward pass, with stored weights instead of recomputed ones."""

    @staticmethod
    def forward(ctx: Any, projected_N3HK: Tensor, blocks: list[RowBlock], dropout: float) -> Tensor:
        out_NHK = torch.empty_like(projected_N3HK[:, 0], memory_format=torch.contiguous_format)
        kept = []
        for block in blocks:
            query, key, value = block.of(projected_N3HK).permute(2, 0, 3, 1, 4)
            weights_nHLL = _weights(query, key, block.shown())
            if dropout:
                _mark_dropped(weights_nHLL, threshold(dropout))
            mixed = (weights_nHLL.relu() @ value).mul_(kept_scale(dropout))
            block.of(out_NHK).copy_(mixed.transpose(1, 2))
            kept.append(weights_nHLL)
        ctx.scale, ctx.blocks, ctx.weights = kept_scale(dropout), blocks, kept
        ctx.save_for_backward(projected_N3HK, out_NHK)
        return out_NHK

    @staticmethod
    def backward(ctx: Any, grad_NHK: Tensor) -> tuple[Tensor | None, ...]:
        projected_N3HK, out_NHK = ctx.saved_tensors
        grad_projected = torch.empty_like(projected_N3HK)
        root = out_NHK.shape[-1] ** -0.5
        for block, weights in zip(ctx.blocks, ctx.weights, strict=True):
            query, key, value = block.of(projected_N3HK).permute(2, 0, 3, 1, 4)
            to_query, to_key, to_value = block.of(grad_projected).permute(2, 0, 3, 1, 4)
            grad = block.of(grad_NHK).transpose(1, 2)
            # Through the softmax: weights x (gradient - its mean under the weights), where the
            # mean over keys is the sum of out x gradient over the head's components.
            mean = (block.of(out_NHK).transpose(1, 2) * grad).sum(-1, keepdim=True)
            grad = grad * ctx.scale
            shown = weights.relu()
            to_value.copy_(shown.transpose(-1, -2) @ grad)
            to_scores = (grad @ value.transpose(-1, -2)).mul_(shown)
            to_scores.addcmul_(torch.abs(weights, out=shown), mean, value=-1).mul_(root)
            to_query.copy_(to_scores @ key)
            to_key.copy_(to_scores.transpose(-1, -2) @ query)
        return grad_projected, None, None


def _weights(query_nHLK: Tensor, key_nHLK: Tensor, shown_nL: Tensor | None) -> Tensor:
    scores_nHLL = (query_nHLK * query_nHLK.shape[-1] ** -0.5) @ key_nHLK.transpose(-1, -2)
    if shown_nL is not None:
        scores_nHLL.masked_fill_(~shown_nL[:, None, None], -math.inf)
    weights_nHLL: Tensor = scores_nHLL.softmax(-1)
    return weights_nHLL


def _mark_dropped(weights: Tensor, below: int) -> None:
    """Set the sign bit of each weight with the dropout probability, in place."""
    signs = random_int16(weights.shape).to(torch.int32).sub_(below).bitwise_and_(SIGN)
    weights.view(torch.int32).bitwise_or_(signs)
