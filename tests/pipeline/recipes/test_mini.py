"""The sizes of the minis; test_roberta.py checks that recipes are complete."""

import pytest

from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


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
    roberta = recipe("roberta_mini")
    run = assert_set(
        f"{family}_mini",
        "data.vocab_size=8192 data.sequence_length=128 encoder.positions=128 encoder.layers=6",
        "encoder.width=320 encoder.heads=5 encoder.initializer=normal_sinusoidal precision=fp32",
        f"optimizer.kind=adamw data.tokenizer={recipe(f'{family}_base').data.tokenizer}",
    )
    assert (run.batch, run.schedule, run.steps) == (roberta.batch, roberta.schedule, roberta.steps)
    assert counted(run, "")[1] == count
