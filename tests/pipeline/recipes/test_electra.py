from __future__ import annotations

from dataclasses import replace

from pipeline.config.settings import override
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config, generator_config, parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import sizes


def test_sizes_are_those_of_the_code() -> None:
    for size, encoder, generator in (
        # electra's training_utils.py and configure_pretraining.py
        ("small", (12, 256, 128, 4, 1_024), (12, 64, 128, 1, 256)),
        ("base", (12, 768, 768, 12, 3_072), (12, 256, 768, 4, 1_024)),
        ("large", (24, 1_024, 1_024, 16, 4_096), (24, 256, 1_024, 4, 1_024)),
    ):
        names = "layers", "width", "embedding_width", "heads", "feed_forward"
        for name in (f"electra_{size}", f"electra_{size}_published"):
            run = recipe(name)
            configs = encoder_config(run), generator_config(run)
            found = [tuple(getattr(config, each) for each in names) for config in configs]
            assert found == [encoder, generator]


def test_parameters_are_those_of_the_released_models() -> None:
    """Counts of transformers' ElectraModel at the released sizes; tiny was not released."""
    for size, discriminator in (
        ("tiny", 0),
        ("small", 13_483_008),
        ("base", 108_891_648),
        ("large", 334_092_288),
    ):
        run = recipe(f"electra_{size}")
        found = sizes(run)
        assert sum(found.values()) == parameters_of(run)
        own = sum(count for part, count in found.items() if part.startswith("electra."))
        assert own == discriminator or not discriminator


def test_published_is_the_paper_s() -> None:
    """Unmasked predictions keep their token, and none is random."""
    for size, settings in (
        ("small", "optimizer.peak_lr=5e-4 batch.sequences=128 steps=1000000"),
        ("base", "optimizer.peak_lr=2e-4 batch.sequences=256 steps=766000"),
        ("large", "optimizer.peak_lr=2e-4 batch.sequences=2048 steps=400000"),
    ):
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
        assert published.encoder == replace(ours.encoder, initializer="truncated_normal_glorot")


def test_a_tied_generator_is_the_encoder() -> None:
    same = ["objective.generator.width=1", "objective.generator.layers=1"]
    settings = ["objective.generator.tied=true", *same]
    model = build_model(override(recipe("electra_tiny"), settings), seed=0)
    assert model.encoders() == [model.encoder]
