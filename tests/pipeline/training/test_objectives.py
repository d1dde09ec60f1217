from __future__ import annotations

from typing import get_args, get_type_hints

from pipeline.recipes import recipe
from pipeline.run import Objective
from pipeline.training.objectives import OBJECTIVES, build_model
from pipeline.training.plan import encoder_config


def test_every_kind_has_an_objective() -> None:
    assert set(OBJECTIVES) == set(get_args(get_type_hints(Objective)["kind"]))


def test_a_run_has_the_parts_of_its_kind() -> None:
    run = recipe("roberta_tiny")
    model = build_model(run, seed=0)
    assert [(part.name, part.weight) for part in model.parts] == [("mlm", 1.0)]
    assert model.config == encoder_config(run)
