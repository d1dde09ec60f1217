"""The shapes are GPT-BERT's, and the models are exported as ModernBERT."""

import math

import pytest

from model.hugging_face.config_json import their_config
from pipeline.planning.phase_plan import encoder_config, parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


@pytest.mark.parametrize(
    ("size", "width", "vocabulary", "count"),
    [("small", 384, 8_192, 28_083_968), ("base", 768, 16_384, 112_299_520)],
)
def test_shapes_are_gpt_berts(size: str, width: int, vocabulary: int, count: int) -> None:
    run = assert_set(
        f"babylm_{size}",
        f"data.vocab_size={vocabulary} data.sequence_length=128 data.duplicates=10 epochs=10",
        f"encoder.layers=12 encoder.width={width} encoder.heads={width // 64}",
        "encoder.dropout=0.1 encoder.attention_dropout=0.1 batch.attention=document",
        "batch.sequences=256 optimizer.kind=lamb schedule.kind=cosine",
    )
    assert run.encoder.initializer_range == pytest.approx(math.sqrt(0.4 / width), abs=5e-5)
    assert counted(run, "")[1] == parameters_of(run) == count
    theirs = their_config(encoder_config(run), False)
    assert theirs["architectures"] == ["ModernBertForMaskedLM"]


def test_base_differs_from_small_in_sizes_rate_and_steps() -> None:
    small, base = recipe("babylm_small"), recipe("babylm_base")
    assert base.schedule.warmup_steps / base.steps == small.schedule.warmup_steps / small.steps
    # GPT-BERT's own two rates have the same ratio
    assert base.optimizer.peak_lr / small.optimizer.peak_lr == pytest.approx(1e-2 / 1.41e-2, 0.01)
