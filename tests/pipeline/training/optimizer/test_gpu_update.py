"""PyTorch's operations give the results of the compiled ones; here both run on a CPU."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from pipeline.training.optimizer import gpu_update
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.gpu_update import ForeachUpdate
from pipeline.training.optimizer.optimizer import UPDATES
from tests.pipeline.training.optimizer.test_cpu_update import ADAM, DECAYS, FRAGMENTS, RATES, filled
from tests.pipeline.training.optimizer.test_optimizer import PAIR, Weights, bound

WAITS = {"item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__"}
"""Methods of a tensor that make the host wait for a GPU. `to` is handled separately."""


class Counting(TorchFunctionMode):
    """Counts the calls that would make a host wait for its GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in WAITS or "_local_scalar" in name:
            self.waits[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    with Counting() as mode:
        yield mode.waits


def results(kind: type[CompiledUpdate] | type[ForeachUpdate], at_once: bool) -> list[torch.Tensor]:
    weights, gradients, means = (filled(seed) for seed in range(3))
    squares = [tensor.abs() for tensor in filled(3)]
    update = kind(weights, list(zip(means, squares)), FRAGMENTS, DECAYS)
    found = [update.gradient_square(gradients)]
    if at_once:
        update.advance_and_apply(gradients, ADAM, 0.1)
    else:
        norms = update.advance(gradients, ADAM)
        found.append(torch.zeros(2, 3, dtype=torch.float64).index_add_(1, update.owners, norms))
        update.apply(gradients, RATES)
    return [*found, *weights, *means, *squares]


@pytest.mark.parametrize("block", [2**24, 900])
@pytest.mark.parametrize("at_once", [False, True])
def test_equals_the_compiled_update(
    monkeypatch: pytest.MonkeyPatch, block: int, at_once: bool
) -> None:
    monkeypatch.setattr(gpu_update, "BLOCK", block)
    for ours, theirs in zip(
        results(ForeachUpdate, at_once), results(CompiledUpdate, at_once), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind,most", [("lamb", 2), ("adamw", 1)])
def test_a_step_waits_for_the_device_at_most_twice(
    kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(UPDATES, "cpu", ForeachUpdate)
    model = Weights(1.0, 2.0, 3.0, 4.0)
    optimizer = bound(model, PAIR, kind=kind, clip_norm=0.1)
    model.w.grad = torch.ones(4)
    with counted() as waits:
        optimizer.step()
    assert optimizer.steps == 1
    assert waits == Counter(["item"] if most == 1 else ["item", "tolist"])


def test_no_wait_goes_uncounted() -> None:
    with counted() as waits:
        one = torch.ones(1)
        one.item(), one.tolist(), float(one), bool(one > 0), one.cpu()
    assert sum(waits.values()) >= 5
