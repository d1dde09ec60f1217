"""Hours come from finished runs or from measured steps, and it is said which."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.base.errors import EXIT_USER_ERROR, ConfigError
from pipeline.experiments import ablation_estimate as module
from pipeline.experiments.ablation import Ablation, make_arms
from pipeline.experiments.ablation_estimate import check_arms, describe_arms, describe_costs
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.measures import diverged_result
from pipeline.experiments.runner import AblationRunner
from tests.pipeline.experiments.small_ablation import finished_result, save_result, save_score
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


TWO_HOURS = SimpleNamespace(start=60.0, prepare=120.0, held_out=10, of_run=lambda *_, **__: 7200.0)
"""Times of a run that takes as long, whatever it is."""


def several(output: Path, *inputs: str) -> Ablation:
    """Arms one and two that read the same shards, and three that reads others."""
    arms = [("one", []), ("two", ["encoder.heads=4"]), ("three", ["data.sequence_length=16"])]
    table = arms_from_arguments("roberta_tiny", arms)
    made = make_arms(table, ["encoder.layers=1"], 0)
    return replace(ablation(output), table=table, arms=made, inputs=("--input", *inputs))


def look(given: Ablation, *refused: str, alone: str = "") -> list[str]:
    """What is looked at for all runs of an ablation, or for one."""
    children = Looking(*refused)
    jobs = [job for job in given.jobs() if alone in job.name]
    check_arms(AblationRunner(given, children), jobs)
    return children.seen


def test_what_each_arm_differs_in_is_told(tmp_path: Path) -> None:
    first, two, three = describe_arms(several(tmp_path))
    assert first.startswith("one, the baseline: roberta_tiny with encoder.layers=1, ")
    assert (two, three) == ("two: encoder.heads=4", "three: data.sequence_length=16")
    assert [*describe_arms(ablation(tmp_path))][1] == "two: no setting differs from one"


def test_all_arms_are_looked_at_before_any_is_prepared(tmp_path: Path) -> None:
    """URLs are copied before a dry run; an arm whose runs have begun is not looked at again."""
    seen = look(several(tmp_path, "a"))
    kinds = [line.split()[0].removeprefix("pipeline.") for line in seen]
    assert kinds == ["prepare", "plan", "plan", "prepare", "plan"]
    assert all(" --output " not in line for line in seen)
    assert seen[0].startswith("pipeline.prepare --input a --recipe ")
    assert seen[0].endswith(" --dry-run") and " --tokens 1e9 --cpu" in seen[1]
    assert look(several(tmp_path, "a"), alone="three:0") == seen[3:]
    urls = look(several(tmp_path, "s3://bucket/a"))
    assert [line.split()[-1] for line in urls[:2]] == ["--fetch", "--dry-run"]
    for arm in ("one", "three"):
        (tmp_path / f"runs/{arm}/seed-0").mkdir(parents=True)
        (tmp_path / f"runs/{arm}/seed-0/run.json").touch()
    seen = look(several(tmp_path, "a"), "one.json", "three.json")
    assert len(seen) == 2 and "two.json" in seen[1]


def test_an_arm_that_cannot_run_is_refused_with_the_others(tmp_path: Path) -> None:
    given = several(tmp_path, "a")
    with pytest.raises(ConfigError, match="3 of 3") as error:
        look(given, "full_sentences-32", "three.json")
    assert error.value.problems == (
        "one, two: full_sentences-32 is refused", "three: three.json is refused"
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"^two: two\.json"):
        look(given, "two.json")


def test_finished_runs_are_taken_before_measured_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measure_runs", lambda runs, _: [TWO_HOURS] * len(runs))
    given = ablation(tmp_path, 3)
    jobs = given.jobs()
    for job, seconds in zip(jobs[:3:2], (10.0, 20.0), strict=True):  # one:0 and one:1
        save_result(given, job, finished_result(job, 4.0, wall_seconds=seconds))
    runner = AblationRunner(given, Children())
    one, two = module.estimate_arms(runner)
    assert (one.runs, one.done, one.seconds, one.left) == (6, 2, 15.0, 60.0)
    before = 3 * 60.0 + 120.0  # looks at the arm and its shards, and prepares them
    assert (two.runs, two.done, two.left) == (3, 0, 3 * 7200.0 + before)
    save_result(given, jobs[4], finished_result(jobs[4], 4.0))  # one:2
    after = module.estimate_arms(runner)[0]
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

    def expect(line: str, hours: str) -> None:
        *_, its_line, last = describe_costs(tuned, [one, two])
        assert its_line.startswith(f"  mrpc: {line}") and last.startswith(f"{hours} h left")

    expect("9 runs to fine-tune, 0 done; not in the hours below, as none is done", "6.1")
    save_score(given, jobs[0], seconds=7200)
    expect("9 runs to fine-tune, 1 done; 2 h each", "22.1")
    save_score(given, jobs[2], None, seconds=0.0)
    expect("9 runs to fine-tune, 2 done; 2 h each", "20.1")
    save_result(given, jobs[4], diverged_result(jobs[4], 0.1, "not finite"))
    expect("8 runs to fine-tune, 2 done", "18.1")  # nothing is left to fine-tune of it
