from dataclasses import replace

import pytest

from pipeline.config.settings import override
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config, generator_config
from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


@pytest.mark.parametrize(
    ("size", "encoder", "generator", "discriminator", "settings"),
    [
        # sizes: electra's training_utils.py and configure_pretraining.py
        (
            "small", (12, 256, 128, 4, 1_024), (12, 64, 128, 1, 256), 13_483_008,
            "optimizer.peak_lr=5e-4 batch.sequences=128 steps=1000000",
        ),
        (
            "base", (12, 768, 768, 12, 3_072), (12, 256, 768, 4, 1_024), 108_891_648,
            "optimizer.peak_lr=2e-4 batch.sequences=256 steps=766000",
        ),
        (
            "large", (24, 1_024, 1_024, 16, 4_096), (24, 256, 1_024, 4, 1_024), 334_092_288,
            "optimizer.peak_lr=2e-4 batch.sequences=2048 steps=400000",
        ),
    ],
)  # fmt: skip
def test_sizes_and_published_training_are_those_of_the_code(
    size: str, encoder: tuple[int, ...], generator: tuple[int, ...], discriminator: int,
    settings: str,
) -> None:  # fmt: skip
    """Unmasked predictions keep their token, and none is random; counts of transformers'
    ElectraModel."""
    ours = assert_set(
        f"electra_{size}", "data.masks.mask_share=0.85", "data.masks.random_share=0",
        f"data.sequence_length={128 if size == 'small' else 512}",
        f"data.masks.rate={0.25 if size == 'large' else 0.15}",
    )  # fmt: skip
    published = assert_set(
        f"electra_{size}_published", settings,
        "optimizer.kind=adamw optimizer.bias_correction=false",
        "schedule.kind=linear_times_warmup schedule.warmup_steps=10000",
    )  # fmt: skip
    assert published.data == replace(ours.data, mask_mode="per-epoch", duplicates=0)
    assert ours.encoder.attention_dropout == 0
    assert published.encoder == replace(
        ours.encoder, attention_dropout=0.1, initializer="truncated_normal_glorot"
    )
    names = "layers", "width", "embedding_width", "heads", "feed_forward"
    for run in (ours, published):
        configs = encoder_config(run), generator_config(run)
        found = [tuple(getattr(config, each) for each in names) for config in configs]
        assert found == [encoder, generator]
    assert counted(ours, "electra.")[0] == discriminator


def test_a_tied_generator_is_the_encoder() -> None:
    same = ["objective.generator.width=1", "objective.generator.layers=1"]
    settings = ["objective.generator.tied=true", *same]
    model = build_model(override(recipe("electra_tiny"), settings), seed=0)
    assert model.encoders() == [model.encoder]
    assert counted(recipe("electra_tiny"), "electra.")[0] > 0
