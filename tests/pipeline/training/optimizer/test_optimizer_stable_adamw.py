"""StableAdamW equals its formula in fp64; test_optimizer.py compares it as the other kinds."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pipeline.training.optimizer import cpu_update, gpu_update
from tests.pipeline.training.optimizer.test_optimizer import Weights, bound_with
from tests.pipeline.training.plain import view
from tests.pipeline.training.toy import Record, toy_run

LOGICAL = [
    Record("matrix", "w", 0, (5, 7), True, True), Record("bias", "w", 35, (6,), False, False),
    Record("narrow", "w", 41, (12, 2), True, True), Record("norm", "w", 65, (7,), False, False),
]  # fmt: skip
"""Of one parameter of 72 elements."""


class OptimiAdam(NamedTuple):
    """StableAdamW as warner-benjamin/optimi 0.3.3 writes it, in fp64, for one tensor.

    Its moments are corrected already: each step weighs by beta (1 - beta^(t-1)) / (1 - beta^t).
    """

    weight: np.ndarray
    mean: np.ndarray
    square: np.ndarray

    def step(self, gradient: np.ndarray, t: int, rate: float, decay: float, o: Any) -> float:
        """Update in place; the RMS."""
        beta1, beta2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (o.beta1, o.beta2))
        self.mean[:] = beta1 * self.mean + (1 - beta1) * gradient
        self.square[:] = beta2 * self.square + (1 - beta2) * gradient**2
        rms = math.sqrt(np.mean(gradient**2 / np.maximum(self.square, o.eps**2)))
        rate /= max(1.0, rms)
        self.weight[:] *= 1 - rate * decay
        self.weight[:] -= rate * self.mean / (np.sqrt(self.square) + o.eps)
        return rms


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels as Python: they are the same source, and compiling them for fp64 takes 10 s."""
    for name, kernel in vars(cpu_update).copy().items():
        if hasattr(kernel, "py_func"):
            monkeypatch.setattr(cpu_update, name, kernel.py_func)


@pytest.mark.usefixtures("interpreted", "arithmetic")
def test_stable_adamw_is_the_published_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp64, on matrices and vectors, with gradients that grow and shrink, below eps too."""
    monkeypatch.setattr(gpu_update, "BLOCK", 30)
    monkeypatch.setattr(cpu_update, "PIECE", 20)
    settings = replace(toy_run("stable_adamw", "fp32", 0, 8, 1).optimizer, eps=1e-3, beta2=0.9)
    rng, rms = np.random.default_rng(3), []
    model = Weights(*rng.standard_normal(LOGICAL[-1].start + 7)).double()
    optimizer = bound_with(model, LOGICAL, settings)
    views = [view(model.w, record).numpy() for record in LOGICAL]
    theirs = [OptimiAdam(own.copy(), 0 * own, 0 * own) for own in views]
    for step in range(1, 31):
        drawn = rng.standard_normal(model.w.numel()) * 10 ** rng.uniform(-5, 1, model.w.numel())
        model.w.grad = torch.from_numpy(drawn)
        for number, (record, expected) in enumerate(zip(LOGICAL, theirs, strict=True)):
            gradient = view(model.w.grad, record).numpy()
            gradient *= 1 + 4 * (step % 5 == number)
            decay = settings.weight_decay * record.decay
            rms.append(expected.step(gradient, step, 0.03, decay, settings))
        optimizer.param_groups[0]["lr"] = 0.03
        optimizer.step()
        for own, expected in zip(views, theirs, strict=True):
            np.testing.assert_allclose(own, expected.weight, rtol=1e-12, atol=1e-14)
    assert 0.2 < np.mean(np.array(rms) > 1) < 0.8 and min(rms) < 0.5 and max(rms) > 1.3
    assert settings.weight_decay > 0
    report, last = optimizer.telemetry.report(), rms[-len(LOGICAL) :]
    assert report["update_rms_max_head"] == pytest.approx(max(last), rel=1e-6)
    assert report["update_rms_median_head"] == pytest.approx(np.median(last), rel=1e-6)
