"""Which seeds are done, and by whom."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.downstream import jobs as module
from pipeline.downstream.jobs import (
    RESULT,
    TuningJob,
    claim_output,
    describe_result,
    is_done,
    plan_jobs,
    result_of,
    run_job,
)
from tests.pipeline.downstream.small_work import small_work


def test_every_job_once() -> None:
    jobs = plan_jobs(range(3), 2, module.ARMS)
    assert len({job.name for job in jobs}) == len(jobs) == 18
    assert [job.name for job in jobs[:4]] == ["model-0-0", "model-0-1", "model-0-2", "model-1-0"]
    assert [j.name for j in plan_jobs(range(4, 6), 2, ("model", module.TFIDF))][4:] == ["tfidf-0-4"]
    shares = [jobs[part::4] for part in range(4)]
    assert sorted(job.name for share in shares for job in share) == sorted(j.name for j in jobs)


def test_another_fine_tuning_does_not_continue_it(tmp_path: Path) -> None:
    claim_output(tmp_path, {"task": "sst2", "examples": (1, 2)})
    claim_output(tmp_path, {"task": "sst2", "examples": (1, 2)})
    with pytest.raises(ConfigError, match="task 'sst2', not 'rte'"):
        claim_output(tmp_path, {"task": "rte", "examples": (1, 2)})
    with pytest.raises(ConfigError, match=r"examples \[1, 2\], not None"):
        claim_output(tmp_path, {"task": "sst2"})  # fewer development files
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="Not a directory"):
        claim_output(tmp_path / "file", {"task": "sst2"})
    (tmp_path / "finetune.json").write_text("")
    with pytest.raises(DataError, match=r"finetune\.json"):
        claim_output(tmp_path, {"task": "sst2"})


@pytest.mark.parametrize("rows", [24, 8])
def test_a_seed_that_diverges_is_done_and_has_no_score(rows: int, tmp_path: Path) -> None:
    """Also where only the last update ruins the weights: its loss is not computed, so the model's
    outputs are looked at."""
    work = small_work(tmp_path)
    work.points[0] = replace(work.points[0], peak_lr=1e30, rows=rows, warmup=0.0)
    job = TuningJob("model", 0, 0)
    result = run_job(work, job)
    assert result["diverged"] and result["metrics"] == {} and "loss" not in result
    assert is_done(work, job) and result_of(work.folder(job) / RESULT) == result
    assert [*tmp_path.rglob("weights.safetensors")] == []
    assert "diverged" in describe_result(work, job, result)


def test_only_the_best_weights_of_a_grid_point_are_kept(tmp_path: Path) -> None:
    """And those of the first seed among equals, as the report chooses."""
    work = small_work(tmp_path)
    for job in plan_jobs((2, 0, 1), 2, ("model", "random")):
        run_job(work, job)
        assert is_done(work, job)
    kept = {path.parent.name for path in tmp_path.glob("jobs/*/weights.safetensors")}
    best = set()
    for point in (0, 1):
        names = [f"model-{point}-{seed}" for seed in range(3)]
        found = [json.loads((tmp_path / f"jobs/{name}/result.json").read_text()) for name in names]
        scores = [result["metrics"]["accuracy"] for result in found]
        best.add(names[scores.index(max(scores))])
    assert kept == best
