"""Rules within the sections of the training settings; ranges are tested in test_run.py."""

import pytest

from pipeline.config.settings import override
from pipeline.recipes import recipe
from tests.pipeline.config.refusals import assert_refused, problems

RUN = recipe("roberta_base")


def test_contradictions_of_a_section_name_remedies_that_are_legal() -> None:
    for settings in (
        "optimizer.lamb_variant=nvlamb",
        "optimizer.kind=stable_adamw optimizer.bias_correction=false",
        "schedule.kind=inverse_sqrt schedule.warmup_steps=0",
        "spikes.rollbacks=2",
        "checkpoint.keep_every=1500",
    ):
        assert_refused("roberta_base", settings)
    for marks in ("many", "5..1/1", "1..1e9/1", "1e6..2e6"):
        assert_refused("roberta_base", f"checkpoint.at_words={marks}", keeps=False)


def test_a_reporter_is_named_once() -> None:
    (problem,) = problems("roberta_base", 'logging.to=["wandb","board","wandb"]')
    assert problem.startswith('logging.to=["wandb", "board", "wandb"] may name each of tensorboard')
    assert problem.endswith("add --set 'logging.to=[\"wandb\"]'")


@pytest.mark.parametrize("path", ["encoder.heads", "encoder.groups", "checkpoint.every"])
def test_a_divisor_of_zero_is_out_of_range(path: str) -> None:
    (problem,) = problems("roberta_base", f"{path}=0", "checkpoint.keep_every=1000")
    assert problem.startswith(f"{path}=0 is out of range")


@pytest.mark.parametrize(("keep_every", "most"), [(0, 4), (2_000, 9)])
def test_checkpoints_that_are_kept_at_most(keep_every: int, most: int) -> None:
    """The newest three, the one being written, and those that are never deleted."""
    changes = ["checkpoint.keep=3", f"checkpoint.keep_every={keep_every}"]
    assert override(RUN, changes).checkpoint.most_kept(11_000) == most
    marked = override(RUN, [*changes, "checkpoint.at_words=1e6..10e6/1e6 20e6..100e6/10e6"])
    assert marked.checkpoint.most_kept(11_000) == most + 19
    assert marked.checkpoint.word_marks()[8:11] == [9_000_000, 10_000_000, 20_000_000]
