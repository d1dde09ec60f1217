"""The sizes of the minis; test_roberta.py checks that recipes are complete."""

from __future__ import annotations

import pytest

from pipeline.planning.phase_plan import parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.on_meta import sizes


@pytest.mark.parametrize(
    ("family", "count"),
    [
        ("roberta", 10_173_312),
        ("bert", 10_276_354),
        ("albert", 2_492_610),
        ("electra", 10_850_497),
        ("spanbert", 10_557_304),
    ],
)
def test_minis_differ_in_what_the_family_is(family: str, count: int) -> None:
    run, roberta = recipe(f"{family}_mini"), recipe("roberta_mini")
    lengths = run.data.sequence_length, run.encoder.positions
    assert (run.data.vocab_size, *lengths) == (8_192, 128, 128)
    assert (run.encoder.layers, run.encoder.width, run.encoder.heads) == (6, 320, 5)
    assert (run.precision, run.optimizer.kind) == ("fp32", "adamw")
    assert run.encoder.initializer == "normal_sinusoidal"
    assert (run.batch, run.schedule, run.steps) == (roberta.batch, roberta.schedule, roberta.steps)
    assert run.data.tokenizer == recipe(f"{family}_base").data.tokenizer
    assert sum(sizes(run).values()) == parameters_of(run) == count
