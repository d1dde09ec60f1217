"""Curves become steps to a loss; the statistics are those of the runs; ten seeds bootstrap."""

from __future__ import annotations

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
from pipeline.experiments.measures import RESULT, SEQUENCES, diverged_result, sequence_losses
from pipeline.experiments.results import collect, steps_to, target_loss
from pipeline.experiments.runner import AblationRunner
from pipeline.experiments.significance import visible_effect
from tests.pipeline.experiments.small_ablation import finished_result
from tests.pipeline.experiments.test_ablation import ablation

SEQUENCE_COUNT = 40


def write_results(ablation: Ablation, effect: float, seed: int = 0) -> None:
    """Runs whose arm `two` is better by `effect`; its seeds' differences have a spread of .05."""
    rng = np.random.default_rng(seed)
    common = rng.normal(4, 0.2, 2 * ablation.seeds)
    for job in ablation.jobs():
        loss = float(common[job.seed])
        if job.arm is not ablation.baseline:
            loss += float(rng.normal(-effect, 0.05))
        directory = ablation.directory(job)
        directory.mkdir(parents=True)
        counts = np.arange(SEQUENCE_COUNT) % 7 + 2
        losses = loss * counts
        (directory / SEQUENCES).write_text(
            json.dumps({"mask_loss": losses.tolist(), "mask_count": counts.tolist()})
        )
        (directory / RESULT).write_text(json.dumps(finished_result(job, loss)))


def collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path, seeds: int, effect: float
) -> dict[str, Any]:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = ablation(tmp_path, seeds)
    write_results(given, effect)
    path = collect(AblationRunner(given, Children()))
    assert path is not None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def with_diverged(given: Ablation, names: Sequence[str], effect: float = 0.3) -> dict[str, Any]:
    """The table if the runs of these names diverged."""
    write_results(given, effect)
    for job in given.jobs():
        if job.name in names:
            result = diverged_result(job, 0.1, f"{job.name} was not finite")
            (given.directory(job) / RESULT).write_text(json.dumps(result))
            (given.directory(job) / SEQUENCES).unlink()
    path = collect(AblationRunner(given, Children()))
    assert path is not None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_an_effect_and_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    for effect in (0.3, 0.0):
        found = collected(tmp_path / str(effect), monkeypatch, prepared, 5, effect)
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


def test_p_values_are_corrected_for_the_number_of_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = ablation(tmp_path, 5, "one two three four")
    write_results(given, 0.05)
    path = collect(AblationRunner(given, Children()))
    assert path is not None
    arms = json.loads(path.read_text())["arms"][1:]
    rows = sorted((arm["differences"]["mask_loss"] for arm in arms), key=lambda row: row["p"])
    assert rows[0]["p_holm"] == pytest.approx(min(1, 3 * rows[0]["p"]))
    assert rows[2]["p_holm"] >= rows[1]["p_holm"] >= 2 * rows[1]["p"]
    assert all(row["significant"] == (row["p_holm"] <= 0.05) for row in rows)


def test_without_a_head_in_the_baseline_pairs_are_compared_with_the_first_arm_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    """As in albert/pair; other measures that the baseline lacks have no differences."""
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = ablation(tmp_path, 5, "none nsp sop")
    write_results(given, 0.1)
    rng = np.random.default_rng(1)
    accuracies: dict[str, list[float]] = {"nsp": [], "sop": []}
    for job in given.jobs():
        path = given.directory(job) / RESULT
        found = json.loads(path.read_text())
        if job.arm.name == "none":
            found["missing"] = {"pair_accuracy/order": "no head for pairs", "grammar": "why"}
        else:
            value = float(rng.normal(0.9 if job.arm.name == "sop" else 0.5, 0.01))
            accuracies[job.arm.name].append(value)
            found["measures"] |= {"pair_accuracy/order": value, "grammar": 0.5}
        path.write_text(json.dumps(found))
    path = collect(AblationRunner(given, Children()))
    assert path is not None
    table = json.loads(path.read_text())
    none, nsp, sop = table["arms"]
    assert table["references"] == {"pair_accuracy/order": "nsp"}
    assert "pair_accuracy/order" not in none["differences"] | nsp["differences"]
    row = sop["differences"]["pair_accuracy/order"]
    expected = stats.ttest_rel(accuracies["sop"], accuracies["nsp"])
    assert row["p"] == row["p_holm"] == pytest.approx(expected.pvalue) and row["significant"]
    assert row["mean"] == pytest.approx(np.mean(accuracies["sop"]) - np.mean(accuracies["nsp"]))
    assert row["visible"] / row["standard_deviation"] == pytest.approx(visible_effect(5, 1))
    assert "grammar" not in sop["differences"] and "pair_accuracy/order" not in table["noise"]
    loss = sop["differences"]["mask_loss"]
    assert loss["visible"] / loss["standard_deviation"] == pytest.approx(visible_effect(5, 2))


def test_steps_to_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path) -> None:
    found = collected(tmp_path, monkeypatch, prepared, 5, 0.3)
    one = [run for run in found["runs"] if run["arm"] == "one" and run["seed"] < 5]
    assert found["target_loss"] == max(run["curve"][3][1] for run in one)
    two = next(run for run in found["runs"] if run["arm"] == "two")
    steps = two["measures"].get("steps_to_loss")
    assert steps == steps_to(two["curve"], found["target_loss"])


