"""Curves become steps to a loss; the statistics are those of the runs; ten seeds bootstrap."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipeline.base.errors import DataError
from pipeline.experiments import results
from pipeline.experiments.ablation import Ablation
from pipeline.experiments.children import Children
from pipeline.experiments.measures import RESULT, SEQUENCES, diverged_result
from pipeline.experiments.results import collect, steps_to, target_loss
from pipeline.experiments.runner import AblationRunner
from pipeline.experiments.significance import visible_effect
from tests.pipeline.experiments.small_ablation import finished_result, save_result
from tests.pipeline.experiments.test_ablation import ablation


@pytest.fixture(autouse=True)
def shards(monkeypatch: pytest.MonkeyPatch, prepared: Path) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)


def write_results(given: Ablation, effect: float) -> None:
    """Runs whose arm `two` is better by `effect`; its seeds' differences have a spread of .05."""
    rng = np.random.default_rng(0)
    common = rng.normal(4, 0.2, 2 * given.seeds)
    for job in given.jobs():
        loss = float(common[job.seed])
        if job.arm is not given.baseline:
            loss += float(rng.normal(-effect, 0.05))
        save_result(given, job, finished_result(job, loss))
        counts = np.arange(40) % 7 + 2
        losses = {"mask_loss": (loss * counts).tolist(), "mask_count": counts.tolist()}
        (given.directory(job) / SEQUENCES).write_text(json.dumps(losses))


def collected(given: Ablation) -> dict[str, Any]:
    path = collect(AblationRunner(given, Children()))
    assert path is not None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def table(given: Ablation, effect: float = 0.3, diverged: Sequence[str] = ()) -> dict[str, Any]:
    """The table if the runs of these names diverged."""
    write_results(given, effect)
    for job in given.jobs():
        if job.name in diverged:
            save_result(given, job, diverged_result(job, 0.1, f"{job.name} was not finite"))
            (given.directory(job) / SEQUENCES).unlink()
    return collected(given)


def test_an_effect_and_none_and_the_steps_to_a_loss_between_two_validations(tmp_path: Path) -> None:
    for effect in (0.3, 0.0):
        found = table(ablation(tmp_path / str(effect), 5), effect)
        one, two = found["arms"]
        values = [arm["measures"]["mask_loss"]["values"] for arm in (two, one)]
        row = two["differences"]["mask_loss"]
        expected = stats.ttest_rel(*values)
        assert row["p"] == row["p_holm"] == pytest.approx(expected.pvalue)
        interval = expected.confidence_interval()
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert row["significant"] == (effect > 0)
        noise = found["noise"]["mask_loss"]
        assert abs(noise["mean"]) < noise["visible"] and "p_holm" not in noise
        assert noise["visible"] > 2 * row["visible"]  # pairs of seeds share what the seed does
        assert "bootstrap" not in row
        runs = [run for run in found["runs"] if run["arm"] == "one" and run["seed"] < 5]
        assert found["target_loss"] == max(run["curve"][3][1] for run in runs)
        run = next(run for run in found["runs"] if run["arm"] == "two")
        steps = run["measures"].get("steps_to_loss")
        assert steps == steps_to(run["curve"], found["target_loss"])
    curve = [[10, 5.0], [20, 4.0], [30, 4.5], [40, 3.0]]
    assert [steps_to(curve, loss) for loss in (4.25, 5.5, 2.0)] == [17.5, 10, None]
    assert target_loss([curve, [[10, 6.0], [20, 5.0], [40, 1.0]]]) == 5.0
    assert target_loss([[[10, 5.0]]]) is None


def test_p_values_are_corrected_for_the_number_of_arms(tmp_path: Path) -> None:
    arms = table(ablation(tmp_path, 5, "one two three four"), 0.05)["arms"][1:]
    rows = sorted((arm["differences"]["mask_loss"] for arm in arms), key=lambda row: row["p"])
    assert rows[0]["p_holm"] == pytest.approx(min(1, 3 * rows[0]["p"]))
    assert rows[2]["p_holm"] >= rows[1]["p_holm"] >= 2 * rows[1]["p"]
    assert all(row["significant"] == (row["p_holm"] <= 0.05) for row in rows)


