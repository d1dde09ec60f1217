"""Hours come from finished runs or from measured steps, and it is said which."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import EXIT_USER_ERROR, ConfigError
from pipeline.config.run import Run
from pipeline.experiments import ablation_estimate as module
from pipeline.experiments.ablation import Ablation, make_arms
from pipeline.experiments.ablation_estimate import (
    check_arms,
    describe_arms,
    describe_costs,
    estimate_arms,
)
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.fine_tuning import score_file
from pipeline.experiments.measures import RESULT, diverged_result
from pipeline.experiments.runner import AblationRunner
from tests.pipeline.experiments.small_ablation import finished_result
from tests.pipeline.experiments.test_ablation import ablation


class Looking(Children):
    """Notes what is looked at, and refuses what has one of these words."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = refused
        self.seen: list[str] = []

    def run(self, words: Sequence[object], *others: Any, **options: Any) -> str:
        line = " ".join(map(str, words))
        self.seen.append(line)
        for word in self.refused:
            if word in line:
                raise ChildError(f"{word} is refused", EXIT_USER_ERROR)
        return ""


class TwoHours:
    """Times of a run that takes as long, whatever it is."""

    start, prepare, held_out = 60.0, 120.0, 10

    def of_run(self, run: Run, held_out: int, scorings: int) -> float:
        return 7200.0


def several(output: Path, *inputs: str) -> Ablation:
    """Arms one and two that read the same shards, and three that reads others."""
    arms = [("one", []), ("two", ["encoder.heads=4"]), ("three", ["data.sequence_length=16"])]
    table = arms_from_arguments("roberta_tiny", arms)
    made = make_arms(table, ["encoder.layers=1"], 0)
    return replace(ablation(output), table=table, arms=made, inputs=("--input", *inputs))


def test_what_each_arm_differs_in_is_told(tmp_path: Path) -> None:
    lines = [*describe_arms(several(tmp_path))]
    first, two, three = lines
    assert first.startswith("one, the baseline: roberta_tiny with encoder.layers=1, ")
    assert (two, three) == ("two: encoder.heads=4", "three: data.sequence_length=16")
    assert [*describe_arms(ablation(tmp_path))][1] == "two: no setting differs from one"


def test_all_arms_are_looked_at_before_any_is_prepared(tmp_path: Path) -> None:
    given, children = several(tmp_path, "a"), Looking()
    check_arms(AblationRunner(given, children), given.jobs())
    kinds = [line.split()[0] for line in children.seen]
    assert kinds == [f"pipeline.{name}" for name in ("prepare", "plan", "plan", "prepare", "plan")]
    assert all(" --output " not in line for line in children.seen)
    assert children.seen[0].startswith("pipeline.prepare --input a --run ")
    assert children.seen[0].endswith(" --dry-run") and " --tokens 1e9 --cpu" in children.seen[1]
    [of_one] = [job for job in given.jobs() if job.name == "three:0"]
    alone = Looking()
    check_arms(AblationRunner(given, alone), [of_one])
    assert alone.seen == children.seen[3:]


def test_urls_are_copied_before_a_dry_run(tmp_path: Path) -> None:
    given, children = several(tmp_path, "s3://bucket/a"), Looking()
    check_arms(AblationRunner(given, children), given.jobs())
    assert [line.split()[-1] for line in children.seen[:2]] == ["--fetch", "--dry-run"]


def test_an_arm_that_cannot_run_is_refused_with_the_others(tmp_path: Path) -> None:
    given = several(tmp_path, "a")
    children = Looking("full_sentences-32", "three.json")
    with pytest.raises(ConfigError, match="3 of 3 arms cannot run") as error:
        check_arms(AblationRunner(given, children), given.jobs())
    assert error.value.problems == (
        "one, two: full_sentences-32 is refused", "three: three.json is refused"
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"^two: two\.json is refused$"):
        check_arms(AblationRunner(given, Looking("two.json")), given.jobs())


def test_an_arm_whose_runs_have_begun_is_not_looked_at_again(tmp_path: Path) -> None:
    given, children = several(tmp_path, "a"), Looking("one.json", "three.json")
    for arm in ("one", "three"):
        (tmp_path / f"runs/{arm}/seed-0").mkdir(parents=True)
        (tmp_path / f"runs/{arm}/seed-0/run.json").touch()
    check_arms(AblationRunner(given, children), given.jobs())
    assert len(children.seen) == 2 and "two.json" in children.seen[1]


def test_finished_runs_are_taken_before_measured_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure_runs", lambda runs, _: [TwoHours()] * len(runs))
    given = ablation(tmp_path, 3)
    for job, seconds in zip(given.jobs()[:3:2], (10.0, 20.0), strict=True):  # one:0 and one:1
        given.directory(job).mkdir(parents=True)
        (given.directory(job) / RESULT).write_text(
            json.dumps(finished_result(job, 4.0, wall_seconds=seconds))
        )
    runner = AblationRunner(given, Children())
    one, two = estimate_arms(runner)
    assert (one.runs, one.done, one.seconds, one.left) == (6, 2, 15.0, 60.0)
    before = 3 * 60.0 + 120.0  # looks at the arm and its shards, and prepares them
    assert (two.runs, two.done, two.left) == (3, 0, 3 * 7200.0 + before)
    last_of_one = given.jobs()[4]  # one:2
    diverged = given.directory(last_of_one)
    diverged.mkdir(parents=True)
    (diverged / RESULT).write_text(json.dumps(finished_result(last_of_one, 4.0)))
    after = estimate_arms(runner)[0]
    assert (after.done, after.seconds, after.left) == (3, 15.0, 45.0)
    assert after.source == "recorded by 2 finished runs"
    first, _, second, last = describe_costs(runner, [one, two])
    assert first.startswith("9 runs (--task 0 to 8): 2 arms with 3 seeds, and 3 more of one")
    assert second.endswith("2 h each (measured here)")
    assert last == "6.1 h left if run one after another"
    mine = AblationRunner(replace(given, inputs=("--corpus", "mine")), Children())
    *_, last = describe_costs(mine, [one, two])
    assert last.endswith("are counted as for the sample corpus, until there are shards")
    tuned = AblationRunner(replace(given, tasks=(("mrpc", tmp_path),)), Children())
    *_, line, last = describe_costs(tuned, [one, two])
    assert line == "  mrpc: 9 runs to fine-tune, 0 done; not in the hours below, as none is done"
    score_file(given, given.jobs()[0], "mrpc").write_text(
        '{"score": 0.5, "seconds": 7200, "examples": {}}'
    )
    *_, line, last = describe_costs(tuned, [one, two])
    assert line == "  mrpc: 9 runs to fine-tune, 1 done; 2 h each" and last.startswith("22.1 h")
    score_file(given, given.jobs()[2], "mrpc").write_text(
        '{"score": null, "seconds": 0.0, "examples": {}}'
    )
    *_, line, last = describe_costs(tuned, [one, two])
    assert "2 done; 2 h each" in line and last.startswith("20.1 h left")
    found = diverged_result(last_of_one, 0.1, "not finite")
    (diverged / RESULT).write_text(json.dumps(found))  # nothing is left to fine-tune of it
    *_, line, last = describe_costs(tuned, [one, two])
    assert "mrpc: 8 runs to fine-tune, 2 done" in line and last.startswith("18.1 h left")
