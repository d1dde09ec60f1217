"""Published optimizers, each written as in its source, for one whole weight at a time.

Slow and simple, in the dtype of the arguments. `step` counts from 1; the moments, mean and square,
are changed in place, the new weight is returned.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from pipeline.config.training_settings import OptimizerSettings as Settings


class Weight(NamedTuple):
    """A weight, its moments, and whether decay and the ratio apply to it."""

    value: Tensor
    mean: Tensor
    square: Tensor
    decay: bool
    adapt: bool


def adamw(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """Loshchilov & Hutter 2019, algorithm 2."""
    return weight.value - rate * _corrected_update(weight, gradient, step, o)


def uncorrected(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """google-research/bert, optimization.py: AdamW without bias correction."""
    del step
    _advance(weight, gradient, o)
    return weight.value - rate * _plain_update(weight, o)


def paper(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """You et al. 2020, algorithm 2, with phi(z) = z."""
    update = _corrected_update(weight, gradient, step, o)
    ratio = _ratio(weight.value.norm(), update.norm()) if weight.adapt else 1.0
    return weight.value - rate * ratio * update


def nvlamb(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """NVIDIA/apex, FusedLAMB(use_nvlamb=True): every weight is adapted, decayed or not."""
    update = _corrected_update(weight, gradient, step, o)
    return weight.value - rate * _ratio(weight.value.norm(), update.norm()) * update


def albert(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """google-research/albert, lamb_optimizer.py: without bias correction."""
    del step
    _advance(weight, gradient, o)
    update = _plain_update(weight, o)
    ratio = _ratio(weight.value.norm(), update.norm()) if weight.adapt else 1.0
    return weight.value - ratio * rate * update


def deepspeed(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """DeepSpeed 0.19.8, fused_lamb_cuda_kernel.cu with eps outside the root and bias correction."""
    _advance(weight, gradient, o)
    step_size = rate * math.sqrt(1 - o.beta2**step) / (1 - o.beta1**step)
    decay = o.weight_decay if weight.decay else 0.0
    update = weight.mean / (weight.square.sqrt() + o.eps) + decay * weight.value
    coefficient = 1.0
    if weight.value.norm() != 0 and update.norm() != 0:
        coefficient = max(0.01, min(10.0, float(weight.value.norm() / update.norm())))
    return weight.value - step_size * coefficient * update


def stable_adamw(weight: Weight, gradient: Tensor, step: int, rate: float, o: Settings) -> Tensor:
    """Wortsman et al. 2023, algorithm 2: AdamW with AdaFactor's update clipping."""
    update = _corrected_update(weight, gradient, step, o)
    square_hat = weight.square / (1 - o.beta2**step)
    rms = (gradient**2 / square_hat.clamp_min(o.eps**2)).mean().sqrt()
    return weight.value - rate / max(1.0, float(rms)) * update


Formula = Callable[[Weight, Tensor, int, float, Settings], Tensor]
FORMULAS: dict[str, Formula] = {
    "adamw": adamw, "uncorrected": uncorrected,
    "paper": paper, "nvlamb": nvlamb, "albert": albert, "deepspeed": deepspeed,
    "stable_adamw": stable_adamw,
}  # fmt: skip


def formula_of(settings: Settings) -> Formula:
    """The formula of a run's optimizer."""
    if settings.kind == "lamb":
        return FORMULAS[settings.lamb_variant]
    return FORMULAS[settings.kind if settings.bias_correction else "uncorrected"]


def _advance(weight: Weight, gradient: Tensor, o: Settings) -> None:
    weight.mean.copy_(o.beta1 * weight.mean + (1 - o.beta1) * gradient)
    weight.square.copy_(o.beta2 * weight.square + (1 - o.beta2) * gradient**2)


def _plain_update(weight: Weight, o: Settings) -> Tensor:
    update = weight.mean / (weight.square.sqrt() + o.eps)
    return update + o.weight_decay * weight.value if weight.decay else update


def _corrected_update(weight: Weight, gradient: Tensor, step: int, o: Settings) -> Tensor:
    _advance(weight, gradient, o)
    mean_hat = weight.mean / (1 - o.beta1**step)
    square_hat = weight.square / (1 - o.beta2**step)
    update: Tensor = mean_hat / (square_hat.sqrt() + o.eps)
    return update + o.weight_decay * weight.value if weight.decay else update


def _ratio(weight_norm: Tensor, update_norm: Tensor) -> float:
    if weight_norm == 0 or update_norm == 0:
        return 1.0
    return float(weight_norm / update_norm)
