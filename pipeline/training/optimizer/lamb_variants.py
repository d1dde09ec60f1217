"""How the published LAMBs differ, as data: the optimizer itself (optimizer.py) is one code path.

All compute Adam's moments m and v of the clipped gradient at update t, then apply one step:

    u = m' / (sqrt(v') + eps) + weight_decay w        w <- w - rate' ratio u

    variant    source                                    m', v'                    rate' / rate
    paper      You et al. 2020, algorithm 2              m/(1-b1^t), v/(1-b2^t)    1
    nvlamb     NVIDIA/apex FusedLAMB(use_nvlamb=True)    as paper                  1
    albert     google-research/albert lamb_optimizer.py  m, v                      1
    deepspeed  DeepSpeed 0.19.8 FusedLamb                m, v       sqrt(1-b2^t) / (1-b1^t)

ratio = ||w|| / ||u||, or 1 if a norm is 0; `deepspeed` clamps it to [0.01, 10]. Learning rates do
not transfer between variants: at t = 10 the last factor is 0.15.

`optimizer.adapt_vectors` decides whether biases and LayerNorms get the ratio. Google's code skips
weights without weight decay. So does apex, unless use_nvlamb=True; DeepSpeed skips nothing. Run
therefore refuses `nvlamb` and `deepspeed` without it: `nvlamb` would be `paper`. apex clips the
global gradient's norm at 1 by itself; here `optimizer.clip_norm` does, for every variant.
DeepSpeed's development branch has since adopted the paper's bias correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pipeline.config.training_settings import OptimizerSettings


@dataclass(frozen=True, slots=True)
class AdamStep:
    """The scalars of one update of m and v."""

    beta1: float
    beta2: float
    eps: float
    updates: float
    """Updates including this one, for bias correction; infinite for no correction."""
    gradient_scale: float
    """Factor that clips the gradient; 1 if it is not clipped."""

    @property
    def correction1(self) -> float:
        """m' = m / correction1."""
        return 1.0 - math.pow(self.beta1, self.updates)

    @property
    def correction2(self) -> float:
        """v' = v / correction2."""
        return 1.0 - math.pow(self.beta2, self.updates)


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule by which the moments become a step."""

    corrects: Literal["moments", "rate", "nothing"]
    """Place where the bias of the moments, which start at zero, is corrected."""
    least_ratio: float = 0.0
    largest_ratio: float = math.inf

    def adam_step(
        self, settings: OptimizerSettings, updates: int, gradient_scale: float
    ) -> AdamStep:
        """The scalars of update number `updates`, counted from 1."""
        return AdamStep(
            beta1=settings.beta1,
            beta2=settings.beta2,
            eps=settings.eps,
            updates=updates if self.corrects == "moments" else math.inf,  # beta**inf = 0
            gradient_scale=gradient_scale,
        )

    def rate(self, rate: float, adam: AdamStep, updates: int) -> float:
        """rate' of the table in the module docstring."""
        if self.corrects != "rate":
            return rate
        # Not `adam.correction`s, whose number of updates is infinite here.
        return rate * math.sqrt(1 - adam.beta2**updates) / (1 - adam.beta1**updates)

    def trust_ratio(self, weight_norm: float, update_norm: float) -> float:
        """The ratio of one logical parameter."""
        if weight_norm == 0 or update_norm == 0:
            return 1.0
        return min(max(weight_norm / update_norm, self.least_ratio), self.largest_ratio)


ADAMW = Rule("moments")
"""Loshchilov & Hutter 2019: the same step, with ratio 1."""
UNCORRECTED_ADAMW = Rule("nothing")
"""AdamWeightDecayOptimizer of google-research/bert, albert and electra."""

VARIANTS = {
    "paper": Rule("moments"),
    "nvlamb": Rule("moments"),
    "albert": Rule("nothing"),
    "deepspeed": Rule("rate", least_ratio=0.01, largest_ratio=10.0),  # its max_coeff, min_coeff
}
"""Rules by optimizer.lamb_variant."""


def rule_of(settings: OptimizerSettings) -> Rule:
    """The rule that a run's settings select."""
    if settings.kind == "lamb":
        return VARIANTS[settings.lamb_variant]
    return ADAMW if settings.bias_correction else UNCORRECTED_ADAMW