def test_a_line_between_two_validations() -> None:
    curve = [[10, 5.0], [20, 4.0], [30, 4.5], [40, 3.0]]
    assert steps_to(curve, 4.25) == 17.5
    assert steps_to(curve, 5.5) == 10
    assert steps_to(curve, 2.0) is None
    assert target_loss([curve, [[10, 6.0], [20, 5.0], [40, 1.0]]]) == 5.0
    assert target_loss([[[10, 5.0]]]) is None


def test_ten_seeds_bootstrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    found = collected(tmp_path, monkeypatch, prepared, 10, 0.3)
    row = found["arms"][1]["differences"]["mask_loss"]
    low, high = row["bootstrap"]["low"], row["bootstrap"]["high"]
    assert low < row["mean"] < high < 0
    # every sequence has the run's loss here, so only seeds vary: near the t interval
    assert (low, high) == pytest.approx((row["low"], row["high"]), abs=0.03)


def test_one_seed_has_no_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    found = collected(tmp_path, monkeypatch, prepared, 1, 0.3)
    assert not found["noise"] and not found["arms"][1]["differences"]


def test_seeds_that_finished_in_both_arms_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = ablation(tmp_path, 6, "one two three")
    found = with_diverged(given, ["one:1", "two:4", "two:1", "one:8"])
    one, two, three = found["arms"]
    assert (one["finished"], two["finished"]) == ([0, 2, 3, 4, 5], [0, 2, 3, 5])
    assert three["finished"] == [*range(6)] and not three["diverged"]
    assert two["diverged"] == [
        {"seed": 1, "why": "two:1 was not finite"}, {"seed": 4, "why": "two:4 was not finite"},
    ]  # fmt: skip
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


def test_where_fewer_than_two_seeds_finished_in_both_arms_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    lost = ["two:1", "two:2", "three:0", "three:1", "three:2", "one:4", "one:5"]
    given = ablation(tmp_path, 3, "one two three four")
    found = with_diverged(given, lost)
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
    all_lost = with_diverged(ablation(tmp_path / "all", 3), ["one:0", "one:1", "one:2"])
    _, two = all_lost["arms"]
    assert not two["differences"] and all_lost["target_loss"] is None
    assert two["measures"]["mask_loss"]["n"] == 3


def test_ten_pairs_of_seeds_bootstrap_without_those_that_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    for seeds, bootstraps in ((11, True), (10, False)):
        row = with_diverged(ablation(tmp_path / str(seeds), seeds), ["two:3"])["arms"][1]
        assert ("bootstrap" in row["differences"]["mask_loss"]) == bootstraps


def test_runs_are_scored_on_the_same_minimal_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = ablation(tmp_path)
    write_results(given, 0.3)
    for number, job in enumerate(given.jobs()[1:]):
        found = finished_result(job, 4.0, pairs="ab" if number < 2 else None)
        (given.directory(job) / RESULT).write_text(json.dumps(found))
    runner = AblationRunner(given, Children())
    assert collect(runner)
    last = given.jobs()[-1]
    (given.directory(last) / RESULT).write_text(json.dumps(finished_result(last, 4.0, pairs="c")))
    with pytest.raises(DataError, match=r"one/seed-3/result.json has scores of other .* two:0"):
        collect(runner)


def test_a_run_that_diverged_while_a_rate_was_chosen_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path
) -> None:
    monkeypatch.setattr(results, "held_out", lambda *_: prepared)
    given = replace(ablation(tmp_path), tune=True)
    write_results(given, 0.3)
    runner = AblationRunner(given, Children())
    for arm in given.arms:
        for job in runner.tuning_jobs(arm):
            given.directory(job).mkdir()
            lost = arm.name == "two" and job.factor != 1
            found = diverged_result(job, 0.1, "not finite") if lost else finished_result(job, 4.0)
            (given.directory(job) / RESULT).write_text(json.dumps(found))
    path = collect(runner)
    assert path is not None
    one, two = json.loads(path.read_text())["arms"]
    assert [point["error"] for point in one["tuning"]] == [""] * 3
    assert [point["error"] for point in two["tuning"]] == ["not finite", "", "not finite"]


@pytest.mark.parametrize("content", ["", "{}", '{"mask_loss": [1.0], "mask_count": []}',
                                     '{"mask_loss": [NaN], "mask_count": [1.0]}'])  # fmt: skip
def test_damaged_losses_of_sequences_are_said(tmp_path: Path, content: str) -> None:
    (tmp_path / SEQUENCES).write_text(content)
    with pytest.raises(DataError, match=r"sequences\.json is damaged: .*; remove .*result\.json"):
        sequence_losses(tmp_path)


def test_without_all_results_nothing_is_written(tmp_path: Path) -> None:
    given = ablation(tmp_path, 2)
    write_results(given, 0.1)
    (given.directory(given.jobs()[3]) / RESULT).unlink()
    assert collect(AblationRunner(given, Children())) is None
    assert not (tmp_path / "ablation.json").exists()