def test_pairs_are_compared_with_the_first_arm_that_has_a_head_for_them(
    tmp_path: Path,
) -> None:
    """As in albert/pair; other measures that the baseline lacks have no differences."""
    given = ablation(tmp_path, 5, "none nsp sop")
    write_results(given, 0.1)
    rng = np.random.default_rng(1)
    accuracies: dict[str, list[float]] = {"nsp": [], "sop": []}
    for job in given.jobs():
        result = json.loads((given.directory(job) / RESULT).read_text())
        if job.arm.name == "none":
            result["missing"] = {"pair_accuracy/order": "no head for pairs", "grammar": "why"}
        else:
            value = float(rng.normal(0.9 if job.arm.name == "sop" else 0.5, 0.01))
            accuracies[job.arm.name].append(value)
            result["measures"] |= {"pair_accuracy/order": value, "grammar": 0.5}
        save_result(given, job, result)
    found = collected(given)
    none, nsp, sop = found["arms"]
    assert found["references"] == {"pair_accuracy/order": "nsp"}
    assert "pair_accuracy/order" not in none["differences"] | nsp["differences"]
    row = sop["differences"]["pair_accuracy/order"]
    expected = stats.ttest_rel(accuracies["sop"], accuracies["nsp"])
    assert row["p"] == row["p_holm"] == pytest.approx(expected.pvalue) and row["significant"]
    assert row["mean"] == pytest.approx(np.mean(accuracies["sop"]) - np.mean(accuracies["nsp"]))
    assert row["visible"] / row["standard_deviation"] == pytest.approx(visible_effect(5, 1))
    assert "grammar" not in sop["differences"] and "pair_accuracy/order" not in found["noise"]
    loss = sop["differences"]["mask_loss"]
    assert loss["visible"] / loss["standard_deviation"] == pytest.approx(visible_effect(5, 2))


def test_ten_seeds_that_finished_bootstrap_and_one_has_no_difference(
    tmp_path: Path,
) -> None:
    for seeds, diverged, bootstraps in (
        (10, (), True),
        (11, ["two:3"], True),
        (10, ["two:3"], False),
    ):
        given = ablation(tmp_path / f"{seeds}-{bootstraps}", seeds)
        row = table(given, diverged=diverged)["arms"][1]["differences"]["mask_loss"]
        assert ("bootstrap" in row) == bootstraps
        if not diverged:
            low, high = row["bootstrap"]["low"], row["bootstrap"]["high"]
            assert low < row["mean"] < high < 0
            # every sequence has the run's loss here, so only seeds vary: near the t interval
            assert (low, high) == pytest.approx((row["low"], row["high"]), abs=0.03)
    found = table(ablation(tmp_path / "one", 1))
    assert not found["noise"] and not found["arms"][1]["differences"]


def test_seeds_that_finished_in_both_arms_are_compared(tmp_path: Path) -> None:
    given = ablation(tmp_path, 6, "one two three")
    found = table(given, diverged=["one:1", "two:4", "two:1", "one:8"])
    one, two, three = found["arms"]
    assert (one["finished"], two["finished"]) == ([0, 2, 3, 4, 5], [0, 2, 3, 5])
    assert three["finished"] == [*range(6)] and not three["diverged"]
    assert two["diverged"] == [{"seed": s, "why": f"two:{s} was not finite"} for s in (1, 4)]
    assert [each["seed"] for each in one["diverged"]] == [1, 8]
    losses = {(run["arm"], run["seed"]): run["measures"].get("mask_loss") for run in found["runs"]}
    assert losses["two", 4] is None and len(losses) == len(given.jobs())
    for arm, seeds in ((two, [0, 2, 3, 5]), (three, [0, 2, 3, 4, 5])):
        row = arm["differences"]["mask_loss"]
        sides = [[losses[name, seed] for seed in seeds] for name in (arm["name"], "one")]
        assert row["p"] == pytest.approx(stats.ttest_rel(*sides).pvalue)
        assert row["seeds"] == len(seeds) and row["biased"]
        assert row["p_holm"] >= row["p"]
    assert one["measures"]["mask_loss"]["values"] == [losses["one", s] for s in one["finished"]]
    noise = found["noise"]["mask_loss"]  # seeds 1 and 8 = 6 + 2 are lost
    others = [losses["one", 6 + seed] - losses["one", seed] for seed in (0, 3, 4, 5)]
    assert noise["mean"] == pytest.approx(np.mean(others)) and noise["biased"]


