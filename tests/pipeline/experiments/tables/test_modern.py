from dataclasses import replace

import pytest

from model.hugging_face.families import changes_to_fit
from pipeline.experiments.arms import SCALES
from pipeline.experiments.tables.modern import architecture
from pipeline.experiments.tables.table import run_of
from pipeline.planning.phase_plan import encoder_config, parameters_of
from pipeline.recipes import recipe
from tests.pipeline.experiments.differences import values


@pytest.mark.parametrize("scale", SCALES)
def test_each_arm_makes_one_choice(scale: str) -> None:
    found = values(architecture(scale))
    baseline = found["roberta"]
    changed = {
        arm: {name for name, value in own.items() if value != baseline[name]}
        for arm, own in found.items()
    }
    rotary = {"encoder.position_kind", "encoder.position_offset"}
    if baseline["encoder.initializer"] != "normal":
        rotary |= {"encoder.initializer"}
    assert changed == {
        "roberta": set(),
        "pre-norm": {"encoder.norm"},
        "no-biases": {"encoder.biases"},
        "rotary": rotary,
        "gated": {"encoder.gated", "encoder.feed_forward"},
        "windows": rotary | {"encoder.window", "encoder.global_every"},
        "modernbert": set(baseline),
    }


def test_the_last_arm_is_the_familys_recipe_and_no_class_holds_the_single_choices() -> None:
    mini, arms = recipe("modernbert_mini"), architecture("mini").arms
    found = run_of(next(arm for arm in arms if arm.name == "modernbert")).encoder
    same = replace(mini.encoder, dropout_places=found.dropout_places)  # it has no dropout
    assert found == same
    for arm in arms:
        run = run_of(arm)
        fits = any(not changes for changes in changes_to_fit(encoder_config(run), False).values())
        assert fits == (arm.name in ("roberta", "modernbert"))
        assert not run.checkpoint.exportable


def test_gated_layers_have_as_many_parameters() -> None:
    counts = {arm.name: parameters_of(run_of(arm)) for arm in architecture("base").arms}
    assert counts["gated"] == pytest.approx(counts["roberta"], rel=1e-3)
