"""Rules within the sections of the training settings; ranges are tested in test_run.py."""

from __future__ import annotations

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.recipes import recipe

RUN = recipe("roberta_base")


@pytest.mark.parametrize(
    "settings, message",
    [
        (
            "optimizer.lamb_variant=nvlamb",
            "optimizer.lamb_variant=nvlamb applies the trust ratio to every weight, but "
            "optimizer.adapt_vectors=false excludes biases and LayerNorms; add --set "
            "optimizer.adapt_vectors=true, or --set optimizer.lamb_variant=paper",
        ),
        (
            "optimizer.kind=stable_adamw optimizer.bias_correction=false",
            "optimizer.bias_correction=false is for optimizer.kind=adamw; StableAdamW corrects its "
            "moments, or its RMS would clip the first updates: add --set "
            "optimizer.bias_correction=true, or --set optimizer.kind=adamw",
        ),
        (
            "schedule.kind=inverse_sqrt schedule.warmup_steps=0",
            "schedule.kind=inverse_sqrt needs a warm-up, and schedule.warmup_steps=0 gives none; "
            "add, for instance, --set schedule.warmup_steps=1000, or --set schedule.kind=linear",
        ),
        (
            "spikes.rollbacks=2",
            "spikes.rollbacks=2 needs spike detection, and spikes.deviations=0 turns it off; add "
            "--set spikes.deviations=10, or --set spikes.rollbacks=0",
        ),
        (
            "checkpoint.keep_every=1500",
            "checkpoint.keep_every=1500 is not a multiple of checkpoint.every=1000, so most of "
            "its steps are never saved; add --set checkpoint.keep_every=2000, or --set "
            "checkpoint.every=500",
        ),
        (
            'logging.to=["wandb","board","wandb"]',
            'logging.to=["wandb", "board", "wandb"] may name each of tensorboard, wandb once; add '
            "--set 'logging.to=[\"wandb\"]'",
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
        "encoder.embedding_width=768",
        "encoder.sharing=all encoder.groups=4",
        "optimizer.lamb_variant=nvlamb optimizer.adapt_vectors=true",
        "optimizer.kind=adamw optimizer.lamb_variant=nvlamb",
        "optimizer.kind=stable_adamw optimizer.lamb_variant=nvlamb",
        "schedule.kind=inverse_sqrt",
        "spikes.rollbacks=2 spikes.deviations=10",
        "checkpoint.keep_every=3000",
        'logging.to=["wandb"]',
        "logging.to=[]",
    ],
)
def test_the_remedies_are_legal(settings: str) -> None:
    assert override(RUN, settings.split()) != RUN


@pytest.mark.parametrize("path", ["encoder.heads", "encoder.groups", "checkpoint.every"])
def test_a_divisor_of_zero_is_out_of_range(path: str) -> None:
    with pytest.raises(ConfigError, match=f"{path}=0 is out of range"):
        override(RUN, [f"{path}=0", "checkpoint.keep_every=1000"])


@pytest.mark.parametrize(("keep_every", "most"), [(0, 4), (2_000, 9)])
def test_checkpoints_that_are_kept_at_most(keep_every: int, most: int) -> None:
    """The newest three, the one being written, and those that are never deleted."""
    changes = ["checkpoint.keep=3", f"checkpoint.keep_every={keep_every}"]
    assert override(RUN, changes).checkpoint.most_kept(11_000) == most
