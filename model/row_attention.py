"""Attention with dropout on a CPU: a few rows at a time, each at its own length, or by pieces.

torch has no fused kernel for this case: it writes scores, weights, random numbers and dropped
weights of the whole batch to memory, four arrays of B x H x S x S, and keeps three of them for the
backward pass. Here rows are processed one by one (short rows in groups), so these arrays stay in
the processor's cache, and only the weights are kept; their sign bit marks dropped ones. Padding is
at the end of a row, so a row's own tokens are a slice of it and pads cost nothing.

Legend: B rows, S positions, D width, H heads, K head size; n rows of a group, T its longest length.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from model.dropout import kept_scale, random_int16, threshold
from model.pieces import Piece

GROUP_BYTES = 16 << 20
"""Most bytes of a group's weights: below the size that the C library returns to the system."""
SIGN = -(1 << 31)


def row_attention(projected_BS3HK: Tensor, lengths: list[int], dropout: float) -> Tensor:
    """softmax(query key^T / sqrt(K)) value with dropped weights [B, S, D]; float32, on a CPU.

    projected: query, key and value of every token. Keys at or after a row's length are masked;
    outputs there are undefined.
    """
    groups = _groups(lengths, projected_BS3HK.shape[3])
    return cast(Tensor, _RowAttention.apply(projected_BS3HK, groups, dropout))  # type: ignore[no-untyped-call]


def piece_attention(projected_BS3HK: Tensor, pieces: list[Piece], dropout: float) -> Tensor:
    """As `row_attention`, but every token attends only to its own piece; outputs outside all pieces
    are undefined."""
    groups = [
        ((slice(row, row + 1), slice(first, first + length)), [length])
        for row, first, length in pieces
    ]
    return cast(Tensor, _RowAttention.apply(projected_BS3HK, groups, dropout))  # type: ignore[no-untyped-call]


_Group = tuple[tuple[slice, slice], list[int]]
"""Processed at a time: its rows and places, and how many places of each row hold tokens."""


class _RowAttention(torch.autograd.Function):
    """Flash attention's backward pass, with stored weights instead of recomputed ones."""

    @staticmethod
    def forward(ctx: Any, projected_BS3HK: Tensor, groups: list[_Group], dropout: float) -> Tensor:
        batch, length, _, heads, size = projected_BS3HK.shape
        out_BSHK = projected_BS3HK.new_zeros(batch, length, heads, size)
        kept = []
        for group, own in groups:
            query, key, value = projected_BS3HK[group].permute(2, 0, 3, 1, 4)
            weights_nHTT = _weights(query, key, own)
            if dropout:
                _mark_dropped(weights_nHTT, threshold(dropout))
            mixed = (weights_nHTT.relu() @ value).mul_(kept_scale(dropout))
            out_BSHK[group] = mixed.transpose(1, 2)
            kept.append((group, weights_nHTT))
        ctx.scale, ctx.weights = kept_scale(dropout), kept
        ctx.save_for_backward(projected_BS3HK, out_BSHK)
        return out_BSHK.flatten(2)

    @staticmethod
    def backward(ctx: Any, grad_BSD: Tensor) -> tuple[Tensor | None, ...]:
        projected_BS3HK, out_BSHK = ctx.saved_tensors
        grad_BSHK = grad_BSD.view(out_BSHK.shape)
        grad_projected = torch.zeros_like(projected_BS3HK)
        root = out_BSHK.shape[-1] ** -0.5
        for group, weights in ctx.weights:
            query, key, value = projected_BS3HK[group].permute(2, 0, 3, 1, 4)
            to_query, to_key, to_value = grad_projected[group].permute(2, 0, 3, 1, 4)
            grad = grad_BSHK[group].transpose(1, 2)
            # Through the softmax: weights x (gradient - its mean under the weights), where the
            # mean over keys is the sum of out x gradient over the head's components.
            mean = (out_BSHK[group].transpose(1, 2) * grad).sum(-1, keepdim=True)
            grad = grad * ctx.scale
            shown = weights.relu()
            to_value.copy_(shown.transpose(-1, -2) @ grad)
            to_scores = (grad @ value.transpose(-1, -2)).mul_(shown)
            to_scores.addcmul_(torch.abs(weights, out=shown), mean, value=-1).mul_(root)
            to_query.copy_(to_scores @ key)
            to_key.copy_(to_scores.transpose(-1, -2) @ query)
        return grad_projected, None, None


def _groups(lengths: list[int], heads: int) -> list[_Group]:
    """Groups of rows whose weights fit in `GROUP_BYTES`, or single rows."""
    rows = max(1, GROUP_BYTES // (4 * heads * max(lengths) ** 2))
    runs = [(first, lengths[first : first + rows]) for first in range(0, len(lengths), rows)]
    return [((slice(first, first + len(own)), slice(max(own))), own) for first, own in runs]


def _weights(query_nHTK: Tensor, key_nHTK: Tensor, lengths: list[int]) -> Tensor:
    scores_nHTT = (query_nHTK * query_nHTK.shape[-1] ** -0.5) @ key_nHTK.transpose(-1, -2)
    longest = query_nHTK.shape[2]
    if min(lengths) < longest:
        hidden_nT = torch.arange(longest) >= torch.tensor(lengths)[:, None]
        scores_nHTT.masked_fill_(hidden_nT[:, None, None], -math.inf)
    weights_nHTT: Tensor = scores_nHTT.softmax(-1)
    return weights_nHTT


def _mark_dropped(weights: Tensor, below: int) -> None:
    """Set the sign bit of each weight with the dropout probability, in place."""
    signs = random_int16(weights.shape).to(torch.int32).sub_(below).bitwise_and_(SIGN)
    weights.view(torch.int32).bitwise_or_(signs)
