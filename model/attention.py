"""Attention within pieces of flat tokens, by the kernel that suits the device and the type.

| device and type                 | kernel                                                         |
|---------------------------------|----------------------------------------------------------------|
| GPU, bfloat16 or float16        | `flash_attention`: variable lengths, with dropout              |
| GPU, other types                | `padded_attention`: one block that is as wide as the longest   |
| CPU, float32, with a gradient   | `row_attention`, see there                                     |
| CPU, bfloat16                   | `softmax_attention`: products of matrices, block by block      |
| CPU, otherwise                  | `scaled_dot_product_attention` of torch, block by block        |

A run checks the kernel of its training at its start (`model.attention_check`) and keeps it by name:
on a GPU in validation too, on a CPU wherever a gradient is recorded. Other commands follow the
table. None of the kernels forms scores between tokens of different pieces.

Legend: T tokens, P pieces, N places of blocks (see `model.pieces`), S longest piece, H heads, K
head size; n rows of a block, L its places, Q queries per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from model.dropout import drop
from model.pieces import BlockLayout, Pieces, piece_of, positions_in_pieces
from model.rotary import Rotation, rotate
from model.row_attention import row_attention

AttentionKernel = Literal[
    "flash_attention",
    "padded_attention",
    "row_attention",
    "softmax_attention",
    "scaled_dot_product_attention",
]
Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]
"""Queries [n, H, Q, K], keys and values [n, H, L, K], which places are shown [n, 1, 1, L], and the
probability of dropout -> mixed values [n, H, Q, K]."""
FLASH_TYPES = (torch.bfloat16, torch.float16)
FLASH_CAPABILITY = (8, 0)
"""torch's flash attention needs an A100 or later."""
FLASH_HEAD = 256
"""The largest head of flash attention; its size is a multiple of 8."""


def attention_kernel(
    device: torch.device, dtype: torch.dtype, head_size: int, recorded: bool
) -> AttentionKernel:
    """The kernel for tensors of this type; recorded: True if a gradient is recorded."""
    if device.type == "cpu":
        if dtype == torch.bfloat16:
            return "softmax_attention"
        fast = dtype == torch.float32 and recorded  # row_attention marks float32 sign bits
        return "row_attention" if fast else "scaled_dot_product_attention"
    flash = dtype in FLASH_TYPES and _capability(device) >= FLASH_CAPABILITY
    flash = flash and head_size % 8 == 0 and head_size <= FLASH_HEAD
    return "flash_attention" if flash else "padded_attention"


def attend_in_pieces(
    projected_T3HK: Tensor,
    pieces: Pieces,
    layout: BlockLayout | None,
    dropout: float,
    chosen: AttentionKernel | None = None,
    reach: int | None = None,
    rotation: Rotation | None = None,
) -> Tensor:
    """Mixed values [T, H, K]: each token attends to the tokens of its piece (Vaswani et al. 2017,
    sec. 3.2.1).

    projected: query, key and value of every token. layout: the blocks of these pieces, on a CPU.
    chosen: the kernel of a run's training; None: that of the table. reach: tokens to each side that
    a token attends to (Beltagy et al. 2020, sec. 3.1); None: all of its piece. rotation: of queries
    and keys; None if the embeddings hold positions.
    """
    dtype, device = projected_T3HK.dtype, projected_T3HK.device
    kernel, recorded = chosen, torch.is_grad_enabled()
    # Without a gradient `row_attention` would keep weights that no backward pass reads.
    if kernel is None or (device.type == "cpu" and not recorded):
        kernel = attention_kernel(device, dtype, projected_T3HK.shape[-1], recorded)
    if kernel == "flash_attention":
        query_THK, key_THK, value_THK = projected_T3HK.unbind(1)
        if rotation is not None:  # values stay a view: this kernel takes the three separately
            query_THK, key_THK = rotate(projected_T3HK[:, :2], rotation).unbind(1)
        return flash_attention(query_THK, key_THK, value_THK, pieces, dropout, reach)
    projected_T3HK = _rotated(projected_T3HK, rotation)
    if kernel == "padded_attention" or layout is None:
        return padded_attention(projected_T3HK, pieces, dropout, reach)
    placed_N3HK = layout.gathered(projected_T3HK)
    if kernel == "row_attention":
        return layout.returned(row_attention(placed_N3HK, layout.blocks, dropout, reach))
    attend = _BY_NAME[kernel]
    parts = []
    for block in layout.blocks:
        query, key, value = block.of(placed_N3HK).permute(2, 0, 3, 1, 4)
        mixed = [
            attend(query[:, :, own], key[:, :, keys], value[:, :, keys], shown, dropout)
            for own, keys, shown in block.spans(reach)
        ]
        mixed_nHLK = mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=2)  # cat would copy
        parts.append(mixed_nHLK.transpose(1, 2).flatten(0, 1))
    return layout.returned(torch.cat(parts))


