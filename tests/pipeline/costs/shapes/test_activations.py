"""Predicted activations equal what autograd saves, and on a GPU what is published."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from pipeline.config.encoder_settings import Initializer
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.costs.shapes.activations import (
    LiveBytes,
    activations,
    micro_batch,
    trace,
    unique_bytes,
)
from pipeline.planning.build import build_model
from pipeline.recipes import recipe

FAMILIES = ("bert", "roberta", "albert", "electra", "spanbert", "modernbert")
ROWS = 4
TOLERANCE = 0.05
DROPOUT = ["encoder.dropout=0.1", "encoder.attention_dropout=0.1"]


def saved_bytes(run: Run, pieces: tuple[int, ...]) -> int:
    """Storages that a real forward pass saves, each once, without weights and inputs."""
    model = build_model(run, seed=0).train()
    if run.precision == "bf16":
        model.bfloat16()
    inputs = micro_batch(run, ROWS, pieces)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        sums = model(inputs)
    loss = torch.stack([sums[f"{part.name}_loss"] for part in model.parts]).sum()
    kept += [tensor for node in nodes(loss.grad_fn) for tensor in own_tensors(node)]
    given = [*model.parameters(), *(part for part in inputs if isinstance(part, Tensor))]
    known = {tensor.untyped_storage()._cdata for tensor in given}
    found = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for key, size in found.items() if key not in known)


def nodes(last: Any) -> Iterator[Any]:
    seen, waiting = set(), [last]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [before for before, _ in node.next_functions]


def own_tensors(node: Any) -> list[Tensor]:
    """What our functions keep without `save_for_backward`, which hooks do not see."""
    kept = tree_leaves(getattr(node, "__dict__", {}))
    return [value for value in kept if isinstance(value, Tensor)]


def assert_predicted(run: Run, pieces: tuple[int, ...] = ()) -> None:
    """On the path of a CPU."""
    found = activations(run, False, pieces)
    saved = saved_bytes(run, pieces)
    assert (found.encoders + found.heads) * ROWS == pytest.approx(saved, rel=TOLERANCE)


@pytest.mark.parametrize("pieces", [(), (15, 10, 7)], ids=["whole", "in pieces"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_equals_what_autograd_saves(family: str, pieces: tuple[int, ...], precision: str) -> None:
    run = override(recipe(f"{family}_tiny"), [*DROPOUT, f"precision={precision}"])
    assert_predicted(run, pieces)


@pytest.mark.parametrize("law", get_args(Initializer))
def test_the_law_of_initial_weights_does_not_matter(law: str) -> None:
    """Nor does it stop the count: some laws look at what they drew, and fake tensors are empty."""
    run = recipe("bert_tiny")
    drawn = override(run, [f"encoder.initializer={law}"])
    assert activations(drawn, False) == activations(run, False)


@pytest.mark.parametrize("kind", ["rtd_masked", "replace_mlm", "all_tokens_mlm"])
def test_other_objectives_are_counted(kind: str) -> None:
    assert_predicted(override(recipe("electra_tiny"), [f"objective.kind={kind}"]))


def test_a_layer_on_a_gpu_keeps_what_is_published() -> None:
    """Also the log-sum-exp, 4 bytes per head of 12, LayerNorm's moments, 16 per token, and the keys
    of dropout, 8 per token."""
    for name, layers, per_token in (
        # 34 bytes per token and width (Korthikanti et al. 2022, sec. 4.1, without 5 a s^2 b that
        # fused attention does not keep, and without the masks of dropout, 2 of the 34)
        ("roberta_base", (1, 2), 32 * 768),
        # Two residual sums, two norms, the mixed vector (10 D), query, key and value
        # (6 D), the turned query and key beside them (4 D), the inner vector (4 F) and the product
        # with its gate (2 F).
        ("modernbert_base", (2, 3), 20 * 768 + 6 * 1_152),
    ):
        run = recipe(name)
        runs = [override(run, [f"encoder.layers={count}"]) for count in layers]
        less, more = (activations(each, True).encoders for each in runs)
        expected = run.data.sequence_length * (per_token + 4 * 12 + 16 + 8)
        assert more - less == pytest.approx(expected, rel=1e-3)


def test_a_slot_costs_its_logits() -> None:
    """On a GPU in bf16: 50,304 logits and four vectors of the head; a row of 512 has 77 slots."""
    run = recipe("roberta_base")
    expected = 2 * 77 * (50_304 + 4 * 768)
    assert activations(run, True).heads == pytest.approx(expected, rel=0.01)


def test_pieces_attend_to_less_and_keep_on_a_gpu_what_whole_rows_do() -> None:
    tiny, run = recipe("roberta_tiny"), recipe("roberta_base")
    assert activations(tiny, False, (16, 16)).encoders < activations(tiny, False).encoders
    whole, parts = activations(run, True), activations(run, True, (300, 200, 12))
    assert parts.encoders == whole.encoders + 2 * 4  # two more bounds
    assert replace(parts, encoders=whole.encoders) == whole


def test_leaves_no_trace_in_the_process() -> None:
    """A run computes this while it trains: its random numbers and types stay what they were."""
    before = torch.get_rng_state()
    for on_gpu in (True, False):
        trace(override(recipe("electra_tiny"), DROPOUT), on_gpu, (), 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert torch.ones(1).device.type == "cpu"


def test_counts_storages_while_they_live() -> None:
    """100 + 100 floats, a view for nothing, 50 freed at once, and none of what was there."""
    before = torch.ones(1000)
    with LiveBytes([before]) as live:
        first, second = torch.ones(100), torch.zeros(100)
        view = first.view(10, 10).t()
        assert live.now == 800
        torch.ones(50).sum()
        assert live.now == 800 and 800 + 200 <= live.peak <= 800 + 204
        before.view(10, 100).mul_(2)
        del first
        assert live.now == 800  # the view still holds it
        del view
        assert live.now == 400
    assert unique_bytes([second, second.view(4, 25), before]) == 4400
    for ignored, counted in (("", 400), ("meta", 0)):  # without storage, unless ignored
        with LiveBytes(ignored_device=ignored) as live:
            shape = torch.ones(100, device="meta")
            assert live.now == counted and shape.is_meta
