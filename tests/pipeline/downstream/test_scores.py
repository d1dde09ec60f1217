"""scores.json has a fixed schema, and the kept model gives the kept predictions."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipeline.base.errors import CheckpointError, DataError, DivergedError
from pipeline.downstream import scores
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.jobs import (
    ARMS,
    RESULT,
    TFIDF,
    TuningJob,
    TuningWork,
    plan_jobs,
    run_job,
)
from pipeline.downstream.scores import assemble_scores, check_started_from, publish_scores, versions
from pipeline.downstream.starting_weights import save_folder
from pipeline.reporting.score_files import read_scores
from tests.pipeline.downstream.small_work import small_examples, small_work

SCHEMA = {
    "schema_version", "task", "kind", "metric", "model", "protocol", "grid", "data", "scores",
    "baselines", "seconds", "runs", "best",
}  # fmt: skip
SUMMARY = {"median", "mean", "standard_deviation", "low", "high", "n", "values"}
RUN = {"point", "arm", "seed", "peak_lr", "rows", "steps", "loss", "seconds", "device", "metrics"}
ABOUT: dict[str, Any] = {"model": {}, "grid": "published", "data": {}}


def test_everything_is_in_the_file(tmp_path: Path) -> None:
    work = replace(small_work(tmp_path / "out"), tests={"SST-2.tsv": small_examples(3)})
    jobs = plan_jobs(range(2), 2, (*ARMS, TFIDF))
    results = {job.name: run_job(work, job) for job in jobs}
    copies = [{"name": "development", "checked": 10, "in_train": 10}]
    found = assemble_scores(work, jobs, ABOUT | {
        "model": {"origin": "x", "device": scores.describe_device(work.device)} | versions(),
        "data": {"lost": {"texts": 0, "answers": 1, "words": 0}, "copies": copies},
    })  # fmt: skip
    assert found.keys() == SCHEMA and found["schema_version"] == 1
    assert found["scores"]["accuracy"].keys() == SUMMARY
    assert all(run.keys() == RUN for run in found["runs"]) and len(found["runs"]) == 12
    assert found["baselines"].keys() == {"majority", "bag", "random", "tfidf"}
    assert found["baselines"]["tfidf"] == {"accuracy": 1.0}  # one word decides
    assert found["baselines"]["majority"] == {"accuracy": 0.5}
    best = max(found["grid"]["medians"], key=lambda point: point["median"])
    assert found["scores"]["accuracy"]["median"] == best["median"]
    chosen = found["best"]
    own = [results[f"model-{chosen['point']}-{seed}"]["metrics"]["accuracy"] for seed in (0, 1)]
    assert found["scores"]["accuracy"]["values"] == own
    assert own[chosen["seed"]] == max(own)
    encoder = RowEncoder(work.start.vocabulary, 32)
    names = publish_scores(work, found, encoder)
    assert names == ["model/", "predictions.jsonl", "submission/SST-2.tsv", "scores.json"]
    assert json.loads((work.output / "scores.json").read_text()) == json.loads(json.dumps(found))
    assert not list(work.output.rglob("weights.safetensors"))
    assert publish_scores(work, found, encoder) == ["scores.json"]  # again, by another part
    for said in (
        "95 %", "1 answers", "    tfidf          1.0000\n",
        "  warning: 10 of 10 development examples (100.0%) have the texts",
    ):  # fmt: skip
        assert said in scores.summarize_scores(found)
    lines = (work.output / "predictions.jsonl").read_text().splitlines()
    model = AutoModelForSequenceClassification.from_pretrained(work.output / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(work.output / "model")
    for line, example in zip(lines, small_examples(10), strict=True):
        record = json.loads(line)
        with torch.no_grad():
            shares = model(**tokenizer(example.texts[0], return_tensors="pt")).logits[0].softmax(-1)
        assert record["id"] == example.id and record["gold"] == example.gold
        assert model.config.id2label[int(shares.argmax())] == record["predicted"]
        assert record["score"] == pytest.approx(float(shares.max()), abs=1e-5)


def test_the_point_with_the_best_median_is_reported_with_its_own_baselines(tmp_path: Path) -> None:
    """The best seed of all is at the other point; so are better random weights."""
    work = small_work(tmp_path)
    accuracies = {
        "model": ((0.9, 0.4, 0.5), (0.6, 0.8, 0.7)),
        "bag": ((0.3, 0.3, 0.3), (0.2, 0.2, 0.1)),
        "random": ((0.6, 0.6, 0.6), (0.5, 0.4, 0.3)),
    }
    jobs = plan_jobs(range(3), 2, ARMS)
    for job in jobs:
        metrics = {"accuracy": accuracies[job.arm][job.point][job.seed]}
        work.folder(job).mkdir(parents=True)
        result = json.dumps({"metrics": metrics, "seconds": 1.0, "seed": job.seed})
        (work.folder(job) / RESULT).write_text(result)
    found = assemble_scores(work, jobs, ABOUT)
    assert (found["best"]["point"], found["best"]["seed"]) == (1, 1)
    assert [point["median"] for point in found["grid"]["medians"]] == [0.5, 0.7]
    for arm, summary in (found["baselines"] | {"model": found["scores"]}).items():
        assert arm == "majority" or tuple(summary["accuracy"]["values"]) == accuracies[arm][1]


ACCURACIES = {"model": ((0.9, None, None), (0.6, None, 0.7)), "bag": ((0.5,) * 3, (None,) * 3)}
"""By arm, grid point and seed; None if it diverged."""


def write_results(work: TuningWork, accuracies: Any = ACCURACIES) -> list[TuningJob]:
    jobs = plan_jobs(range(3), 2, ("model", "bag"))
    for job in jobs:
        accuracy = accuracies[job.arm][job.point][job.seed]
        own = {"arm": job.arm, "seed": job.seed, "seconds": 1.0}
        lost = {"metrics": {}, "diverged": "the loss is nan"}
        own |= lost if accuracy is None else {"metrics": {"accuracy": accuracy}}
        work.folder(job).mkdir(parents=True)
        (work.folder(job) / RESULT).write_text(json.dumps(own))
    return jobs


def test_seeds_that_diverged_count_and_leave_the_others_their_scores(tmp_path: Path) -> None:
    """The point whose bad seeds are lost is not the best one; nor is another point's baseline
    reported where the own one diverged."""
    work = small_work(tmp_path / "out")
    jobs = write_results(work)
    data = {"lost": {"texts": 0}, "copies": []}
    about = ABOUT | {"model": {"origin": "x", "device": "CPU"}, "data": data}
    found = assemble_scores(work, jobs, about)
    assert found["best"]["point"] == 1 and found["best"]["seed"] == 2
    assert found["scores"]["accuracy"]["values"] == [0.6, 0.7]
    assert [point["diverged"] for point in found["grid"]["medians"]] == [2, 1]
    assert found["baselines"].keys() >= {"bag"} and not found["baselines"]["bag"]
    assert len(found["runs"]) == 12 and sum("diverged" in run for run in found["runs"]) == 6
    said = scores.summarize_scores(found)
    assert "1 of 3 seeds of model" in said and "3 of 3 seeds of bag" in said
    (tmp_path / "scores.json").write_text(json.dumps(found, allow_nan=False))
    assert "1 more diverged" in read_scores(tmp_path / "scores.json")[0].note


def test_a_model_of_which_every_seed_diverged_has_no_scores(tmp_path: Path) -> None:
    work = small_work(tmp_path / "out")
    jobs = write_results(work, ACCURACIES | {"model": ((None,) * 3,) * 2})
    with pytest.raises(DivergedError, match="the loss is nan"):
        assemble_scores(work, jobs, ABOUT)


def test_what_a_fine_tuning_began_with_is_checked(tmp_path: Path) -> None:
    """Or another model's weights would be reported under this one's name."""
    work = small_work(tmp_path / "out")
    with pytest.raises(CheckpointError, match="finish that"):
        check_started_from(tmp_path, work.start)
    scored = tmp_path / "scores.json"
    scored.write_text(json.dumps({"model": {"encoder_hash": work.start.encoder_hash}}))
    check_started_from(tmp_path, work.start)
    scored.write_text(json.dumps({"model": {"encoder_hash": "0" * 16}}))
    with pytest.raises(CheckpointError, match=r"other weights than .*exports/bert;"):
        check_started_from(tmp_path, work.start)


def test_parts_that_finish_together_publish_once_and_damaged_results_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = small_work(tmp_path / "out")
    jobs = plan_jobs(range(1), 2, ("model",))
    for job in jobs:
        run_job(work, job)
    found = assemble_scores(work, jobs, ABOUT)
    encoder = RowEncoder(work.start.vocabulary, 32)
    saved = []

    def save_slowly(*arguments: object, device: str) -> None:
        saved.append(arguments[-1])
        time.sleep(0.3)
        save_folder(*arguments, device=device)  # type: ignore[arg-type]

    old, new = (work.output / f".scores.json.{number}.tmp" for number in range(2))
    for half_written in (old, new):
        half_written.write_text("{")
    os.utime(old, (0, 0))  # of a process that was killed; another one may be writing the other
    monkeypatch.setattr(scores, "save_folder", save_slowly)
    with ThreadPoolExecutor(2) as parts:
        written = list(parts.map(lambda _: publish_scores(work, found, encoder), range(2)))
    assert saved == [work.output / "model"]
    assert sorted(written) == [["model/", "predictions.jsonl", "scores.json"], ["scores.json"]]
    assert new.exists() and not old.exists()
    for content in ("", "[]", "{}", '{"metrics": {}, "seconds": "x"}'):
        (work.folder(jobs[0]) / RESULT).write_text(content)
        with pytest.raises(DataError, match=r"model-0-0/result\.json"):
            assemble_scores(work, jobs, ABOUT)
