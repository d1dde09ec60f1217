"""What a run takes, from the times of its parts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.settings import override
from pipeline.experiments.children import Children
from pipeline.experiments.run_times import MEASURED_STEPS, RunTimes, measure_runs, tokens_of
from pipeline.recipes import recipe


class Timing(Children):
    """Says of each run that its parts took as many seconds as its number, and itself 0 s.

    first: of the first run's setup, with what a process does once.
    """

    def __init__(self, first: int = 1) -> None:
        super().__init__()
        self.first, self.timed = first, list[dict[str, Any]]()

    def run(self, words: Sequence[object], *others: Any, **options: Any) -> str:
        name, folder = words
        assert name == "pipeline.time_runs" and options == {"reads": True}
        files = sorted(Path(str(folder)).glob("*.json"))
        self.timed += [json.loads(path.read_text())["run"] for path in files]
        rows = [
            {"prepare": 0, "setup": i if i > 1 else self.first, "step": i, "step_tokens": 1000,
             "score": i, "held_out": 8}
            for i in range(1, 1 + len(files))
        ]  # fmt: skip
        return json.dumps({"runs": rows})


def test_each_shape_is_measured_once_and_every_run_pays_for_what_its_process_does_once() -> None:
    run, children = recipe("roberta_tiny"), Timing()
    wide, alike = override(run, ["encoder.heads=4"]), override(run, ["optimizer.peak_lr=1e-4"])
    times = measure_runs([run, wide, alike], children)
    assert [each.step for each in times] == [1, 2, 1] and len(children.timed) == 2
    assert times[0].start == 0
    small = children.timed[0]
    assert small["batch"]["sequences"] == 64 and small["steps"] > MEASURED_STEPS
    large = override(run, ["batch.sequences=8192"])
    measure_runs([large], children)
    assert children.timed[-1]["batch"]["sequences"] == 2 * run.batch.per_device

    assert [each.setup for each in measure_runs([run, wide], Timing(first=30))] == [30, 30]


def test_a_run_is_its_start_steps_validations_and_scores_and_has_tokens() -> None:
    times = RunTimes(
        start=10, prepare=3, setup=5, step=0.1, step_tokens=64 * 30, score=2, held_out=100
    )  # fmt: skip
    run = override(recipe("roberta_tiny"), ["steps=1000", "validation.every=50"])
    assert times.of_run(run, 100, scorings=1) == pytest.approx(2 * 10 + 5 + 100 + 20 * 2 + 2)
    assert times.of_run(run, 300, scorings=2) == pytest.approx(3 * 10 + 5 + 100 + 22 * 6)
    run = override(recipe("roberta_tiny"), ["steps=1000", "batch.sequences=10"])
    assert tokens_of(run, 30.0) == 300_000
    assert tokens_of(override(run, ["batch.step_tokens=500"]), 30.0) == 500_000
    phases = 'phases=[{"steps": 600, "sequence_length": 16, "sequences": 20}]'
    assert tokens_of(override(run, [phases]), 32.0) == 400 * 320 + 600 * 320
