"""Gradients -> updated weights: LAMB, AdamW, StableAdamW on logical parameters, at any ZeRO stage.

All are one update u = m / (sqrt(v) + eps) + weight_decay w, with bias-corrected moments m and v
that include this step's gradient g; they differ in the last line only:

    AdamW (Loshchilov & Hutter 2019)        w <- w - lr u
    LAMB (You et al. 2020, alg. 2)          w <- w - lr ||w|| / ||u|| u,  ratio 1 where a norm is 0
    StableAdamW (Wortsman et al. 2023)      w <- w - lr / max(1, RMS) u,
                                            RMS^2 = mean of g^2 / max(v, eps^2)

(lamb_variants.py has the other LAMBs.) Norms and means are those of a whole logical parameter. A
rank has fragments of it (fragments.py): it sums their squares, and one all-reduce of two numbers
per parameter, or one for StableAdamW, completes them. Before that, an all-reduce of one number
gives the norm of the global gradient. We clip by it here and not in DeepSpeed, whose four optimizer
classes compute it over different elements and treat a non-finite one differently. So at every stage
a step takes at most two collectives, of 8 bytes and of 16 bytes per logical parameter, and two
waits for the device; a gradient that is not finite changes nothing, the count of steps included.

DeepSpeed passes new flat gradients in each step and drops them afterwards. The update overwrites
them, so a step needs almost no memory. cpu_update.py has the arithmetic for a CPU, gpu_update.py
for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from pipeline.config.training_settings import OptimizerSettings
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
"""The implementation by the type of the device that holds the weights (with offload: the host)."""


class FragmentState(NamedTuple):
    """This rank's part of a logical parameter: fp32 views, readable and writable."""

    name: str
    start: int
    """First element, in the flattened logical parameter."""
    weight: torch.Tensor
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor


class LogicalOptimizer(torch.optim.Optimizer):
    """One group of parameters. Set its `lr` before each step; call `bind` before the first."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        logical: Sequence[FragmentedParameter],
        settings: OptimizerSettings,
    ) -> None:
        """parameters: the trainable ones by name."""
        # One group, with decay by fragment: DeepSpeed would step each group by itself.
        super().__init__(list(parameters.values()), {"lr": 0.0})
        self.logical = tuple(logical)
        self.settings = settings
        self.steps = 0
        """Updates made so far, which bias correction depends on."""
        self.gradient_norm = math.nan
        """Norm of the last global gradient before clipping; if not finite, it was not used."""
        self.trust_ratios: list[float] = []
        """Trust ratios of the last LAMB update, one per logical parameter."""
        self._numels = [math.prod(part.shape) for part in self.logical]
        self._adapted = [part.adapt or settings.adapt_vectors for part in self.logical]
        self.telemetry = Telemetry(self.logical, self._adapted)
        self._bound = False

    def bind(
        self, layout: FragmentLayout, fragments: Sequence[Fragment], device: torch.device
    ) -> None:
        """Set where this rank's weights are, and the device on which ranks can all-reduce."""
        self._flats = layout.flats
        self._fragments = tuple(fragments)
        # Replicated: every rank has whole sums, and adding them would count them several times.
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
        """Update the weights; does nothing if the gradient is not finite.

        1. Norm of the global gradient: the first collective, and the first wait for the device.
        2. Moments and updates of this rank's pieces; AdamW applies them at once.
        3. Norms of whole logical parameters: the second collective and wait.
        4. Apply the updates, each at its own rate.
        """
        assert closure is None and self._bound
        gradients = [_flat_gradient(flat) for flat in self._flats]
        # 1. Here and not in DeepSpeed, whose classes sum different elements.
        self.gradient_norm = self._global_norm(gradients)
        # All ranks have the same sum, so all of them skip.
        if not math.isfinite(self.gradient_norm):
            return
        self.steps += 1
        settings, rule = self.settings, rule_of(self.settings)
        # A factor of the pass that reads the gradient anyway, where a kernel can take one.
        clips = 0 < settings.clip_norm < self.gradient_norm
        scale = settings.clip_norm / self.gradient_norm if clips else 1.0
        adam = rule.adam_step(settings, self.steps, scale)
        rate = rule.rate(float(self.param_groups[0]["lr"]), adam, self.steps)
        self.telemetry.update(clips)
        if settings.kind == "adamw":  # needs no norm of a weight: one pass
            self._update.advance_and_apply(gradients, adam, rate)
            return
        # 2. and 3. `_roots` sums what the passes return.
        if settings.kind == "stable_adamw":
            roots = self._roots(self._update.advance_relative(gradients, adam))
            rms = [
                root / math.sqrt(numel) for (root,), numel in zip(roots, self._numels, strict=True)
            ]
            self.telemetry.stable_adamw(rms)
            self._update.apply(gradients, [rate / max(1.0, value) for value in rms])
            return
        roots = self._roots(self._update.advance(gradients, adam))
        norms = [(weight, update) for weight, update in roots]
        self.trust_ratios = [
            rule.trust_ratio(*pair) if adapts else 1.0
            for pair, adapts in zip(norms, self._adapted, strict=True)
        ]
        self.telemetry.lamb(rate, self.trust_ratios, norms)
        # 4. `gradients` holds the updates by now.
        self._update.apply(gradients, [rate * ratio for ratio in self.trust_ratios])

    def fragments(self) -> Iterator[FragmentState]:
        """This rank's weights and moments. At stage 0 every rank has all of them.

        After writing to them, call `ZeroEngine.refresh_model_weights` to update the model.
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
        # The first wait for the device.
        return math.sqrt(total.item())

    def _roots(self, squares: torch.Tensor) -> list[list[float]]:
        """The roots of n sums, of each logical parameter; squares: [n, pieces], of this rank's
        pieces."""
        shape = len(squares), len(self.logical)
        totals = torch.zeros(shape, dtype=squares.dtype, device=squares.device)
        totals.index_add_(1, self._update.owners, squares)
        totals = totals.to(self._device)
        if self._sum_over_ranks:
            dist.all_reduce(totals)
        # `tolist` is the second wait for the device; all numbers come at once.
        found: list[list[float]] = totals.sqrt().T.tolist()
        return found


def _flat_gradient(flat: torch.Tensor) -> torch.Tensor:
    """The flat gradient, with zeros for parameters that the loss did not use."""
    gradient = torch.zeros_like(flat) if flat.grad is None else flat.grad
    return gradient.detach().reshape(-1)
