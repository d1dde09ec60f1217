"""Which tokens attend to each other when a line holds several rows, or a row several documents.

A piece is a stretch of a line: its tokens attend to each other only, and its positions count from
0, so each piece is computed as if it were alone. `cu_seqlens` holds the boundaries of pieces in the
flattened lines; the padding of a line is a piece of its own.

Legend: B lines, S their length, P pieces.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

Piece = tuple[int, int, int]
"""Its line, its first place in the line, and its length."""


def places_of(cu_seqlens: Tensor, shape: torch.Size) -> Tensor:
    """Position of each token in its piece [B, S]; cu_seqlens: int32 [P + 1], from 0 to B x S."""
    first_BS = cu_seqlens[:-1].index_select(0, _piece_of(cu_seqlens, shape)).view(shape)
    tokens_BS = torch.arange(shape.numel(), device=cu_seqlens.device).view(shape)
    return tokens_BS - first_BS


def same_piece(cu_seqlens: Tensor, shape: torch.Size) -> Tensor:
    """Whether two tokens of a line are in the same piece [B, 1, S, S]."""
    piece_BS = _piece_of(cu_seqlens, shape).view(shape)
    return (piece_BS[:, :, None] == piece_BS[:, None])[:, None]


def listed(cu_seqlens: Tensor, lengths_B: Tensor | None, length: int) -> list[Piece]:
    """The pieces that hold tokens, as a list on the host.

    lengths_B: tokens per line, the padding after them is skipped; None: no line has pads.
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