def attend_from(
    places_P: Tensor,
    projected_T3HK: Tensor,
    pieces: Pieces,
    layout: BlockLayout | None,
    rotation: Rotation | None = None,
) -> Tensor:
    """As `attend_in_pieces`, for the query of one token of each piece [P, H, K], without dropout;
    no piece is empty."""
    projected_T3HK = _rotated(projected_T3HK, rotation)
    query_PHK = projected_T3HK[places_P, 0]
    if layout is None:
        key, value, shown_PS = _pad(projected_T3HK[:, 1:], pieces)
        query = query_PHK[:, :, None]
        return F.scaled_dot_product_attention(query, key, value, _widen(shown_PS))[:, :, 0]
    half = projected_T3HK.dtype == torch.bfloat16
    attend = _BY_NAME["softmax_attention" if half else "scaled_dot_product_attention"]
    placed_N2HK = layout.gathered(projected_T3HK[:, 1:])
    if layout.order is not None:  # blocks take the longest first
        query_PHK = query_PHK[layout.order]
    parts, row = [], 0
    for block in layout.blocks:
        key, value = block.of(placed_N2HK).permute(2, 0, 3, 1, 4)
        query = query_PHK[row : row + len(block.lengths), :, None]
        parts.append(attend(query, key, value, _widen(block.shown()), 0.0)[:, :, 0])
        row += len(block.lengths)
    mixed_PHK = torch.cat(parts)
    if layout.order is None:
        return mixed_PHK
    return torch.empty_like(mixed_PHK).index_copy_(0, layout.order, mixed_PHK)


def flash_attention(
    query_THK: Tensor,
    key_THK: Tensor,
    value_THK: Tensor,
    pieces: Pieces,
    dropout: float,
    reach: int | None = None,
) -> Tensor:
    """Mixed values [T, H, K], by the kernel of Dao 2023 with variable lengths, on a GPU.

    `torch.nn.attention.varlen` calls the same operator, with dropout fixed at 0.
    """
    bounds, longest = pieces.cu_seqlens, pieces.longest
    # The two False: not causal, and no mask returned for debugging.
    mixed_THK: Tensor = torch.ops.aten._flash_attention_forward(
        query_THK, key_THK, value_THK, bounds, bounds, longest, longest, dropout, False, False,
        window_size_left=reach, window_size_right=reach,
    )[0]  # fmt: skip
    return mixed_THK


def padded_attention(
    projected_T3HK: Tensor, pieces: Pieces, dropout: float, reach: int | None = None
) -> Tensor:
    """Pieces as rows of one block [P, S]: the same shapes at every step, and all of torch's
    differentiation; the other kernels are compared with it."""
    query, key, value, shown_PS = _pad(projected_T3HK, pieces)
    shown = shown_PS[:, None, None]
    if reach is not None:
        place_S = torch.arange(pieces.longest, device=shown.device)
        apart_SS = (place_S[:, None] - place_S).abs()
        shown = (shown | (apart_SS == 0)) & (apart_SS <= reach)  # as in `RowBlock.spans`
    mixed_PHSK = F.scaled_dot_product_attention(query, key, value, shown, dropout)
    tokens, bounds = len(projected_T3HK), pieces.cu_seqlens
    place_T = piece_of(bounds, tokens) * pieces.longest + positions_in_pieces(bounds, tokens)
    return mixed_PHSK.transpose(1, 2).flatten(0, 1).index_select(0, place_T)


def softmax_attention(
    query_nHQK: Tensor,
    key_nHLK: Tensor,
    value_nHLK: Tensor,
    shown: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention in matrix products: mixed values [n, H, Q, K].

    shown: as in `Attend`; a query that sees nothing mixes all. For bfloat16 on a CPU, where torch's
    fused kernel takes three times as long forward and backward.
    """
    # Keys are scaled, not scores: K numbers per key, not one per query.
    scores_nHQL = query_nHQK @ (key_nHLK * key_nHLK.shape[-1] ** -0.5).transpose(-1, -2)
    if shown is not None:
        # The lowest number, not -inf: the softmax of a row of -inf is not a number.
        scores_nHQL = scores_nHQL.masked_fill(~shown, torch.finfo(scores_nHQL.dtype).min)
    weights_nHQL = drop(scores_nHQL.softmax(-1), dropout)
    return weights_nHQL @ value_nHLK


def _scaled_dot_product_attention(*given: object) -> Tensor:
    mixed: Tensor = F.scaled_dot_product_attention(*given)  # type: ignore[arg-type]
    return mixed


_BY_NAME: dict[str, Attend] = {
    "softmax_attention": softmax_attention,
    "scaled_dot_product_attention": _scaled_dot_product_attention,
}


def _rotated(projected_T3HK: Tensor, rotation: Rotation | None) -> Tensor:
    """Projections with turned queries and keys, in one tensor."""
    if rotation is None:
        return projected_T3HK
    return torch.cat([rotate(projected_T3HK[:, :2], rotation), projected_T3HK[:, 2:]], 1)


def _pad(values_TnHK: Tensor, pieces: Pieces) -> tuple[Tensor, ...]:
    """Each of the n values of the tokens as [P, H, S, K], and which places hold tokens [P, S]; an
    empty piece shows one place, because a softmax over none is not a number."""
    bounds = pieces.cu_seqlens.long()
    places_S = torch.arange(pieces.longest, device=bounds.device)
    # Places after the last token repeat it; `shown` leaves them out of the softmax.
    taken_PS = (bounds[:-1, None] + places_S).clamp(max=len(values_TnHK) - 1)
    shown_PS = places_S < bounds.diff().clamp(min=1)[:, None]
    return (*values_TnHK[taken_PS].permute(2, 0, 3, 1, 4), shown_PS)


def _widen(shown_nL: Tensor | None) -> Tensor | None:
    return None if shown_nL is None else shown_nL[:, None, None]


def _capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of a GPU; the meta device stands for a recent one."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (9, 0)
