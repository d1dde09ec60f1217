"""Gradients -> updated weights: LAMB and AdamW on logical parameters, exact at every ZeRO stage.

Both are one update u = m / (sqrt(v) + eps) + weight_decay w, with bias-corrected moments m and v;
they differ in the last line only:

    AdamW (Loshchilov & Hutter 2019)   w <- w - lr u
    LAMB (You et al. 2020, alg. 2)     w <- w - lr ||w|| / ||u|| u,  ratio 1 where a norm is 0

(lamb.py has the other LAMBs.) The norms are of a whole logical parameter. A rank has fragments of
it (fragments.py): it adds up their squares, and one all-reduce of two numbers a parameter makes
them whole. One number more, before that, is the norm of the global gradient. We clip by it here and
not in DeepSpeed, whose four optimizer classes compute it over different elements and treat a
non-finite one differently. So at any stage: a step is at most two collectives, of 8 and 16 bytes
a logical parameter, and two waits for the device; and a gradient that is not finite changes
nothing, the count of steps included.

DeepSpeed hands the optimizer new flat gradients each step and drops them after it: they become the
update in place, so that a step needs next to no memory. The arithmetic is kernels.py's on a CPU and
foreach.py's on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from pipeline.config.run import OptimizerSettings
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.fragments import (
    Fragment,
    FragmentedParameter,
    FragmentLayout,
    view,
)
from pipeline.training.optimizer.gpu_update import ForeachUpdate
from pipeline.training.optimizer.lamb_variants import rule_of
from pipeline.training.optimizer.telemetry import Telemetry

UPDATES: dict[str, type[CompiledUpdate] | type[ForeachUpdate]] = {
    "cpu": CompiledUpdate,
    "cuda": ForeachUpdate,
}
"""Who does the arithmetic, by the device that has the weights (with offload: the host)."""


class FragmentState(NamedTuple):
    """This rank's part of a logical parameter: fp32 views, to read from and to write to."""

    name: str
    start: int
    """First element, in the flattened logical parameter."""
    weight: torch.Tensor
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor


class LogicalOptimizer(torch.optim.Optimizer):
    """One group of parameters, whose `lr` is set before each step; `bind` before the first."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        logical: Sequence[FragmentedParameter],
        settings: OptimizerSettings,
    ) -> None:
        """parameters: the trainable ones by name."""
        super().__init__(list(parameters.values()), {"lr": 0.0})
        self.logical = tuple(logical)
        self.settings = settings
        self.steps = 0
        """Updates made so far; what bias correction counts."""
        self.gradient_norm = math.nan
        """Of the last step's global gradient, before clipping; not finite: it was not used."""
        self.trust_ratios: list[float] = []
        """Of the last step's LAMB update, one a logical parameter."""
        self._adapted = [part.adapt or settings.adapt_vectors for part in self.logical]
        self.telemetry = Telemetry(self.logical, self._adapted)
        self._bound = False

    def bind(
        self, layout: FragmentLayout, fragments: Sequence[Fragment], device: torch.device
    ) -> None:
        """Where this rank's weights are, and the device on which ranks can sum."""
        self._flats = layout.flats
        self._fragments = tuple(fragments)
        self._sum_over_ranks = not layout.replicated and dist.get_world_size() > 1
        self._device = device
        for flat in self._flats:
            self.state[flat] = {
                "exp_avg": torch.zeros_like(flat, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(flat, requires_grad=False),
            }
        states = [self.state[flat] for flat in self._flats]
        self._update = UPDATES[self._flats[0].device.type](
            self._flats,
            [(state["exp_avg"], state["exp_avg_sq"]) for state in states],
            fragments,
            [self._decay(part) for part in self.logical],
        )
        self._bound = True

    def _decay(self, part: FragmentedParameter) -> float:
        decays = part.decay or self.settings.decay_vectors
        return self.settings.weight_decay if decays else 0.0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the weights; nothing happens when the gradient is not finite."""
        assert closure is None and self._bound
        gradients = [_flat_gradient(flat) for flat in self._flats]
        self.gradient_norm = self._global_norm(gradients)
        if not math.isfinite(self.gradient_norm):
            return
        self.steps += 1
        settings, rule = self.settings, rule_of(self.settings)
        clips = 0 < settings.clip_norm < self.gradient_norm
        scale = settings.clip_norm / self.gradient_norm if clips else 1.0
        adam = rule.adam_step(settings, self.steps, scale)
        rate = rule.rate(float(self.param_groups[0]["lr"]), adam, self.steps)
        self.telemetry.update(clips)
        if settings.kind == "adamw":
            self._update.advance_and_apply(gradients, adam, rate)
            return
        norms = self._whole_norms(self._update.advance(gradients, adam))
        self.trust_ratios = [
            rule.trust_ratio(*pair) if adapts else 1.0
            for pair, adapts in zip(norms, self._adapted, strict=True)
        ]
        self.telemetry.lamb(rate, self.trust_ratios, norms)
        self._update.apply(gradients, [rate * ratio for ratio in self.trust_ratios])

    def fragments(self) -> Iterator[FragmentState]:
        """This rank's weights and moments. At stage 0 every rank has all of them.

        After writing, `Engine.refresh_model_weights` brings the model up to date.
        """
        for part in self._fragments:
            flat = self._flats[part.flat]
            state = self.state[flat]
            yield FragmentState(
                self.logical[part.logical].name,
                part.start,
                *(view(tensor, part) for tensor in (flat, state["exp_avg"], state["exp_avg_sq"])),
            )

    def _global_norm(self, gradients: Sequence[torch.Tensor]) -> float:
        total = self._update.gradient_square(gradients).to(self._device)
        if self._sum_over_ranks:
            dist.all_reduce(total)
        return math.sqrt(total.item())

    def _whole_norms(self, squares: torch.Tensor) -> list[tuple[float, float]]:
        """squares: of this rank's pieces of the weights and the updates."""
        totals = torch.zeros(2, len(self.logical), dtype=squares.dtype, device=squares.device)
        totals.index_add_(1, self._update.owners, squares)
        totals = totals.to(self._device)
        if self._sum_over_ranks:
            dist.all_reduce(totals)
        return [(weight, update) for weight, update in totals.sqrt().T.tolist()]


def _flat_gradient(flat: torch.Tensor) -> torch.Tensor:
    """Zeros for a parameter that the loss did not use."""
    gradient = torch.zeros_like(flat) if flat.grad is None else flat.grad
    return gradient.detach().reshape(-1)
