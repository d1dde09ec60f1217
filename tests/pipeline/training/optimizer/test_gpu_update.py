"""PyTorch's operations give the results of the compiled ones: on a CPU, and on a GPU if present."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.training.optimizer import gpu_update
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.fragments import Fragment, limit_sizes
from pipeline.training.optimizer.gpu_update import ForeachUpdate
from pipeline.training.optimizer.lamb_variants import AdamStep
from tests.pipeline.training.optimizer.test_cpu_update import ADAM, DECAYS, FRAGMENTS, RATES, filled
from tests.pipeline.training.optimizer.test_optimizer import PAIR, Weights, bound
from tests.pipeline.training.step_trace import StepTrace
from tests.pipeline.training.toy import Record


def results(
    kind: type[CompiledUpdate] | type[ForeachUpdate], adam: AdamStep, way: str,
    most: int = 2**24, device: str = "cpu",
) -> list[torch.Tensor]:  # fmt: skip
    """Sums, updates, weights and moments after a step; most: elements of a fragment."""
    groups = [filled(seed) for seed in range(4)]
    groups[3] = [tensor.abs() for tensor in groups[3]]
    weights, gradients, means, squares = ([t.to(device) for t in group] for group in groups)
    update = kind(weights, list(zip(means, squares)), [*limit_sizes(FRAGMENTS, most)], DECAYS)
    found = [update.gradient_square(gradients)]
    if way == "at once":
        update.advance_and_apply(gradients, adam, 0.1)
    else:
        advance = update.advance if way == "norms" else update.advance_relative
        sums = advance(gradients, adam)
        totals = torch.zeros(len(sums), 3, dtype=torch.float64, device=device)
        found += [totals.index_add_(1, update.owners, sums), *(u.clone() for u in gradients)]
        update.apply(gradients, RATES)
    return [tensor.cpu() for tensor in (*found, *weights, *means, *squares)]


WAYS = ["at once", "norms", "relative"]
DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]
STEPS = {
    "clipped": ADAM,
    "not clipped": replace(ADAM, gradient_scale=1.0),
    "not corrected": replace(ADAM, updates=math.inf),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("adam", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("way", WAYS)
def test_equals_the_compiled_update(
    monkeypatch: pytest.MonkeyPatch, way: str, adam: AdamStep, device: str
) -> None:
    theirs = results(CompiledUpdate, adam, way)
    for large in (2**20, 800):
        monkeypatch.setattr(gpu_update, "LARGE", large)
        ours = results(ForeachUpdate, adam, way, device=device)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", WAYS)
def test_cuts_of_the_weights_change_only_rounding(
    way: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = results(ForeachUpdate, ADAM, way, device=device)
    for block in (2**24, 1_001):
        monkeypatch.setattr(gpu_update, "BLOCK", block)
        cut = results(ForeachUpdate, ADAM, way, 900, device=device)
        torch.testing.assert_close(whole, cut, rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("device", DEVICES)
def test_adamw_keeps_a_decay_below_the_last_bit(device: str) -> None:
    """Rounded on its own, 1 - lr weight_decay is 1, and weights would never decay."""
    weight = torch.linspace(1, 2, 10_001, device=device)
    mean = torch.rand(10_001, generator=torch.Generator().manual_seed(0)).to(device)
    part = Fragment(logical=0, start=0, flat=0, offset=0, numel=10_001)
    update = ForeachUpdate([weight], [(mean, torch.ones_like(weight))], [part], [0.01])
    adam = AdamStep(beta1=0.5, beta2=0.0, eps=0.0, updates=math.inf, gradient_scale=1.0)
    before = weight.double()
    update.advance_and_apply([torch.ones_like(weight)], adam, 1e-6)
    decayed = before - 1e-6 * mean.double() - weight.double()
    assert float(decayed.mean()) == pytest.approx(1e-6 * 0.01 * 1.5, rel=0.2)


def launches(kind: str, count: int) -> int:
    """Calls of PyTorch that change memory in one step on `count` logical weights of 4 elements."""
    logical = [Record(str(i), "w", 4 * i, (4,), i % 2 == 0, True) for i in range(count)]
    model = Weights(*torch.linspace(1, 2, 4 * count).tolist())
    optimizer = bound(model, logical, kind=kind, clip_norm=0.1)
    model.w.grad = torch.ones(4 * count)
    with Operations() as mode:
        optimizer.step()
    return mode.operations


class Operations(TorchDispatchMode):
    """Counts operations that are not views."""

    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        self.operations += not views
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("foreach")
def test_small_weights_do_not_cost_a_kernel_each_and_a_block_costs_six(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of StableAdamW's six per block, two are LAMB's first pass and its norms; two more are made
    once per step."""
    whole = {kind: launches(kind, 40) for kind in ("lamb", "adamw", "stable_adamw")}
    assert whole == {kind: launches(kind, 4) for kind in whole}
    assert whole["stable_adamw"] == whole["lamb"] + 4 + 2
    monkeypatch.setattr(gpu_update, "BLOCK", 80)
    assert launches("stable_adamw", 40) == whole["stable_adamw"] + 6


def test_blocks_hold_all_pieces_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_update, "BLOCK", 1_000)
    pieces = [*limit_sizes(FRAGMENTS, 1_000)]
    blocks = gpu_update._blocks(pieces)
    assert [piece for block in blocks for piece in block] == pieces
    sizes = [sum(piece.numel for piece in block) for block in blocks]
    assert max(sizes) == 1_000 and all(a + b[0].numel > 1_000 for a, b in zip(sizes, blocks[1:]))


@pytest.mark.usefixtures("foreach")
def test_a_step_waits_for_the_device_at_most_twice() -> None:
    for kind, methods in (
        ("lamb", ["item", "tolist"]), ("adamw", ["item"]), ("stable_adamw", ["item", "tolist"]),
    ):  # fmt: skip
        model = Weights(1.0, 2.0, 3.0, 4.0)
        optimizer = bound(model, PAIR, kind=kind, clip_norm=0.1)
        model.w.grad = torch.ones(4)
        with StepTrace() as trace:
            optimizer.step()
        assert optimizer.steps == 1
        assert trace.waits == Counter(methods), kind


def test_no_wait_goes_uncounted() -> None:
    with StepTrace() as trace:
        one = torch.ones(1)
        one.item(), one.tolist(), float(one), bool(one > 0), one.cpu()
    assert trace.waits == {"item": 3, "tolist": 1, "cpu": 1}
