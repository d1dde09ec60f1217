"""Hours come from finished runs or from measured steps, and it is said which."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.settings import override
from pipeline.experiments import estimate as module
from pipeline.experiments.children import Children
from pipeline.experiments.estimate import (
    describe,
    estimate,
    measured_seconds,
    tokens_of,
)
from pipeline.experiments.fine_tuning import score_file
from pipeline.experiments.measures import RESULT, diverged_result
from pipeline.experiments.runner import AblationRunner
from pipeline.recipes import recipe
from tests.pipeline.experiments.small_ablation import SETTINGS, finished_result
from tests.pipeline.experiments.test_ablation import ablation


def test_finished_runs_are_taken_before_measured_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "measured_seconds", lambda *_: 7200.0)
    given = ablation(tmp_path, 3)
    for job, seconds in zip(given.jobs()[:3:2], (10.0, 20.0), strict=True):  # one:0 and one:1
        given.directory(job).mkdir(parents=True)
        (given.directory(job) / RESULT).write_text(
            json.dumps(finished_result(job, 4.0, seconds=seconds))
        )
    runner = AblationRunner(given, Children())
    one, two = estimate(runner)
    assert (one.runs, one.done, one.seconds, one.left) == (6, 2, 15.0, 60.0)
    assert (two.runs, two.done, two.left) == (3, 0, 3 * 7200.0)
    last_of_one = given.jobs()[4]  # one:2
    diverged = given.directory(last_of_one)
    diverged.mkdir(parents=True)
    (diverged / RESULT).write_text(json.dumps(finished_result(last_of_one, 4.0, seconds=0.0)))
    after = estimate(runner)[0]
    assert (after.done, after.seconds, after.left) == (3, 15.0, 45.0)
    assert after.source == "recorded by 2 finished runs"
    first, _, second, last = describe(runner, [one, two])
    assert first.startswith("9 runs (--task 0 to 8): 2 arms with 3 seeds, and 3 more of one")
    assert second.endswith("2 h each (measured, 3 steps on this machine)")
    assert last.startswith("6.02 h left if run one after another")
    tuned = AblationRunner(replace(given, tasks=(("mrpc", tmp_path),)), Children())
    *_, line, last = describe(tuned, [one, two])
    assert line == "  mrpc: 9 runs to fine-tune, 0 done; not in the hours below, as none is done"
    score_file(given, given.jobs()[0], "mrpc").write_text('{"score": 0.5, "seconds": 7200}')
    *_, line, last = describe(tuned, [one, two])
    assert line == "  mrpc: 9 runs to fine-tune, 1 done; 2 h each" and last.startswith("22 h left")
    score_file(given, given.jobs()[2], "mrpc").write_text('{"score": null, "seconds": 0.0}')
    *_, line, last = describe(tuned, [one, two])
    assert "2 done; 2 h each" in line and last.startswith("20 h left")
    found = diverged_result(last_of_one, 0.1, "not finite")
    (diverged / RESULT).write_text(json.dumps(found))  # nothing is left to fine-tune of it
    *_, line, last = describe(tuned, [one, two])
    assert "mrpc: 8 runs to fine-tune, 2 done" in line and last.startswith("18 h left")


@pytest.mark.slow
def test_steps_are_measured_with_their_own_sizes() -> None:
    """Processes start as usual: one that trains a tokenizer cannot be forked."""
    run = override(recipe("roberta_tiny"), SETTINGS)
    seconds = measured_seconds(run, Children())
    assert 0 < seconds < 3600


def test_tokens_of_a_run() -> None:
    run = override(recipe("roberta_tiny"), ["steps=1000", "batch.sequences=10"])
    assert tokens_of(run, 30.0) == 300_000
    packed = override(run, ["batch.step_tokens=500", "batch.packing=rows"])
    assert tokens_of(packed, 30.0) == 500_000
    phases = 'phases=[{"steps": 600, "sequence_length": 16, "sequences": 20}]'
    assert tokens_of(override(run, [phases]), 32.0) == 400 * 320 + 600 * 320
