"""The optimizer's arithmetic on a GPU, in PyTorch's operations on many tensors at once.

Has the same interface as `cpu_update.CompiledUpdate`, whose module explains a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile

import torch

from pipeline.training.optimizer.fragments import Fragment, limited, view
from pipeline.training.optimizer.lamb_variants import AdamStep

BLOCK = 2**24
"""Elements updated at a time: enough to fill a GPU; temporaries have this size."""


@dataclass(frozen=True, slots=True)
class _UpdateBlock:
    """Pieces that are updated together."""

    first: int
    """Index of the first piece among all pieces, which are in the order of the gradients."""
    weights: list[torch.Tensor]
    means: list[torch.Tensor]
    squares: list[torch.Tensor]
    logical: list[int]
    """The logical parameter of each piece."""
    decays: list[float]


class ForeachUpdate:
    """Updates fp32 tensors in GPU memory without waiting for the GPU."""

    def __init__(
        self,
        flats: Sequence[torch.Tensor],
        moments: Sequence[tuple[torch.Tensor, torch.Tensor]],
        fragments: Sequence[Fragment],
        decays: Sequence[float],
    ) -> None:
        """decays: the weight decay of each logical parameter."""
        pieces = [*limited(fragments, BLOCK)]
        device = flats[0].device
        self.owners = torch.tensor(
            [piece.logical for piece in pieces], dtype=torch.long, device=device
        )
        """The logical parameter of each piece; pieces are the columns of `advance`'s result."""
        self._blocks = [*_blocks(flats, moments, pieces, decays)]
        self._cuts = [_Cuts(index, flat.numel(), pieces) for index, flat in enumerate(flats)]
        self._step = torch.zeros((), device=device)
        self._divisor = torch.zeros((), device=device)

    def gradient_square(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sum of squares over this rank's fragments, in float64; gradients: the flat gradients."""
        return _squares(torch._foreach_norm(self._pieces(gradients))).sum()

    def advance(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        """Advance the moments, overwrite gradients with updates; squares of w and u [2, pieces]."""
        pieces = self._pieces(gradients)
        norms: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        for block in self._blocks:
            own = pieces[block.first : block.first + len(block.weights)]
            updates = self._updates(block, own, adam)
            norms[0].extend(torch._foreach_norm(block.weights))
            norms[1].extend(torch._foreach_norm(updates))
            torch._foreach_copy_(own, updates)
        return torch.stack([_squares(part) for part in norms])

    def advance_and_apply(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, rate: float
    ) -> None:
        """A whole step, if no norm is needed."""
        pieces = self._pieces(gradients)
        for block in self._blocks:
            own = pieces[block.first : block.first + len(block.weights)]
            torch._foreach_add_(block.weights, self._updates(block, own, adam), alpha=-rate)

    def apply(self, updates: Sequence[torch.Tensor], rates: Sequence[float]) -> None:
        """w <- w - rate u; rates: by logical parameter."""
        pieces = self._pieces(updates)
        for block in self._blocks:
            own = pieces[block.first : block.first + len(block.weights)]
            for weight, update, logical in zip(block.weights, own, block.logical, strict=True):
                weight.add_(update, alpha=-rates[logical])

    def _updates(
        self, block: _UpdateBlock, gradients: list[torch.Tensor], adam: AdamStep
    ) -> list[torch.Tensor]:
        # PyTorch's Adam kernel adds m / (sqrt(v) + eps) to its parameter. We pass it the weight
        # decay term instead of the weights, which must wait for the norms.
        updates = list(torch._foreach_mul(block.weights, block.decays))
        self._step.fill_(adam.updates)
        self._divisor.fill_(1 / adam.gradient_scale)
        torch._fused_adam_(
            updates,
            gradients,
            block.means,
            block.squares,
            [],
            [self._step] * len(gradients),
            lr=-1.0,
            beta1=adam.beta1,
            beta2=adam.beta2,
            weight_decay=0.0,
            eps=adam.eps,
            amsgrad=False,
            maximize=False,
            grad_scale=None if adam.gradient_scale == 1 else self._divisor,
        )
        return updates

    def _pieces(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            piece
            for cuts, gradient in zip(self._cuts, gradients, strict=True)
            for piece in cuts.pieces(gradient)
        ]


class _Cuts:
    """Cuts one flat tensor's gradient, a new tensor in every step, into its pieces."""

    def __init__(self, index: int, numel: int, pieces: Sequence[Fragment]) -> None:
        self.sizes: list[int] = []
        """Lengths of pieces and of the gaps between them, in order."""
        self.chosen: list[int] = []
        """Indices of the pieces among them."""
        place = 0
        for piece in pieces:
            if piece.flat == index:
                self.chosen.append(len(self.sizes) + 1)
                self.sizes += [piece.offset - place, piece.numel]
                place = piece.offset + piece.numel
        self.sizes.append(numel - place)

    def pieces(self, gradient: torch.Tensor) -> list[torch.Tensor]:
        """The pieces of a gradient, as views."""
        parts = torch.split(gradient, self.sizes)
        return [parts[index] for index in self.chosen]


def _blocks(
    flats: Sequence[torch.Tensor],
    moments: Sequence[tuple[torch.Tensor, torch.Tensor]],
    pieces: Sequence[Fragment],
    decays: Sequence[float],
) -> Iterator[_UpdateBlock]:
    """Groups of consecutive pieces, of at most BLOCK elements together."""
    first = 0
    while first < len(pieces):
        ends = accumulate(piece.numel for piece in pieces[first:])
        count = sum(1 for _ in takewhile(lambda end: end <= BLOCK, ends))
        own = pieces[first : first + count]
        yield _UpdateBlock(
            first=first,
            weights=[view(flats[piece.flat], piece) for piece in own],
            means=[view(moments[piece.flat][0], piece) for piece in own],
            squares=[view(moments[piece.flat][1], piece) for piece in own],
            logical=[piece.logical for piece in own],
            decays=[decays[piece.logical] for piece in own],
        )
        first += count


def _squares(norms: Sequence[torch.Tensor]) -> torch.Tensor:
    """Squares in float64, so that their sum hardly depends on how the weights are cut."""
    return torch.stack([*norms]).double().square()
