from __future__ import annotations

import pytest

from pipeline.base.errors import ConfigError
from pipeline.costs.cost_plan import make_cost_plan
from pipeline.costs.estimate import Estimate
from pipeline.costs.report import CostPlan
from tests.pipeline.costs.planned import planned


def sections(plan: CostPlan) -> dict[str, dict[str, Estimate]]:
    return {
        section.title: {part.name: part for part in section.estimates} for section in plan.sections
    }


def test_a_plan_has_every_section_and_warns_of_what_cannot_be() -> None:
    job = planned("roberta_large", "batch.per_device=4096", gpu="a100", per_node=1)
    plan = make_cost_plan(job, 2.0, ["from the data"])
    found = sections(plan)
    assert list(found) == [
        "memory", "step", "traffic", "time", "efficiency", "data", "disk", "preparation",
    ]  # fmt: skip
    assert plan.warnings[0] == "from the data"
    most = found["memory"]["largest batch.per_device"].value
    assert any(f"add --set batch.per_device={most:.0f}" in line for line in plan.warnings)
    assert {"hours", "GPU-hours", "cost", "energy"} == set(found["time"])
    assert found["step"]["step"].basis == "published"
    fits = planned("roberta_large", f"batch.per_device={most:.0f}", gpu="a100", per_node=1)
    assert make_cost_plan(fits, 2.0, []).warnings == []


def test_a_stage_that_runs_as_another_is_listed_once() -> None:
    job = planned("roberta_base", gpu="h100", stage=0)
    names = list(sections(make_cost_plan(job, 0.0, []))["memory"])
    sums = [name for name in names if name.startswith("sum")]
    assert sums == ["sum at stage 1 (this plan)", "sum at stage 2", "sum at stage 3"]


def test_offload_has_a_section_for_the_host() -> None:
    job = planned("roberta_large", gpu="h100", ds="zero2_offload")
    plan = make_cost_plan(job, 0.0, [])
    found = sections(plan)
    parts = [part.value for name, part in found["host"].items() if name != "sum per node"]
    assert found["host"]["sum per node"].value == 8 * sum(parts)
    assert "offloaded, on 2 cores per node" in found["step"]["optimizer update"].assumption
    names = [name for name in found["memory"] if name.endswith("(this plan)")]
    assert names == ["sum at stage 2 (this plan)"]
    assert "zero2_offload" in found["memory"][names[0]].assumption and not plan.warnings
    assert "host" not in sections(make_cost_plan(planned("roberta_large", gpu="h100"), 0.0, []))


def test_phases_have_a_step_each() -> None:
    job = planned("bert_base_published", gpu="h100", tokens=4 * 10**9)
    plan = make_cost_plan(job, 0.0, [])
    found = sections(plan)
    assert found["step 1"]["step"].value < found["step 2"]["step"].value
    assert len(plan.plans) == 2 and "cost" not in found["time"]


def test_a_batch_smaller_than_the_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="smaller than the 128 ranks"):
        make_cost_plan(planned("roberta_tiny", gpu="h100", nodes=16), 0.0, [])
