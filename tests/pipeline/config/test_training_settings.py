"""Rules within the sections of the training settings; ranges are tested in test_run.py."""

from __future__ import annotations

import pytest

from pipeline.config.settings import override
from pipeline.errors import ConfigError
from pipeline.recipes import recipe

RUN = recipe("roberta_base")


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            "encoder.heads=7",
            "encoder.width=768 is not divisible by encoder.heads=7; "
            "choose a number of heads that divides it",
        ),
        (
            "encoder.embedding_width=768",
            "encoder.embedding_width=768 is not below encoder.width=768; lower it to factorize "
            "the embeddings, or set it to 0",
        ),
        (
            "encoder.sharing=all encoder.groups=5",
            "encoder.layers=12 is not divisible by encoder.groups=5; set encoder.groups to one of "
            "1, 2, 3, 4, 6, 12",
        ),
        (
            "encoder.groups=2",
            "encoder.groups=2 has no effect with encoder.sharing=none; set it to 1, or "
            "encoder.sharing to all, attention or feed_forward",
        ),
        (
            "optimizer.lamb_variant=nvlamb",
            "optimizer.lamb_variant=nvlamb applies the trust ratio to every weight, but "
            "optimizer.adapt_vectors=false excludes biases and LayerNorms; set "
            "optimizer.adapt_vectors=true or optimizer.lamb_variant=paper",
        ),
        (
            "schedule.kind=inverse_sqrt schedule.warmup_steps=0",
            "schedule.kind=inverse_sqrt needs a warm-up, and schedule.warmup_steps=0 gives none; "
            "set schedule.warmup_steps or another kind",
        ),
        (
            "spikes.rollbacks=2",
            "spikes.rollbacks=2 needs spike detection, and spikes.deviations=0 turns it off; set "
            "spikes.deviations, e.g. to 10",
        ),
        (
            "checkpoint.keep_every=1500",
            "checkpoint.keep_every=1500 is not a multiple of checkpoint.every=1000, so most of its "
            "steps are never saved; set it to a multiple, or to 0",
        ),
    ],
)
def test_contradictory_settings_of_a_section_are_refused(settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(RUN, settings.split())
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        "encoder.heads=8",
        "encoder.embedding_width=128",
        "encoder.sharing=all encoder.groups=4",
        "optimizer.lamb_variant=nvlamb optimizer.adapt_vectors=true",
        "optimizer.kind=adamw optimizer.lamb_variant=nvlamb",
        "schedule.kind=inverse_sqrt",
        "spikes.rollbacks=2 spikes.deviations=10",
        "checkpoint.keep_every=3000",
    ],
)
def test_the_remedies_are_legal(settings: str) -> None:
    assert override(RUN, settings.split()) != RUN


@pytest.mark.parametrize("path", ["encoder.heads", "encoder.groups", "checkpoint.every"])
def test_a_divisor_of_zero_is_out_of_range(path: str) -> None:
    with pytest.raises(ConfigError, match=f"{path}=0 is out of range"):
        override(RUN, [f"{path}=0", "checkpoint.keep_every=1000"])
