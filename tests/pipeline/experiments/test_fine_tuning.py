"""Scores of fine-tuning: asked for once, by one protocol, kept, averaged, missing with a reason."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import EXIT_DIVERGED, EXIT_USER_ERROR, ConfigError, DataError
from pipeline.downstream.protocols import SMALL_WIDTH
from pipeline.experiments.ablation import Ablation, AblationJob, make_arms
from pipeline.experiments.arms import SCALES, TABLES, arms_from_arguments, table
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.fine_tuning import (
    DIVERGED,
    check_examples,
    fine_tune_run,
    fine_tuned,
    is_fine_tuned,
    protocol_name,
    read_seconds,
    score_file,
)
from pipeline.recipes import RECIPES
from tests.pipeline.experiments.test_ablation import ablation


class Tuning(Children):
    """Writes the scores of pipeline.finetune: that of mrpc is .9, others' .7 and accuracy's .8."""

    def __init__(self, code: int = 0, *, loses: bool = False) -> None:
        """loses: whether one of its seeds diverges."""
        super().__init__()
        self.loses = loses
        self.code, self.asked, self.examples = code, list[list[str]](), "2 with hash a"

    def run(self, words: Sequence[object], *others: Any, **options: Any) -> str:
        self.asked.append([*map(str, words)])
        output = Path(str(words[words.index("--output") + 1]))
        (output / "model").mkdir(parents=True, exist_ok=True)
        settings = {"weights": "a", "training examples": self.examples}
        (output / "finetune.json").write_text(json.dumps(settings))
        if self.code:
            raise ChildError("whatever it said", self.code)
        scores = {"accuracy": {"mean": 0.8}, "f1": {"mean": 0.9 if "mrpc" in words else 0.7}}
        runs = [{"seed": 0}, {"seed": 1, "diverged": "nan"} if self.loses else {"seed": 1}]
        content = {"scores": scores, "seconds": 2.5, "runs": runs}
        (output / "scores.json").write_text(json.dumps(content))
        return ""


def given(tmp_path: Path, *tasks: str, seeds: int = 1) -> Ablation:
    return replace(
        ablation(tmp_path), tasks=tuple((task, tmp_path / task) for task in tasks),
        finetune_seeds=seeds, protocol="small",
    )  # fmt: skip


def done(asked: Ablation, children: Children, tmp_path: Path) -> AblationJob:
    job = asked.jobs()[2]  # one:1
    asked.directory(job).mkdir(parents=True, exist_ok=True)
    fine_tune_run(asked, job, children, tmp_path / "log", None)
    return job


def test_each_task_is_fine_tuned_once(tmp_path: Path) -> None:
    asked, children = given(tmp_path, "mrpc", seeds=3), Tuning()
    assert not is_fine_tuned(asked, asked.jobs()[2])
    job = done(asked, children, tmp_path)
    run = tmp_path / "runs/one/seed-1"
    assert children.asked == [[
        "pipeline.finetune", str(run), "--task", "mrpc", "--data", str(tmp_path / "mrpc"),
        "--output", str(run / "finetune-mrpc"), "--protocol", "small", "--seeds", "3",
        "--first-seed", "3", "--baselines", "majority",
    ]]  # fmt: skip
    assert fine_tuned(asked, job) == ({"fine-tuned/mrpc f1": 0.9}, {})
    assert is_fine_tuned(asked, job) and read_seconds(asked, asked.jobs(), "mrpc") == [2.5]
    kept = {path.name for path in (run / "finetune-mrpc").iterdir()}
    assert kept == {"finetune.json", "scores.json"}
    more = given(tmp_path, "mrpc", "sst2", seeds=3)
    assert not is_fine_tuned(more, job)
    done(more, children, tmp_path)
    assert [words[3] for words in children.asked] == ["mrpc", "sst2"]
    measures, missing = fine_tuned(more, job)
    assert not missing and measures == pytest.approx(
        {"fine-tuned/mrpc f1": 0.9, "fine-tuned/sst2 accuracy": 0.8, "fine-tuned": 0.85}
    )


@pytest.mark.parametrize("tuning", [Tuning(EXIT_DIVERGED), Tuning(loses=True)], ids=["all", "one"])
def test_divergence_is_a_missing_score_and_a_mistake_is_none(
    tuning: Tuning, tmp_path: Path
) -> None:
    asked = given(tmp_path, "mrpc", "sst2")
    with pytest.raises(ChildError, match="whatever it said"):
        done(asked, Tuning(EXIT_USER_ERROR), tmp_path)
    assert fine_tuned(asked, asked.jobs()[2]) == ({}, {})
    job = done(asked, tuning, tmp_path)
    assert fine_tuned(asked, job) == ({}, dict.fromkeys(
        ["fine-tuned/mrpc f1", "fine-tuned/sst2 accuracy", "fine-tuned"], DIVERGED
    ))  # fmt: skip
    assert is_fine_tuned(asked, job)


def test_scores_of_other_examples_and_damaged_ones_are_named(tmp_path: Path) -> None:
    asked, children = given(tmp_path, "mrpc"), Tuning()
    jobs = asked.jobs()[:3]
    for job, content_hash in zip(jobs, "aab", strict=True):
        children.examples = f"2 with hash {content_hash}"
        fine_tune_run(asked, job, children, tmp_path / "log", None)
    check_examples(asked, jobs[:2])
    with pytest.raises(DataError, match=r"one/seed-1/\S+ .*one/seed-0/.*mrpc"):
        check_examples(asked, jobs)
    path = score_file(asked, jobs[0], "mrpc")
    for content in ("[", "{}"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"finetune-mrpc\.json"):
            fine_tuned(asked, jobs[0])


def test_a_run_that_tunes_a_rate_is_not_fine_tuned(tmp_path: Path) -> None:
    asked, children = given(tmp_path, "mrpc"), Tuning()
    job = AblationJob(arm=asked.baseline, seed=7, factor=2.0)
    assert is_fine_tuned(asked, job) and fine_tuned(asked, job) == ({}, {})
    fine_tune_run(asked, job, children, tmp_path / "log", None)
    assert not children.asked


def test_every_recipe_has_a_protocol() -> None:
    families = {"spanbert/masking": "spanbert", "albert/pair": "albert"}
    for name, scale in product(TABLES, SCALES):
        arm, *_ = make_arms(table(name, scale), [], 0)
        found = protocol_name(arm)
        if arm.run.encoder.width > SMALL_WIDTH:
            assert found == families.get(name, found)
        else:
            assert found in ("small", "electra")
    for recipe in RECIPES:
        arm, *_ = make_arms(arms_from_arguments(recipe, [("a", []), ("b", [])]), [], 100)
        small = arm.run.encoder.width <= SMALL_WIDTH and not recipe.startswith("electra")
        family = {"babylm_base": "modernbert"}.get(recipe, recipe.partition("_")[0])
        assert protocol_name(arm) == ("small" if small else family)
    with pytest.raises(ConfigError, match="gpt_base"):
        protocol_name(replace(arm, arm=replace(arm.arm, recipe="gpt_base")))
