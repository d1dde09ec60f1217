from dataclasses import replace
from typing import Any

from pipeline.config.settings import override
from pipeline.costs.estimate import Estimate
from pipeline.costs.memory import held, host_memory, largest_micro_batch, memory, not_planned
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.recipes import recipe

ZERO1 = read_deepspeed_file("zero1")
ZERO3 = read_deepspeed_file("zero3")
BASE = override(recipe("roberta_base"), ["encoder.layers=2"])
"""Two layers are traced faster than twelve."""


def by_name(parts: list[Estimate]) -> dict[str, Estimate]:
    return {part.name: part for part in parts}


def changed(name: str, **zero: Any) -> DeepSpeedFile:
    file = read_deepspeed_file(name)
    return DeepSpeedFile("mine.json", {**file.zero, **zero})


def test_state_of_a_published_model() -> None:
    """RoBERTa-large in bf16 on 8 ranks at stage 1, by hand: 355.5 M elements with padding words."""
    parts = by_name(held(recipe("roberta_large"), 8, ZERO1))
    elements = 355_412_057 + (50_304 - 50_265) * 1_025
    assert elements % 16 == 0  # no padding
    assert parts["weights"].value == 2 * elements
    assert parts["gradients"].value == 4 * elements
    assert parts["master weights"].value == 4 * elements / 8
    assert parts["moments"].value == 8 * elements / 8


def test_the_largest_micro_batch_fits_and_one_more_row_does_not() -> None:
    device = 40 * 2**30
    rows = largest_micro_batch(BASE, 8, device, ZERO1)
    assert rows > 8
    for more, fits in ((0, True), (1, False)):
        given = replace(BASE, batch=replace(BASE.batch, per_device=rows + more))
        assert (sum(part.most for part in memory(given, 8, ZERO1)) <= device) == fits
    assert largest_micro_batch(BASE, 8, 2**20, ZERO1) == 0


def test_the_path_of_a_cpu_has_no_gpu_in_it() -> None:
    """In fp32 with dropout it keeps the weights of attention; there is no CUDA."""
    there, here = (by_name(memory(BASE, 1, ZERO1, on_gpu=on_gpu)) for on_gpu in (True, False))
    assert here["activations"].value > there["activations"].value
    assert set(there) - set(here) == {"CUDA and NCCL"}
    for part in memory(BASE, 8, ZERO1):  # bands are where something is not computed
        assert (part.least < part.most) == (part.basis == "published"), part.name


def test_a_file_of_one_s_own_is_planned_as_it_is() -> None:
    for name, factor in (("zero2", 2), ("zero3", 1)):  # stage 2 has two buffers to overlap
        usual, small = (
            by_name(memory(BASE, 8, file))["communication buckets"].value
            for file in (changed(name), changed(name, reduce_bucket_size=40_000_000))
        )
        assert usual - small > factor * 2 * 10_000_000 * 0.9
    (warning,) = not_planned(BASE, 8, changed("zero3", stage3_max_reuse_distance=1000))
    assert "stage3_max_reuse_distance=1,000" in warning
    for name in ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload"):
        assert not_planned(BASE, 8, read_deepspeed_file(name)) == []


def test_offload_moves_the_optimizer_to_the_host() -> None:
    for name in ("zero2", "zero3"):
        there = by_name(memory(BASE, 8, read_deepspeed_file(name)))
        file = read_deepspeed_file(f"{name}_offload")
        here, host = by_name(memory(BASE, 8, file)), by_name(host_memory(BASE, 8, file))
        for part in ("master weights", "moments"):
            assert here[part].value == 0 and here[part].assumption
            assert host[f"host: {part}"].value == there[part].value
            assert host[f"host: {part}"].most == 2 * there[part].value  # pinned
        assert ("host: weights" in host) == (name == "zero3")
        assert host_memory(BASE, 8, read_deepspeed_file(name)) == []
        alone = by_name(memory(BASE, 8, file, on_gpu=False))
        assert set(host) <= set(alone)  # without a GPU it is the same memory


def test_weights_go_to_the_host_with_or_without_the_optimizer() -> None:
    """Each section pins its own memory."""
    whole = by_name(memory(BASE, 8, changed("zero3")))
    for pinned in (True, False):
        there = {"device": "cpu", "pin_memory": pinned}
        alone = changed("zero3", offload_param=there)
        (weights,) = host_memory(BASE, 8, alone)
        device = by_name(memory(BASE, 8, alone))
        assert weights.name == "host: weights"
        assert weights.value == whole["weights"].value - device["weights"].value
        assert device["moments"].value == whole["moments"].value
        assert weights.most == (1 + pinned) * weights.value
        host = by_name(host_memory(BASE, 8, changed("zero3_offload", offload_param=there)))
        assert host["host: weights"] == weights
        assert host["host: moments"].most == 2 * host["host: moments"].value


def test_head_chunks_are_as_large_as_their_limit() -> None:
    """Two fp32 copies of some slots' logits where nothing is compiled: at stage 3."""
    chunks = {}
    for rows in (1, 2, 128, 256):
        run = replace(BASE, batch=replace(BASE.batch, per_device=rows))
        chunks[rows] = by_name(memory(run, 1, ZERO3))["head chunks"].value
    assert chunks[2] == 2 * chunks[1] == 2 * 2 * 4 * 77 * 50_265
    assert chunks[128] == chunks[256] == 2 * 2**30