def test_where_fewer_than_two_seeds_finished_in_both_arms_it_is_said(tmp_path: Path) -> None:
    lost = ["two:1", "two:2", "three:0", "three:1", "three:2", "one:4", "one:5"]
    found = table(ablation(tmp_path, 3, "one two three four"), diverged=lost)
    _, two, three, four = found["arms"]
    assert not two["differences"] and not three["differences"] and not found["noise"]
    why = "seeds that finished in it and in one: 1 of 3; a comparison needs 2"
    assert two["not_compared"]["mask_loss"] == why
    assert (three["finished"], three["measures"], three["cost"]) == ([], {}, {})
    assert three["missing"]["mask_loss"] == "every run diverged" and three["peak_lr"] == 0.1
    row = four["differences"]["mask_loss"]
    assert not row["biased"] and row["p_holm"] == row["p"]  # the only one that is compared
    assert row["visible"] / row["standard_deviation"] == pytest.approx(visible_effect(3, 1))
    assert found["equal_tokens"]
    all_lost = table(ablation(tmp_path / "all", 3), diverged=["one:0", "one:1", "one:2"])
    _, two = all_lost["arms"]
    assert not two["differences"] and all_lost["target_loss"] is None
    assert two["measures"]["mask_loss"]["n"] == 3


@pytest.mark.parametrize(("tokens", "equal"), [(1009, True), (1020, False)])
def test_arms_that_read_as_many_tokens_may_differ_by_a_percent(
    tokens: int, equal: bool, tmp_path: Path
) -> None:
    given = ablation(tmp_path)
    write_results(given, 0.3)
    for job in given.jobs():
        if job.arm is not given.baseline:
            save_result(given, job, finished_result(job, 4.0, tokens=tokens))
    assert collected(given)["equal_tokens"] is equal


def test_runs_are_scored_on_the_same_minimal_pairs(tmp_path: Path) -> None:
    given = ablation(tmp_path)
    write_results(given, 0.3)
    for number, job in enumerate(given.jobs()[1:]):
        save_result(given, job, finished_result(job, 4.0, pairs="ab" if number < 2 else None))
    assert collected(given)
    save_result(given, job, finished_result(job, 4.0, pairs="c"))
    with pytest.raises(DataError, match=r"one/seed-3/result.json has .* two:0"):
        collected(given)


def test_a_run_that_diverged_while_a_rate_was_chosen_is_kept(tmp_path: Path) -> None:
    given = replace(ablation(tmp_path), tune=True)
    write_results(given, 0.3)
    for arm in given.arms:
        for job in AblationRunner(given, Children()).tuning_jobs(arm):
            lost = arm.name == "two" and job.factor != 1
            result = diverged_result(job, 0.1, "not finite") if lost else finished_result(job, 4.0)
            save_result(given, job, result)
    one, two = ([point["error"] for point in arm["tuning"]] for arm in collected(given)["arms"])
    assert (one, two) == ([""] * 3, ["not finite", "", "not finite"])


def test_without_all_results_nothing_is_written(tmp_path: Path) -> None:
    given = ablation(tmp_path, 2)
    write_results(given, 0.1)
    (given.directory(given.jobs()[3]) / RESULT).unlink()
    assert collect(AblationRunner(given, Children())) is None
    assert not (tmp_path / "ablation.json").exists()
