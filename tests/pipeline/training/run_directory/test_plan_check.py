import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.costs.site_rates import read_site
from pipeline.costs.training_time import work_flops
from pipeline.reporting.run_summary import read_run
from pipeline.training.run_directory import plan_check
from pipeline.training.run_directory.plan_check import MEASURED_STEPS, PlanCheck
from pipeline.training.run_directory.run_status import PLAN
from tests.pipeline.costs.planned import planned

BYTES = ("weights_bytes", "moments_bytes")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that a test moves."""
    found = SimpleNamespace(now=0.0)
    found.perf_counter = lambda: found.now
    monkeypatch.setattr(plan_check, "time", found)
    return found


def check(output: Path, steps: int = 2400) -> tuple[PlanCheck, Any, list[str]]:
    """A check of roberta_tiny on one rank, its phase, and what it tells."""
    planning = planned("roberta_tiny", f"steps={steps}", "schedule.warmup_steps=1", tokens=10**7)
    (phase,) = planning.phases(planning.hardware)
    told: list[str] = []
    engine: Any = SimpleNamespace(
        stage=1, module=torch.nn.Linear(10, 10, bias=False), optimizer=SimpleNamespace(state={})
    )
    record: Any = SimpleNamespace(run=planning.run, versions={"torch": "2"})
    made = PlanCheck(
        output=output, record=record, file=planning.file, engine=engine,
        device=torch.device("cpu"), nodes=1, usable=2, tell=told.append,
    )  # fmt: skip
    return made, phase, told


def test_runs_compare_what_they_hold_with_what_was_computed(trained: Path) -> None:
    """Of real ranks under DeepSpeed, at several stages; the times are of a busy machine."""
    for name in ("1x16", "2x8", "2x3-zero0", "2x4-zero3", "phased-exact"):
        found = json.loads((trained / name / PLAN).read_text())
        for part in BYTES if "zero3" not in name else BYTES[1:]:
            assert found[part]["measured"] == pytest.approx(found[part]["predicted"], rel=0.01)
        speed, seconds = found["sequences_per_second"], found["seconds_per_step"]
        assert 0 < seconds["measured"] < 60 and seconds["predicted"] > 0
        assert speed["measured"] * seconds["measured"] == pytest.approx(16)
        assert read_run(trained / name).plan == found


def advance(
    clock: Any, made: PlanCheck, phase: Any, steps: int, seconds: float = 2.0, sequences: int = 64
) -> None:
    for number in range(1, steps + 1):
        clock.now += seconds
        made.step(phase, number, sequences)


def test_the_median_of_steps_after_the_first_counts(tmp_path: Path, clock: Any) -> None:
    made, phase, told = check(tmp_path)
    for number in range(1, MEASURED_STEPS + 1):
        assert not (tmp_path / PLAN).exists()
        clock.now += 9.0 if number < 11 else 30.0 if number % 10 == 0 else 0.5
        made.step(phase, number, 64)
    content = (tmp_path / PLAN).read_bytes()
    found = json.loads(content)
    assert found["seconds_per_step"]["measured"] == 0.5  # without compiling and validations
    assert found["sequences_per_second"]["measured"] == 128
    assert found["weights_bytes"]["measured"] == 400 and told == []
    clock.now += 100
    made.step(phase, MEASURED_STEPS + 1, 64)
    assert (tmp_path / PLAN).read_bytes() == content


def test_another_phase_starts_again(tmp_path: Path, clock: Any) -> None:
    made, phase, _ = check(tmp_path)
    advance(clock, made, phase, MEASURED_STEPS - 1)
    made.step(check(tmp_path)[1], MEASURED_STEPS, 64)
    assert not (tmp_path / PLAN).exists() and len(made.ends) == 1


def test_a_short_run_compares_at_its_end_and_a_batch_that_still_grows_is_scaled(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives the site no rate."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    made, phase, told = check(tmp_path, steps=3)
    advance(clock, made, phase, 3, seconds=1.0, sequences=32)
    found = json.loads((tmp_path / PLAN).read_text())
    assert found["seconds_per_step"]["measured"] == 2.0  # of 64
    assert not (tmp_path / "site.json").exists() and not told


def test_the_sites_next_plan_expects_what_was_measured(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    predicted = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        made, phase, told = check(tmp_path / run, steps=4)
        made.usable = 1
        advance(clock, made, phase, 4)
        content = json.loads((tmp_path / run / PLAN).read_text())
        predicted.append(content["seconds_per_step"]["predicted"])
    assert predicted[0] != 2.0 and predicted[1] == pytest.approx(2.0) and told == []
    rates = read_site(tmp_path / "site.json").find("roberta_tiny", "cpu", "fp32")
    assert [rate.step_seconds for rate in rates] == [2.0, 2.0]
    assert rates[0].flops == work_flops(phase.run, phase.plan, False) / 2.0


def test_neither_a_disk_that_refuses_nor_a_forecast_that_raises_ends_a_run(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, phase, told = check(tmp_path / "missing", steps=2)
    advance(clock, made, phase, 2)
    assert len(told) == 1 and told[0].startswith("warning: no plan.json")
    made, phase, told = check(tmp_path, steps=4)
    monkeypatch.setattr(plan_check, "step_parts", lambda *_: 1 / 0)
    advance(clock, made, phase, 4)
    assert made.is_done and "ZeroDivisionError" not in told[0] and "division by zero" in told[0]


def test_a_later_life_keeps_the_first_comparison(trained: Path) -> None:
    """And no bit of a run depends on it: test_train.py compares these runs."""
    runs = trained / "1x6-resumed", trained / "1x6-dropout"
    kept, made = (json.loads((run / PLAN).read_text()) for run in runs)
    assert kept == {} != made
