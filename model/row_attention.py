"""Attention with a backward pass on a CPU: a block of a few rows at a time.

With dropout, torch has no fused kernel on a CPU: it writes scores, weights, random numbers and
dropped weights of the whole batch to memory, four arrays of rows x H x S x S, and keeps three of
them for the backward pass. Here rows are processed in blocks, so these arrays stay in the
processor's cache, and only the weights are kept; their sign bit marks dropped ones. Where a single
row outgrows the cache and nothing is dropped, torch's kernel is faster, although it computes the
weights twice, and keeps none of them.

Legend: N places of all blocks, D width, H heads, K head size; n rows of a block, Q and L the places
of queries and of keys in a span (see `RowBlock.spans`).
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from model.dropout import kept_scale, random_int16, threshold
from model.pieces import RowBlock

SIGN = -(1 << 31)  # the sign bit of a float32, seen as an int32
ATEN = torch.ops.aten


def row_attention(
    projected_N3HK: Tensor, blocks: list[RowBlock], dropout: float, reach: int | None = None
) -> Tensor:
    """softmax(query key^T / sqrt(K)) value with dropped weights [N, H, K]; float32, on a CPU.

    projected: query, key and value at every place. Each place attends to the tokens of its row, or
    to those within `reach` places; outputs at places without a token are undefined.
    """
    return cast(Tensor, _RowAttention.apply(projected_N3HK, blocks, dropout, reach))  # type: ignore[no-untyped-call]


class _RowAttention(torch.autograd.Function):
    """Flash attention's backward pass, with stored weights instead of recomputed ones.

    Forward, span by span: 1. softmax of the scores; 2. mark dropped weights by their sign; 3. mix
    the values of the others. Backward: 4. gradients of values; 5. of scores, through dropout and
    softmax; 6. of queries and keys.
    """

    @staticmethod
    def forward(
        ctx: Any, projected_N3HK: Tensor, blocks: list[RowBlock], dropout: float, reach: int | None
    ) -> Tensor:
        # A slice of the projections is not contiguous; blocks are views of what is.
        out_NHK = torch.empty_like(projected_N3HK[:, 0], memory_format=torch.contiguous_format)
        kept = []
        for block in blocks:
            query, key, value = block.of(projected_N3HK).permute(2, 0, 3, 1, 4)
            out = block.of(out_NHK).transpose(1, 2)
            if _is_fused(block, query, dropout, reach):
                mixed, log_sums_nHL = ATEN._scaled_dot_product_flash_attention_for_cpu(
                    query, key, value
                )
                out.copy_(mixed)
                kept.append(log_sums_nHL)
                continue
            for queries, keys, shown in block.spans(reach):
                # 1.
                weights_nHQL = _weights(query[:, :, queries], key[:, :, keys], shown)
                if dropout:  # 2.
                    _mark_dropped(weights_nHQL, threshold(dropout))
                # 3. Marked weights are negative, so relu zeroes them; no others are.
                mixed = (weights_nHQL.relu() @ value[:, :, keys]).mul_(kept_scale(dropout))
                out[:, :, queries].copy_(mixed)
                kept.append(weights_nHQL)
        ctx.dropout, ctx.blocks, ctx.kept, ctx.reach = dropout, blocks, kept, reach
        ctx.save_for_backward(projected_N3HK, out_NHK)
        return out_NHK

    @staticmethod
    def backward(ctx: Any, grad_NHK: Tensor) -> tuple[Tensor | None, ...]:
        projected_N3HK, out_NHK = ctx.saved_tensors
        overlap = ctx.reach is not None  # spans share keys with their neighbours
        grad_projected = (torch.zeros_like if overlap else torch.empty_like)(projected_N3HK)
        store = Tensor.add_ if overlap else Tensor.copy_
        root, scale = out_NHK.shape[-1] ** -0.5, kept_scale(ctx.dropout)
        kept = iter(ctx.kept)
        for block in ctx.blocks:
            query, key, value = block.of(projected_N3HK).permute(2, 0, 3, 1, 4)
            to_query, to_key, to_value = block.of(grad_projected).permute(2, 0, 3, 1, 4)
            grad_nHLK = block.of(grad_NHK).transpose(1, 2)
            out_nHLK = block.of(out_NHK).transpose(1, 2)
            if _is_fused(block, query, ctx.dropout, ctx.reach):
                found = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
                    grad_nHLK, query, key, value, out_nHLK, next(kept), 0.0, False
                )
                for gradient, change in zip((to_query, to_key, to_value), found, strict=True):
                    gradient.copy_(change)
                continue
            for queries, keys, _ in block.spans(ctx.reach):
                grad, out, weights = grad_nHLK[:, :, queries], out_nHLK[:, :, queries], next(kept)
                # Through the softmax: weights x (gradient - its mean under the weights), where the
                # mean over keys is the sum of out x gradient over the head's components.
                mean = (out * grad).sum(-1, keepdim=True)
                grad = grad * scale
                shown = weights.relu()
                # 4.
                store(to_value[:, :, keys], shown.transpose(-1, -2) @ grad)
                # 5. The mean is under all weights: abs takes the marks off dropped ones.
                to_scores = (grad @ value[:, :, keys].transpose(-1, -2)).mul_(shown)
                to_scores.addcmul_(torch.abs(weights, out=shown), mean, value=-1).mul_(root)
                # 6.
                to_query[:, :, queries].copy_(to_scores @ key[:, :, keys])
                store(to_key[:, :, keys], to_scores.transpose(-1, -2) @ query[:, :, queries])
        return grad_projected, None, None, None


def _is_fused(block: RowBlock, query_nHLK: Tensor, dropout: float, reach: int | None) -> bool:
    return not dropout and reach is None and block.outgrows(query_nHLK.shape[1])


def _weights(query_nHQK: Tensor, key_nHLK: Tensor, shown: Tensor | None) -> Tensor:
    # Queries are scaled, not scores: K numbers each, not L.
    scores_nHQL = (query_nHQK * query_nHQK.shape[-1] ** -0.5) @ key_nHLK.transpose(-1, -2)
    if shown is not None:
        scores_nHQL.masked_fill_(~shown, -math.inf)  # no row of only -inf: a query sees some key
    weights_nHQL: Tensor = scores_nHQL.softmax(-1)
    return weights_nHQL


def _mark_dropped(weights: Tensor, below: int) -> None:
    """Set the sign bit of each weight with the dropout probability, in place."""
    # Below the threshold a difference is negative; the weight takes over its sign bit.
    signs = random_int16(weights.shape).to(torch.int32).sub_(below).bitwise_and_(SIGN)
    weights.view(torch.int32).bitwise_or_(signs)
