"""Which tokens see one another where several rows lie in one line, or several documents in a row.

A piece is a stretch of a line: its tokens see each other and nothing else, and its positions count
from 0. `cu_seqlens` says where pieces begin and end in the flattened lines, what pads a line being
a piece of its own; so each of them is computed as if it were alone.

Legend: B lines, S their length, P pieces.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

Piece = tuple[int, int, int]
"""Its line, its first place there, and its length."""


def places_of(cu_seqlens: Tensor, shape: torch.Size) -> Tensor:
    """How far each token is into its piece [B, S]; cu_seqlens: int32 [P + 1], from 0 to B x S."""
    first_BS = cu_seqlens[:-1].index_select(0, _piece_of(cu_seqlens, shape)).view(shape)
    tokens_BS = torch.arange(shape.numel(), device=cu_seqlens.device).view(shape)
    return tokens_BS - first_BS


def same_piece(cu_seqlens: Tensor, shape: torch.Size) -> Tensor:
    """Whether two tokens of a line are in the same piece [B, 1, S, S]."""
    piece_BS = _piece_of(cu_seqlens, shape).view(shape)
    return (piece_BS[:, :, None] == piece_BS[:, None])[:, None]


def listed(cu_seqlens: Tensor, lengths_B: Tensor | None, length: int) -> list[Piece]:
    """The pieces that hold tokens, where the host can read them.

    lengths_B: tokens of each line, what pads it behind them is left out; None: no line has pads.
    """
    ends = cu_seqlens.tolist()
    used = [length] * (ends[-1] // length) if lengths_B is None else lengths_B.tolist()
    return [
        (begin // length, begin % length, end - begin)
        for begin, end in pairwise(ends)
        if begin % length < used[begin // length]
    ]


def _piece_of(cu_seqlens: Tensor, shape: torch.Size) -> Tensor:
    tokens = torch.arange(shape.numel(), dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens[1:], tokens, right=True)
