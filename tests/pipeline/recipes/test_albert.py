"""ALBERT's sizes, versions and schedules; test_roberta.py checks that recipes are complete."""

from dataclasses import replace

import pytest

from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


def test_input_is_the_paper_s_and_heads_are_those_of_the_released_models() -> None:
    """No count of parameters depends on heads, and the paper's rule would give xlarge 32."""
    assert_set(
        "albert_base",
        "data.format=segment_pair data.segments.label=order data.masking=ngram",
        "data.masks.max_ngram=3 data.tokenizer=unigram data.lower_case=true data.vocab_size=30000",
    )
    sizes = ("base", "large", "xlarge", "xxlarge")
    assert [recipe(f"albert_{size}").encoder.heads for size in sizes] == [12, 16, 16, 64]


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        ("base", (11_683_584, 11_813_810)),
        ("large", (17_683_968, 17_847_474)),
        ("xlarge", (58_724_864, 59_021_490)),
        ("xxlarge", (222_595_584, 223_158_450)),
    ],
)
def test_sizes_and_version_1_are_the_paper_s(size: str, counts: tuple[int, int]) -> None:
    """Counts of transformers' AlbertModel with its pooler, and of AlbertForPreTraining."""
    second = assert_set(
        f"albert_{size}",
        "encoder.embedding_width=128 encoder.sharing=all encoder.activation=gelu_tanh",
        "encoder.dropout=0 encoder.attention_dropout=0 encoder.groups=1 data.duplicates=10",
    )
    published = assert_set(
        f"albert_{size}_v1_published",
        "optimizer.kind=lamb optimizer.lamb_variant=albert optimizer.peak_lr=1.76e-3",
        "batch.sequences=4096 steps=125000 schedule.kind=linear_from_start",
        "schedule.warmup_steps=3125",
    )
    dropout = 0.0 if size == "xxlarge" else 0.1
    assert published.encoder == replace(
        second.encoder, activation="gelu", dropout=dropout, attention_dropout=dropout,
        initializer="truncated_normal",
    )  # fmt: skip
    assert replace(second.data, duplicates=40) == published.data
    assert counted(second, "albert.") == counted(published, "albert.") == counts
