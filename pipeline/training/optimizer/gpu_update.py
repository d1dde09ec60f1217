"""The optimizer's arithmetic on a GPU, in PyTorch's operations on many tensors at once.

Has the same interface as `cpu_update.CompiledUpdate`, whose module explains a step.

On a GPU, a step takes the time of its memory traffic, if kernels are few and large. So each pass
takes the longest ranges that it can treat alike (`_join`), and no temporary is as large as the
weights. Adam's part of the update is a = m' / (sqrt(v') + eps). Bytes read and written per fp32
parameter, of which nearly all have weight decay:

    gradient norm    4   reads g
    both            24   one kernel reads g, m, v; writes m, v and a (or a multiple of it) over g
    AdamW           12   w <- w - rate (a + weight_decay w)
    LAMB            12   u = a + weight_decay w over a
                     8   the norms of w and u
                    12   w <- w - rate u; 20 in small pieces, together 0.1 % of a large model
    StableAdamW     44   g / max(sqrt(v'), eps) over g, and its norm
                    24   u over g, and w <- w - rate u, as LAMB
    if it clips      8   g <- scale g

So AdamW moves 40, LAMB 60 and StableAdamW 92, and 8 more if it clips. StableAdamW needs g and v'
at once, and so a place for a: it takes a block of the weights at a time (BLOCK).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from pipeline.training.optimizer.fragments import Fragment, limit_sizes, view
from pipeline.training.optimizer.lamb_variants import AdamStep

LARGE = 2**20
"""Elements of a piece that is worth a kernel of its own, which takes microseconds to launch."""
BLOCK = 2**24
"""Most elements of StableAdamW's temporaries, 64 MB each. A launch of PyTorch's kernels for many
tensors takes 320 chunks of 2**16 elements at most, so larger blocks would save few launches."""
VECTOR = 4
"""Kernels for many tensors load so many elements at once where a tensor's length allows it."""


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
        device = flats[0].device
        pieces = [*limit_sizes(fragments, BLOCK)]
        self._logical = [part.logical for part in pieces]
        self.owners = torch.tensor(self._logical, dtype=torch.long, device=device)
        """The logical parameter of each piece; pieces are the columns of `advance`'s result."""
        self._large = [index for index, part in enumerate(pieces) if part.numel >= LARGE]
        self._small = [index for index, part in enumerate(pieces) if part.numel < LARGE]
        self._pieces = _Ranges(flats, moments, pieces)
        self._whole = _Ranges(flats, moments, _join(fragments))
        blocks = _blocks(pieces)
        joined = [_join(block) for block in blocks]
        self._blocked = _Ranges(flats, moments, [part for block in joined for part in block])
        self._blocks = [*zip(_slices(joined), _slices(blocks), strict=True)]
        """The ranges of `_blocked` and the pieces of each block."""
        self._longest = max((sum(part.numel for part in block) for block in blocks), default=0)
        by_decay: dict[float, list[Fragment]] = {}
        for part in fragments:
            by_decay.setdefault(decays[part.logical], []).append(part)
        self._by_decay = [
            (decay, _Ranges(flats, moments, _join(own))) for decay, own in by_decay.items()
        ]
        # On the device, where the fused kernel reads it: the host never waits.
        self._step = torch.zeros((), device=device)

    def gradient_square(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sum of squares over this rank's fragments, in float64; gradients: the flat gradients."""
        return _squares(self._whole.of(gradients)).sum()

    def advance(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        """Advance the moments, overwrite gradients with updates; squares of w and u [2, pieces]."""
        self._begin(gradients, adam)
        self._overwrite(self._whole, self._whole.of(gradients), adam, 1.0)
        self._add_decay(gradients)
        # Weights and updates in one call: half as many launches for small pieces.
        return _squares([*self._pieces.weights, *self._pieces.of(gradients)]).view(2, -1)

    def advance_relative(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> torch.Tensor:
        """As `advance`, but returns the squares of g / max(sqrt(v'), eps) [1, pieces]."""
        self._begin(gradients, adam)
        ranges, pieces = self._blocked, self._pieces.of(gradients)
        own = ranges.of(gradients)
        # zeros, not empty: the kernel computes 0 times the old value, and 0 times NaN is NaN
        scratch = gradients[0].new_zeros(self._longest)
        smallest = adam.eps * math.sqrt(adam.correction2)  # of the roots of uncorrected v
        norms: list[torch.Tensor] = []
        for part, inside in self._blocks:
            sizes = [tensor.numel() for tensor in own[part]]
            updates = [*torch.split(scratch[: sum(sizes)], sizes)]
            self._fused(updates, own[part], ranges.means[part], ranges.squares[part], adam, 1.0)
            inverses = torch._foreach_rsqrt(ranges.squares[part])
            # Where v is 0 the inverse is infinite, and becomes 1 / eps.
            torch._foreach_clamp_max_(inverses, 1 / smallest)
            torch._foreach_mul_(own[part], inverses)
            # Before the copy below overwrites what it reads.
            norms += torch._foreach_norm(pieces[inside])
            torch._foreach_copy_(own[part], updates)
        self._add_decay(gradients)
        return _square(norms).view(1, -1) * adam.correction2  # v above was not corrected

    def _add_decay(self, gradients: Sequence[torch.Tensor]) -> None:
        """u = a + weight_decay w, over a."""
        for decay, ranges in self._by_decay:
            if decay:
                torch._foreach_add_(ranges.of(gradients), ranges.weights, alpha=decay)

    def advance_and_apply(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, rate: float
    ) -> None:
        """A whole step, if no norm is needed."""
        self._begin(gradients, adam)
        for decay, ranges in self._by_decay:
            own = ranges.of(gradients)
            if decay:
                # w + rate decay (-a / decay - w): the kernel's own decay would round w twice, and
                # lose all decay of less than half of w's last bit
                self._overwrite(ranges, own, adam, -1 / decay)
                torch._foreach_lerp_(ranges.weights, own, rate * decay)
            else:
                self._overwrite(ranges, own, adam, 1.0)
                torch._foreach_add_(ranges.weights, own, alpha=-rate)

    def apply(self, updates: Sequence[torch.Tensor], rates: Sequence[float]) -> None:
        """w <- w - rate u; rates: by logical parameter. Overwrites updates."""
        weights, pieces = self._pieces.weights, self._pieces.of(updates)
        factors = [-rates[logical] for logical in self._logical]
        for index in self._large:
            weights[index].add_(pieces[index], alpha=factors[index])
        if self._small:
            steps = [pieces[index] for index in self._small]
            torch._foreach_mul_(steps, [factors[index] for index in self._small])
            torch._foreach_add_([weights[index] for index in self._small], steps)

    def _begin(self, gradients: Sequence[torch.Tensor], adam: AdamStep) -> None:
        """Clip the gradients, and count the update."""
        if adam.gradient_scale != 1:
            torch._foreach_mul_(self._whole.of(gradients), adam.gradient_scale)
        self._step.fill_(adam.updates)

    def _overwrite(
        self, ranges: _Ranges, gradients: list[torch.Tensor], adam: AdamStep, factor: float
    ) -> None:
        """Advance the moments of ranges; g <- factor a."""
        self._fused(gradients, gradients, ranges.means, ranges.squares, adam, factor)

    def _fused(
        self,
        updates: list[torch.Tensor],
        gradients: list[torch.Tensor],
        means: list[torch.Tensor],
        squares: list[torch.Tensor],
        adam: AdamStep,
        factor: float,
    ) -> None:
        """Advance the moments; updates <- factor a, where there may be gradients or other memory.

        The kernel computes p <- p - lr weight_decay p - lr a. Where lr weight_decay is 1, a finite
        old p drops out, so p may be the gradient's memory: each thread loads its elements of all
        operands before it stores. With grad_scale it would also store the gradient.
        """
        torch._fused_adamw_(
            updates,
            gradients,
            means,
            squares,
            [],  # no amsgrad
            [self._step] * len(gradients),
            lr=-factor,
            beta1=adam.beta1,
            beta2=adam.beta2,
            weight_decay=-1 / factor,
            eps=adam.eps,
            amsgrad=False,
            maximize=False,
        )


class _Ranges:
    """Ranges of this rank's flat tensors, in order: views of weights and moments."""

    def __init__(
        self,
        flats: Sequence[torch.Tensor],
        moments: Sequence[tuple[torch.Tensor, torch.Tensor]],
        parts: Sequence[Fragment],
    ) -> None:
        self.weights = [view(flats[part.flat], part) for part in parts]
        self.means = [view(moments[part.flat][0], part) for part in parts]
        self.squares = [view(moments[part.flat][1], part) for part in parts]
        self._cuts = [_Cuts(index, flat.numel(), parts) for index, flat in enumerate(flats)]

    def of(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same ranges of the flat gradients, which are new tensors in every step."""
        return [
            part
            for cuts, gradient in zip(self._cuts, gradients, strict=True)
            for part in cuts.parts(gradient)
        ]


class _Cuts:
    """Cuts one flat tensor's gradient into ranges."""

    def __init__(self, index: int, numel: int, parts: Sequence[Fragment]) -> None:
        self.sizes: list[int] = []
        """Lengths of ranges and of the gaps between them, in order."""
        self.chosen: list[int] = []
        """Indices of the ranges among them."""
        place = 0
        for part in parts:
            if part.flat == index:
                if part.offset > place:
                    self.sizes.append(part.offset - place)
                self.chosen.append(len(self.sizes))
                self.sizes.append(part.numel)
                place = part.offset + part.numel
        self.sizes.append(numel - place)

    def parts(self, gradient: torch.Tensor) -> list[torch.Tensor]:
        """The ranges of a gradient, as views."""
        parts = torch.split(gradient, self.sizes)
        return [parts[index] for index in self.chosen]


def _blocks(pieces: Sequence[Fragment]) -> list[list[Fragment]]:
    """The pieces in order, in blocks of at most BLOCK elements; no piece is larger."""
    found: list[list[Fragment]] = []
    room = 0
    for piece in pieces:
        if piece.numel > room:
            found.append([])
            room = BLOCK
        found[-1].append(piece)
        room -= piece.numel
    return found


def _slices(blocks: Sequence[Sequence[Fragment]]) -> list[slice]:
    """The place of each block's members in all blocks joined."""
    ends = [0, *accumulate(len(block) for block in blocks)]
    return [slice(first, last) for first, last in pairwise(ends)]


def _join(parts: Sequence[Fragment]) -> list[Fragment]:
    """Adjacent parts as one range, whose `logical` and `start` are those of its first part.

    A length that is not a multiple of VECTOR stays apart, or it would slow down all that it joins.
    """
    found: list[Fragment] = []
    for part in parts:
        last = found[-1] if found else part
        adjacent = (last.flat, last.offset + last.numel) == (part.flat, part.offset)
        if adjacent and last.numel % VECTOR == part.numel % VECTOR == 0:
            found[-1] = replace(last, numel=last.numel + part.numel)
        else:
            found.append(part)
    return found


def _squares(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of squares of each, in float64, so that totals hardly depend on how they are cut."""
    return _square(torch._foreach_norm([*tensors]))


def _square(norms: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack([*norms]).double().square()
