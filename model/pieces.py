"""Flat tokens [T]: which of them attend to each other, and how a CPU processes them in blocks.

A piece is a stretch of the tokens: a sequence, or a document of one. Its tokens attend to each
other only, and its positions count from 0, so each piece is computed as if it were alone, and no
pads are needed between pieces of different lengths.

A GPU takes `Pieces` as they are. A CPU is fast on dense arrays that stay in its cache, so there
pieces are laid out in blocks of a few rows of similar lengths:

1. If all pieces are equally long, or each is too long to share a block, the blocks are views of the
   tokens, in their order.
2. Otherwise pieces are sorted by length and put together, and `gathered` copies their tokens to
   their places once per layer; a row that is shorter than its block repeats its last token, which
   attention masks.

Legend: T tokens, P pieces, N places of all blocks, n rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

GROUP_BYTES = 16 << 20
"""Most bytes of a block's attention weights: below the size that the C library returns to the
system."""
SPAN = 64
"""Places that attend together if they see a window; more compute more that is masked, fewer have
smaller products."""
LEAST_FILLED = 0.5
"""Rows of a block are at least this share of its longest."""


class Pieces(NamedTuple):
    """The bounds of pieces; a GPU needs the same shapes at every step, a CPU does not."""

    cu_seqlens: Tensor
    """int32 [P + 1], ascending from 0 to T; pieces at the end may be empty."""
    longest: int
    """At least the length of the longest piece."""

    def to(self, device: torch.device | str) -> Pieces:
        """These pieces on `device`; a copy from pinned memory does not block."""
        return self._replace(cu_seqlens=self.cu_seqlens.to(device, non_blocking=True))


def pieces_of(lengths: Sequence[int], device: torch.device | str = "cpu") -> Pieces:
    """Pieces of these lengths, one after another; at least one."""
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return Pieces(ends, max(lengths)).to(device)


def piece_of(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """The piece [T] of each token."""
    numbers = torch.arange(tokens, dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens[1:], numbers, right=True)  # right: skips empty ones


def positions_in_pieces(cu_seqlens: Tensor, tokens: int) -> Tensor:
    """The position [T] of each token in its piece, from 0."""
    first_T = cu_seqlens.index_select(0, piece_of(cu_seqlens, tokens))
    return torch.arange(tokens, device=cu_seqlens.device) - first_T


class WindowSpan(NamedTuple):
    """Places of a block's rows that attend together, and the places that they may attend to."""

    queries: slice
    keys: slice
    shown: Tensor | None
    """True for pairs that attend, broadcast to [n, H, queries, keys]; None: all."""


class RowBlock(NamedTuple):
    """Pieces that a CPU processes together, as rows."""

    first: int
    """Its first place."""
    lengths: list[int]
    """Tokens of each row [n]."""

    @property
    def longest(self) -> int:
        """Places of a row."""
        return max(self.lengths)

    def of(self, placed: Tensor) -> Tensor:
        """This block's part of `placed` [N, ...] as rows [n, longest, ...]."""
        rows, length = len(self.lengths), self.longest
        own = placed[self.first : self.first + rows * length]
        return own.view(rows, length, *placed.shape[1:])

    def outgrows(self, heads: int) -> bool:
        """True if attention's weights of one row take more than `GROUP_BYTES`."""
        return 4 * heads * self.longest**2 > GROUP_BYTES

    def shown(self) -> Tensor | None:
        """True for places that hold tokens [n, longest], or None if all do."""
        if min(self.lengths) == self.longest:
            return None
        return torch.arange(self.longest) < torch.tensor(self.lengths)[:, None]

    def spans(self, reach: int | None) -> Iterator[WindowSpan]:
        """The whole rows; or, if places attend to `reach` others on each side, `SPAN` queries at a
        time. A place without a token then sees itself, as a softmax over nothing is not a number.
        """
        shown_nL, length = self.shown(), self.longest
        if reach is None:
            whole = slice(0, length)
            yield WindowSpan(whole, whole, None if shown_nL is None else shown_nL[:, None, None])
            return
        for first in range(0, length, SPAN):
            queries = slice(first, min(length, first + SPAN))
            keys = slice(max(0, first - reach), min(length, queries.stop + reach))
            query_Q1 = torch.arange(queries.start, queries.stop)[:, None]
            key_L = torch.arange(keys.start, keys.stop)
            shown = (query_Q1 - key_L).abs() <= reach
            if shown_nL is not None:
                shown = shown & (shown_nL[:, None, None, keys] | (query_Q1 == key_L))
            yield WindowSpan(queries, keys, shown)


