from __future__ import annotations

from dataclasses import replace

from pipeline.costs.memory import largest_micro_batch, memory
from pipeline.recipes import recipe


def test_state_of_a_published_model() -> None:
    """RoBERTa-large in bf16 on 8 ranks at stage 1, by hand: 355.5 M elements with padding words."""
    parts = {part.name: part.value for part in memory(recipe("roberta_large"), 8, 1)}
    elements = 355_412_057 + (50_304 - 50_265) * 1_025
    assert elements % 16 == 0  # no padding
    assert parts["weights"] == 2 * elements
    assert parts["gradients"] == 4 * elements
    assert parts["master weights"] == 4 * elements / 8
    assert parts["moments"] == 8 * elements / 8


def test_the_largest_micro_batch_fits_and_one_more_row_does_not() -> None:
    run, device = recipe("roberta_base"), 40 * 2**30
    rows = largest_micro_batch(run, 8, device)
    assert rows > 8
    for more, fits in ((0, True), (1, False)):
        given = replace(run, batch=replace(run.batch, per_device=rows + more))
        assert (sum(part.most for part in memory(given, 8)) <= device) == fits
    assert largest_micro_batch(run, 8, 2**20) == 0


def test_the_path_of_a_cpu_has_no_gpu_in_it() -> None:
    """In fp32 with dropout it keeps the weights of attention; there is no CUDA."""
    run = recipe("roberta_base")
    there, here = (
        {part.name: part.value for part in memory(run, 1, on_gpu=on_gpu)}
        for on_gpu in (True, False)
    )
    assert here["activations"] > there["activations"]
    assert set(there) - set(here) == {"update block", "CUDA and NCCL"}


def test_bands_are_where_something_is_not_computed() -> None:
    for part in memory(recipe("roberta_base"), 8):
        assert (part.least < part.most) == (part.basis == "published"), part.name
