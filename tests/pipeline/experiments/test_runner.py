"""Runs are done once; tuned rates come from a seed outside the table; other work is refused."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base import errors
from pipeline.base.errors import EXIT_DIVERGED, ConfigError, DataError, PipelineError
from pipeline.config.settings import override
from pipeline.execution.ledger import hold_lock
from pipeline.experiments import runner as module
from pipeline.experiments.ablation import TUNING_SEED, AblationJob
from pipeline.experiments.children import ChildError, Children
from pipeline.experiments.measures import RESULT
from pipeline.experiments.runner import AblationRunner, claim_ablation, with_scored_tasks
from tests.pipeline.experiments.small_ablation import finished_result, save_result, save_score
from tests.pipeline.experiments.test_ablation import ablation


class Recording(Children):
    """Notes what would be trained; what has all words of `refused` ends with `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[list[str]] = []
        self.trained: list[list[str]] = []
        self.refused: tuple[str, ...] = ("nothing",)
        self.error: PipelineError = DataError("")
        self.watch: Callable[[], object] = lambda: None

    def run(self, words: Sequence[object], *others: Any, **options: Any) -> str:
        self.watch()
        self.started.append([*map(str, words)])
        if all(word in f"{' '.join(self.started[-1])} " for word in self.refused):
            raise self.error
        self.trained.append(self.started[-1])
        Path(words[words.index("--output") + 1]).mkdir(parents=True)  # type: ignore[arg-type]
        return ""


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Recording:
    def measure(given: Any, job: AblationJob, rate: float, *others: Any) -> dict[str, Any]:
        best = 0.5 if job.arm.name == "two" else 1.0
        loss = abs(rate / job.arm.run.optimizer.peak_lr - best)
        return finished_result(job, loss, peak_lr=rate)

    monkeypatch.setattr(module, "prepare_shards", lambda *_: None)
    monkeypatch.setattr(module, "measure_run", measure)
    return Recording()


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of runs that were fine-tuned."""
    names: list[str] = []

    def tune(asked: Any, job: AblationJob, *others: Any) -> None:
        if asked.tasks:
            names.append(job.name)
            save_score(asked, job)

    monkeypatch.setattr(module, "fine_tune_run", tune)
    return names


def test_each_run_is_trained_once_and_only_fine_tuned_if_it_was_measured(
    tmp_path: Path, children: Recording, tuned: list[str]
) -> None:
    given = ablation(tmp_path)
    for _ in range(2):
        AblationRunner(given, children).finish(given.jobs())
    trained = len(children.trained)
    assert trained == len(given.jobs())
    first = children.trained[0]
    assert first[:2] == ["pipeline.train", str(tmp_path / "arms/one.json")]
    assert first[-3:] == ["seed=0", "--set", "optimizer.peak_lr=0.01"]
    runner = AblationRunner(replace(given, tasks=(("mrpc", tmp_path),)), children)
    assert not any(runner.is_done(job) for job in given.jobs())
    runner.finish(given.jobs())
    assert len(children.trained) == trained and all(map(runner.is_done, given.jobs()))
    found = runner.result(given.jobs()[0])
    assert found["measures"] == {"mask_loss": 0.0, "fine-tuned/mrpc f1": 0.5}


def test_each_arms_rate_is_tuned_with_another_seed(tmp_path: Path, children: Recording) -> None:
    given = replace(ablation(tmp_path), tune=True)
    runner = AblationRunner(given, children)
    runner.finish(given.jobs())
    tuning = [words for words in children.trained if f"seed={TUNING_SEED}" in words]
    assert len(tuning) == 6 and len(children.trained) == 12
    one, two = given.arms
    assert runner.rate_of(one) == one.run.optimizer.peak_lr
    assert runner.rate_of(two) == two.run.optimizer.peak_lr / 2
    first = next(words for words in children.trained if "/two/seed-0" in words[-5])
    assert "optimizer.peak_lr=0.005" in first


@pytest.mark.parametrize(
    "error",
    [ChildError("the disk is full", errors.EXIT_USER_ERROR), DataError("the file is damaged")],
)
def test_a_run_that_fails_says_so_at_once_and_stops_no_other(
    error: PipelineError, tmp_path: Path, children: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ablation(tmp_path)
    told: list[str] = []
    children.refused, children.error = (" seed=1 ",), error
    children.watch = lambda: told.append(capsys.readouterr().err)
    with pytest.raises(PipelineError, match=rf"one:1: {error}; 1 more runs failed"):
        AblationRunner(given, children).finish(given.jobs())
    assert len(children.trained) == len(given.jobs()) - 2
    failed = [f"{name} failed: {error}\n" for name in ("one:1", "two:1")]
    assert told == ["", "", "", *failed, ""]  # each before the next run begins


def test_a_run_that_diverges_is_done_and_neither_repeated_nor_fine_tuned(
    tmp_path: Path, children: Recording, tuned: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = replace(ablation(tmp_path), tasks=(("mrpc", tmp_path),))
    children.refused = (" seed=1 ",)
    children.error = ChildError("the gradient was not finite", EXIT_DIVERGED)
    runner = AblationRunner(given, children)
    for _ in range(2):
        runner.finish(given.jobs())
    assert len(children.started) == len(given.jobs()) and all(map(runner.is_done, given.jobs()))
    assert [job.name for job in given.jobs() if runner.has_diverged(job)] == ["one:1", "two:1"]
    assert tuned == ["one:0", "two:0", "one:2", "one:3"]
    assert "one:1: diverged: the gradient was not finite\n" in capsys.readouterr().out
    found = runner.result(given.jobs()[2])
    assert (found["error"], found["measures"]) == ("the gradient was not finite", {})


@pytest.mark.parametrize("code", [EXIT_DIVERGED, errors.EXIT_USER_ERROR, -9])
def test_a_rate_that_diverges_loses(code: int, tmp_path: Path, children: Recording) -> None:
    """What ends a run in another way says nothing of its rate."""
    given = replace(ablation(tmp_path), tune=True)
    children.refused = (f" seed={TUNING_SEED} ", "/rate-0.5")
    children.error = ChildError("whatever it said", code)
    runner = AblationRunner(given, children)
    if code == EXIT_DIVERGED:
        runner.finish(given.jobs())
        one, two = given.arms
        assert runner.rate_of(one) == one.run.optimizer.peak_lr == runner.rate_of(two)
    else:
        with pytest.raises(PipelineError, match="whatever it said"):
            runner.finish(given.jobs())


def test_a_run_that_another_process_has_taken_is_waited_for(
    tmp_path: Path, children: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ablation(tmp_path)
    directory = given.directory(given.jobs()[0])

    def other_finishes(self: Recording) -> None:
        directory.mkdir()
        (directory / RESULT).write_text("{}")

    monkeypatch.setattr(Recording, "pause", other_finishes)
    with hold_lock(directory.with_name(f".{directory.name}.lock")):
        AblationRunner(given, children).finish(given.jobs())
    assert len(children.trained) == len(given.jobs()) - 1


def add_shards(output: Path) -> None:
    (output / "shards/x").mkdir(parents=True)
    (output / "shards/x/manifest.json").write_text("{}")


def test_urls_are_kept_without_secrets_and_known_again_with_others(tmp_path: Path) -> None:
    def signed(address: str, secret: str) -> tuple[str, ...]:
        return ("--input", f"{address}?X-Amz-Signature={secret}", f"s3://AKIA:{secret}@bucket/b")

    given = replace(ablation(tmp_path), inputs=signed("https://host/a", "first"))
    claim_ablation(given)
    settings = (tmp_path / "settings.json").read_text()
    assert "first" not in settings and "https://host/a (object" in settings
    add_shards(tmp_path)
    claim_ablation(replace(given, inputs=signed("https://host/a", "second")))
    with pytest.raises(ConfigError, match="inputs") as error:
        claim_ablation(replace(given, inputs=signed("https://host/c", "second")))
    assert "first" not in str(error.value) and "second" not in str(error.value)


def test_an_output_is_of_one_ablation_but_takes_more_seeds(tmp_path: Path) -> None:
    given = ablation(tmp_path)
    claim_ablation(given)
    claim_ablation(replace(given, seeds=9))
    with pytest.raises(ConfigError, match="tune False, not True"):
        claim_ablation(replace(given, tune=True))
    changed = replace(given.arms[1], run=override(given.arms[1].run, ["encoder.dropout=0.3"]))
    with pytest.raises(ConfigError, match=r"\(two\)"):
        claim_ablation(replace(given, arms=(given.arms[0], changed)))
    corrected = replace(given, inputs=("--corpus", "mine", "--input", "b.txt"))
    claim_ablation(corrected)  # nothing was prepared yet
    add_shards(tmp_path)
    claim_ablation(corrected)
    with pytest.raises(ConfigError, match=r"inputs .*b\.txt"):
        claim_ablation(given)
    whole = json.loads((tmp_path / "settings.json").read_text())
    tasks = (None, 3, {"rte": 5}, {"rte": {}}, {"rte": {"data": 3, "seeds": 1}})
    damaged = [json.dumps(whole | {"finetune": found}) for found in tasks]
    for content in ("[", "{}", *damaged):
        (tmp_path / "settings.json").write_text(content)
        with pytest.raises(DataError, match=r"settings\.json"):
            with_scored_tasks(given)


def test_scored_tasks_of_an_output_are_kept_and_not_changed(tmp_path: Path) -> None:
    given = ablation(tmp_path / "out")
    claim_ablation(given)
    mrpc, wrong = (("mrpc", tmp_path / "a"),), (("mrpc", tmp_path / "wrong"),)
    for tasks in (wrong, mrpc):  # a folder is corrected while there is no score
        asked = replace(given, tasks=tasks, finetune_seeds=3, protocol="small")
        claim_ablation(with_scored_tasks(asked))
    assert with_scored_tasks(given) == given
    save_score(given, given.jobs()[0])
    sst2 = replace(given, tasks=(("sst2", tmp_path / "b"),), finetune_seeds=3, protocol="bert")
    both = with_scored_tasks(sst2)
    assert [task for task, _ in both.tasks] == ["sst2", "mrpc"]
    assert both.protocol == "small"  # not what a later version would choose
    claim_ablation(both)
    kept = with_scored_tasks(replace(given, seeds=9))  # as --collect, or more seeds, asks
    assert (kept.tasks, kept.finetune_seeds, kept.protocol) == (mrpc, 3, "small")
    claim_ablation(kept)
    for tasks, seeds in ((mrpc, 2), (wrong, 3)):
        with pytest.raises(ConfigError, match=r"mrpc with .*/a"):
            with_scored_tasks(replace(given, tasks=tasks, finetune_seeds=seeds))


def test_a_damaged_result_is_said(tmp_path: Path) -> None:
    """And that of another run, copied by hand."""
    given = ablation(tmp_path)
    job, other = given.jobs()[:2]
    runner, whole = AblationRunner(given, Children()), finished_result(job, 1.0)
    for content in (
        [1], {}, finished_result(other, 1.0), whole | {"missing": None}, whole | {"curve": 3},
        whole | {"measures": {"mask_loss": "x"}}, whole | {"measures": {"mask_loss": math.nan}},
        whole | {"flops": math.inf}, whole | {"measures": None},
        {name: value for name, value in whole.items() if name != "peak_lr"},
    ):  # fmt: skip
        save_result(given, job, content)
        with pytest.raises(DataError, match=r"result\.json"):
            runner.result(job)
    save_result(given, job, whole)
    assert runner.result(job) == whole
