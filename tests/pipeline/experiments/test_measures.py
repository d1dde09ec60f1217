"""Measures of a run are those of its own files."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.experiments import measures as module
from pipeline.experiments.ablation import Ablation, make_arms
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import Children
from pipeline.experiments.measures import DIVERGED, from_metrics, measure_run, pair_judges
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.run_directory.run_json import read_record
from tests.pipeline.conftest import STEPS
from tests.pipeline.experiments.test_ablation import ablation

Measure = Callable[[Ablation, str], tuple[dict[str, Any], list[Any]]]


def write_metrics(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_memory_is_that_of_the_largest_phase(tmp_path: Path) -> None:
    plan = {"epochs": 1, "train_sequences": 8, "step_flops": 9, "sequences": 4, "parameters": 7}
    (tmp_path / "run.json").write_text(json.dumps({"plans": [plan]}))
    write_metrics(tmp_path, [
        {"step": step, "step_seconds": 1.0, "memory_gb": memory, "tokens": 9, "sequences": 4 * step}
        for step, memory in ((1, 1.0), (2, 3.0), (3, 2.0))
    ])  # fmt: skip
    assert from_metrics(tmp_path)["memory_gb"] == 3.0


def test_a_run(trained: Path, tmp_path: Path) -> None:
    for name in ("1x16", "phased", "grown"):
        found, lines = from_metrics(trained / name), read_metrics(trained / name)
        assert found["steps"] == STEPS and found["tokens"] == lines[-1]["tokens"]
        assert found["own_mask_loss"] == lines[-1]["validation_mask_loss"]
        validated = [line["step"] for line in lines if "validation_mask_loss" in line]
        assert [step for step, _ in found["curve"]] == validated
        # a step of the first line compiles; logging.every=1
        later = sum(line["step_seconds"] for line in lines[1:])
        assert found["seconds"] == pytest.approx(later * STEPS / (STEPS - 1), abs=2e-3)
        plans = read_record(trained / name).plans
        per_sequence = [plan["step_flops"] / plan["sequences"] for plan in plans]
        assert min(per_sequence) <= found["flops"] / found["sequences"] <= max(per_sequence)
    whole = from_metrics(trained / "1x16")
    assert whole["recovered"] == {}
    plan = read_record(trained / "1x16").plans[0]
    assert whole["flops"] == STEPS * plan["step_flops"]
    assert from_metrics(trained / "grown")["flops"] < whole["flops"]
    shutil.copyfile(trained / "1x16/run.json", tmp_path / "run.json")
    *lines, last = read_metrics(trained / "1x16")
    last |= {"skipped_updates": 2, "rollbacks": 0, "left_out": "a.arrow"}
    write_metrics(tmp_path, [*lines, last])
    assert from_metrics(tmp_path)["recovered"] == {"skipped_updates": 2, "left_out": "a.arrow"}


def test_damage_is_said(tmp_path: Path) -> None:
    for content in (b"", b"{}\n", b'{"step": 1}\n', b"nonsense\n"):
        (tmp_path / "metrics.jsonl").write_bytes(content)
        (tmp_path / "run.json").write_text(json.dumps({"plans": []}))
        with pytest.raises(DataError, match=str(tmp_path)):
            from_metrics(tmp_path)


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measures the first run of an ablation whose scores pipeline.evaluate says."""
    monkeypatch.setattr(module, "prepare_shards", lambda *_: None)
    monkeypatch.setattr(module, "why_not_scored", lambda *_: "")
    monkeypatch.setattr(module, "held_out", lambda *_: Path("shards"))
    monkeypatch.setattr(module, "from_metrics", lambda _: {})

    def measure(given: Ablation, said: str) -> tuple[dict[str, Any], list[Any]]:
        asked: list[Any] = []

        def run(self: Children, words: list[Any], *_: object, **__: object) -> str:
            asked.extend(words)
            return said

        monkeypatch.setattr(Children, "run", run)
        log = tmp_path / "log"
        return measure_run(given, given.jobs()[0], 1.0, Children(), log, None), asked

    return measure


def test_a_loss_that_is_not_finite_is_missing(tmp_path: Path, measure: Measure) -> None:
    """One of exactly 0 is finite."""
    for loss in ("0.0", "2.5", "null", "NaN", "Infinity"):
        found, asked = measure(ablation(tmp_path), f'{{"mask_loss": {loss}}}')
        assert asked[asked.index("--mask-rate") + 1] == 0.0  # the baseline's, whatever the arm's
        assert found["peak_lr"] == 1.0
        known = {"mask_loss": float(loss)} if loss in ("0.0", "2.5") else {}
        missing = {} if known else {"mask_loss": DIVERGED}
        assert (found["measures"], found["missing"]) == (known, missing), loss


def test_an_unknown_accuracy_is_missing_and_scored_pairs_are_kept(
    tmp_path: Path, measure: Measure
) -> None:
    table = arms_from_arguments("albert_tiny", [("sop", []), ("same", [])])
    given = replace(ablation(tmp_path), arms=make_arms(table, [], 0))
    why = {"pair_accuracy/order": "shards has no held-out pairs to label"}
    for accuracy in ("", ', "pair_accuracy": null', ', "pair_accuracy": 0.75'):
        found, _ = measure(given, f'{{"mask_loss": 2.5{accuracy}}}')
        known = {"pair_accuracy/order": 0.75} if "0.75" in accuracy else {}
        assert found["measures"] == {"mask_loss": 2.5} | known
        assert found["missing"] == ({} if known else why)
    scores = {"overall": {"accuracy": 0.5}, "phenomena": {"x": {"accuracy": 0.25}}, "hash": "ab"}
    said = json.dumps({"mask_loss": 1.0, "grammar": scores})
    found, _ = measure(replace(ablation(tmp_path), grammar=tmp_path), said)
    assert found["measures"] == {"mask_loss": 1.0, "grammar": 0.5, "grammar/x": 0.25}
    assert found["pairs"] == "ab"


def test_losses_of_sequences(tmp_path: Path) -> None:
    file = tmp_path / module.SEQUENCES
    file.write_text('{"mask_loss": [1.5], "mask_count": [3.0]}')
    assert module.sequence_losses(tmp_path) == ([1.5], [3.0])
    for lost in ("", "{}", '{"mask_loss": [1], "mask_count": []}',
                 '{"mask_loss": [NaN], "mask_count": [1.0]}'):  # fmt: skip
        file.write_text(lost)
        with pytest.raises(DataError, match=r"sequences\.json .*result\.json"):
            module.sequence_losses(tmp_path)


def test_pairs_are_judged_on_the_shards_of_each_label() -> None:
    arms = [
        ("sop", []), ("nsp", ["data.segments.label=next"]),
        ("none", ["data.segments.label=none", "objective.kind=mlm"]),
    ]  # fmt: skip
    table = arms_from_arguments("albert_tiny", arms)
    judges = pair_judges(replace(ablation(Path("o")), arms=make_arms(table, [], 0)))
    assert {label: arm.name for label, arm in judges.items()} == {"order": "sop", "next": "nsp"}