class BlockLayout(NamedTuple):
    """The blocks of some pieces."""

    blocks: list[RowBlock]
    order: Tensor | None = None
    """The piece [P] in each row; None if in the order of the pieces."""
    taken: Tensor | None = None
    """The token at each place [N]; None if places are tokens."""
    places: Tensor | None = None
    """The place of each token [T]; None if places are tokens."""

    def gathered(self, values: Tensor) -> Tensor:
        """Values of tokens [T, ...] -> values at places [N, ...]."""
        if self.taken is None:
            return values
        return _moved(_Gather, values, self.taken, self.places)

    def returned(self, placed: Tensor) -> Tensor:
        """Values at places [N, ...] -> values of tokens [T, ...]."""
        if self.taken is None:
            return placed
        return _moved(_Return, placed, self.places)


def lay_out(cu_seqlens: Tensor, heads: int) -> BlockLayout:
    """The blocks of pieces on a CPU, such that a block's weights of all heads fit in `GROUP_BYTES`,
    or single rows."""
    bounds = cu_seqlens.numpy().astype(np.int64)
    lengths = np.diff(bounds)
    starts, lengths = bounds[:-1][lengths > 0], lengths[lengths > 0]  # empty ones get no row
    alike = lengths.min() == lengths.max()
    # 1.
    if alike or _most_rows(int(lengths.min()), heads) == 1:
        return BlockLayout(_blocks(lengths.tolist(), heads))
    # 2. Longest first, so that a block is as wide as its first row.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    blocks = _blocks(lengths.tolist(), heads)
    taken, places = [], np.empty(bounds[-1], np.int64)
    row = 0
    for block in blocks:
        own = slice(row, row + len(block.lengths))
        columns = np.arange(block.longest)
        tokens = starts[own, None] + np.minimum(columns, lengths[own, None] - 1)
        numbers = block.first + np.arange(tokens.size).reshape(tokens.shape)
        real = columns < lengths[own, None]
        places[tokens[real]] = numbers[real]
        taken.append(tokens.reshape(-1))
        row = own.stop
    given = (order, np.concatenate(taken), places)
    return BlockLayout(blocks, *(torch.from_numpy(part) for part in given))


def _blocks(lengths: list[int], heads: int) -> list[RowBlock]:
    """Rows of these lengths, which are equal or fall, in their order; single rows if they do not
    fit."""
    blocks, row, first = [], 0, 0
    while row < len(lengths):
        longest = lengths[row]
        stop = min(len(lengths), row + _most_rows(longest, heads))
        # Ends at the first row, which is the longest.
        while lengths[stop - 1] < LEAST_FILLED * longest:
            stop -= 1
        blocks.append(RowBlock(first, lengths[row:stop]))
        first += (stop - row) * longest
        row = stop
    return blocks


def _most_rows(longest: int, heads: int) -> int:
    return max(1, GROUP_BYTES // (4 * heads * longest**2))


def _moved(function: type[torch.autograd.Function], *given: Tensor | None) -> Tensor:
    return cast(Tensor, function.apply(*given))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Its backward pass gathers too: a token's gradient is that at its place. Places that repeat a
    token are masked in attention, so their gradients are 0."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, taken: Tensor, places: Tensor) -> Tensor:
        ctx.places = places
        return values.index_select(0, taken)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad.index_select(0, ctx.places), None, None


class _Return(torch.autograd.Function):
    """The gradient at places that repeat a token is 0."""

    @staticmethod
    def forward(ctx: Any, placed: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.count = places, len(placed)
        return placed.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        placed = grad.new_zeros(ctx.count, *grad.shape[1:])
        return placed.index_copy_(0, ctx.places, grad), None
