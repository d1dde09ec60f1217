"""Arms become runs of equal conditions; equal seeds start with the weights that are said."""

from pathlib import Path

import pytest
import torch

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.experiments.ablation import (
    Ablation,
    initial_weights,
    make_arms,
    split_phases,
)
from pipeline.experiments.arms import arms_from_arguments
from pipeline.planning.build import build_model
from pipeline.planning.schedule import with_steps
from pipeline.recipes import recipe

PHASES = 'phases=[{"steps": 600, "sequence_length": 16, "sequences": 128}]'


def ablation(tmp_path: Path, seeds: int = 2, arms: str = "one two") -> Ablation:
    table = arms_from_arguments("roberta_tiny", [(name, []) for name in arms.split()])
    return Ablation(
        table=table, arms=make_arms(table, [], 0), seeds=seeds, tune=False, grammar=None,
        inputs=("--corpus", "sample"), output=tmp_path,
    )  # fmt: skip


def test_jobs_are_seed_by_seed_and_the_baseline_has_others(tmp_path: Path) -> None:
    names = [job.name for job in ablation(tmp_path).jobs()]
    assert names == ["one:0", "two:0", "one:1", "two:1", "one:2", "one:3"]
    assert len({ablation(tmp_path).directory(job) for job in ablation(tmp_path).jobs()}) == 6


def test_all_arms_have_the_common_settings_and_their_own() -> None:
    """But may not hold out other documents."""
    given = [("one", []), ("two", ["encoder.layers=3"]), ("three", [])]
    table = arms_from_arguments("roberta_tiny", given)
    one, two, three = make_arms(table, ["encoder.layers=1", "encoder.heads=2"], 40)
    assert [arm.run.encoder.layers for arm in (one, two, three)] == [1, 3, 1]
    assert {arm.run.encoder.heads for arm in (one, two, three)} == {2}
    assert {(arm.run.steps, arm.run.validation.every) for arm in (one, two)} == {(40, 4)}
    given = [("one", []), ("two", ["data.validation_fraction=0.1"])]
    table = arms_from_arguments("roberta_tiny", given)
    with pytest.raises(ConfigError, match=r"data.validation_fraction .* 0.1"):
        make_arms(table, [], 0)


def test_a_shorter_run_keeps_its_shape() -> None:
    base = override(recipe("roberta_tiny"), [PHASES, "batch.warmup_steps=300"])
    short = with_steps(base, base.steps // 6)
    assert short.steps == 400 and short.phases[0].steps == 100 and short.batch.warmup_steps == 50
    assert short.schedule.warmup_steps == round(base.schedule.warmup_steps / 6)
    assert short.optimizer == base.optimizer
    assert [part.data.sequence_length for part in split_phases(short)] == [16, 32]


@pytest.mark.parametrize(
    ("name", "changes", "common"),
    [
        ("roberta_tiny", ["optimizer.peak_lr=0.1", "encoder.dropout=0.2"], "all"),
        ("bert_tiny", ["objective.kind=mlm", "data.segments.label=none"], "encoder"),
        ("bert_tiny", ["data.format=sentence_pair"], "all"),
        ("electra_tiny", ["objective.kind=rtd_masked"], "encoder"),
        ("electra_tiny", ["objective.generator.layers=1"], "encoder"),
        ("albert_tiny", ["encoder.sharing=none"], "none"),
        ("roberta_tiny", ["encoder.layers=3"], "none"),
        ("spanbert_tiny", ["objective.kind=mlm"], "encoder"),
    ],
)
def test_equal_seeds_start_with_the_weights_that_are_said(
    name: str, changes: list[str], common: str
) -> None:
    """To the bit, and not only by shape."""
    base = recipe(name)
    arm = override(base, changes)
    assert initial_weights(arm, base) == common
    mine, theirs, other = (
        build_model(run, seed).state_dict() for run, seed in ((arm, 3), (base, 3), (base, 4))
    )
    encoder = [key for key in mine if key.startswith("encoder.")]
    equal = {key: key in theirs and torch.equal(mine[key], theirs[key]) for key in mine}
    if common == "all":
        assert all(equal.values()) and mine.keys() == theirs.keys()
    elif common == "encoder":
        assert all(equal[key] for key in encoder)
    else:
        assert not all(equal[key] for key in encoder) or mine.keys() != theirs.keys()
    assert not torch.equal(other[encoder[0]], theirs[encoder[0]])
