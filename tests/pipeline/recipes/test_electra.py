from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.config.settings import override
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config, generator_config, parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.on_meta import sizes


@pytest.mark.parametrize(
    ("size", "encoder", "generator"),
    [
        # electra's training_utils.py and configure_pretraining.py
        ("small", (12, 256, 128, 4, 1_024), (12, 64, 128, 1, 256)),
        ("base", (12, 768, 768, 12, 3_072), (12, 256, 768, 4, 1_024)),
        ("large", (24, 1_024, 1_024, 16, 4_096), (24, 256, 1_024, 4, 1_024)),
    ],
)
def test_sizes_are_those_of_the_code(
    size: str, encoder: tuple[int, ...], generator: tuple[int, ...]
) -> None:
    for name in (f"electra_{size}", f"electra_{size}_published"):
        run = recipe(name)
        for expected, config in (
            (encoder, encoder_config(run)),
            (generator, generator_config(run)),
        ):
            assert expected == (
                config.layers, config.width, config.embedding_width, config.heads,
                config.feed_forward,
            )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "discriminator"),
    [("small", 13_483_008), ("base", 108_891_648), ("large", 334_092_288)],
)
def test_the_discriminator_has_the_parameters_of_the_released_one(
    name: str, discriminator: int
) -> None:
    """Counts of transformers' ElectraModel at the released sizes."""
    found = sizes(recipe(f"electra_{name}"))
    assert sum(n for part, n in found.items() if part.startswith("electra.")) == discriminator


@pytest.mark.parametrize("name", ["tiny", "small", "base", "large"])
def test_the_plan_counts_the_parameters_of_the_model(name: str) -> None:
    run = recipe(f"electra_{name}")
    assert sum(sizes(run).values()) == parameters_of(run)


def test_published_is_the_paper_s() -> None:
    found = {}
    for size in ("small", "base", "large"):
        ours, published = recipe(f"electra_{size}"), recipe(f"electra_{size}_published")
        drawn = replace(ours.data, mask_mode="per-epoch", duplicates=0)
        encoder = replace(ours.encoder, initializer="truncated_normal_glorot")
        assert published.data == drawn and published.encoder == encoder
        assert published.schedule.kind == "linear_times_warmup"
        assert not published.optimizer.bias_correction
        assert published.optimizer.kind == "adamw" and published.schedule.warmup_steps == 10_000
        found[size] = (
            published.optimizer.peak_lr, published.batch.sequences, published.steps,
            published.data.sequence_length, published.data.masks.rate,
        )  # fmt: skip
    assert found == {
        "small": (5e-4, 128, 1_000_000, 128, 0.15),
        "base": (2e-4, 256, 766_000, 512, 0.15),
        "large": (2e-4, 2_048, 400_000, 512, 0.25),
    }


def test_traps_4_unmasked_predictions_keep_their_token_and_none_is_random() -> None:
    masks = recipe("electra_base").data.masks
    assert (masks.mask_share, masks.random_share) == (0.85, 0.0)


def test_a_tied_generator_is_the_encoder() -> None:
    same = ["objective.generator.width=1", "objective.generator.layers=1"]
    settings = ["objective.generator.tied=true", *same]
    model = build_model(override(recipe("electra_tiny"), settings), seed=0)
    assert model.encoders() == [model.encoder]
