"""Measures of a run are those of its own files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.experiments import measures as module
from pipeline.experiments.ablation import Ablation, make_arms
from pipeline.experiments.arms import arms_from_arguments
from pipeline.experiments.children import Children
from pipeline.experiments.measures import (
    DIVERGED,
    from_metrics,
    measure_run,
    pair_judges,
    sequence_losses,
)
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.run_directory.run_json import read_record
from tests.pipeline.conftest import STEPS
from tests.pipeline.experiments.test_ablation import ablation


def test_memory_is_that_of_the_largest_phase(tmp_path: Path) -> None:
    record = {"plans": [{"epochs": 1, "train_sequences": 8, "step_flops": 9, "sequences": 4,
                         "parameters": 7}]}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(record))
    lines = [
        {"step": step, "step_seconds": 1.0, "memory_gb": memory, "tokens": 9, "sequences": 4 * step}
        for step, memory in ((1, 1.0), (2, 3.0), (3, 2.0))
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert from_metrics(tmp_path)["memory_gb"] == 3.0


def test_a_run(trained: Path) -> None:
    for name in ("1x16", "phased", "grown"):
        found, lines = from_metrics(trained / name), read_metrics(trained / name)
        assert found["steps"] == STEPS and found["tokens"] == lines[-1]["tokens"]
        assert found["own_mask_loss"] == lines[-1]["validation_mask_loss"]
        assert [step for step, _ in found["curve"]] == [
            line["step"] for line in lines if "validation_mask_loss" in line
        ]
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


def test_what_a_run_skipped_is_kept(trained: Path, tmp_path: Path) -> None:
    shutil.copyfile(trained / "1x16/run.json", tmp_path / "run.json")
    *lines, last = read_metrics(trained / "1x16")
    last |= {"skipped_updates": 2, "rollbacks": 0, "left_out": "a.arrow"}
    content = "".join(json.dumps(line) + "\n" for line in [*lines, last])
    (tmp_path / "metrics.jsonl").write_text(content)
    assert from_metrics(tmp_path)["recovered"] == {"skipped_updates": 2, "left_out": "a.arrow"}


def test_damage_is_said(tmp_path: Path) -> None:
    for content in (b"", b"{}\n", b'{"step": 1}\n', b"nonsense\n"):
        (tmp_path / "metrics.jsonl").write_bytes(content)
        (tmp_path / "run.json").write_text(json.dumps({"plans": []}))
        with pytest.raises(DataError, match="no readable metrics"):
            from_metrics(tmp_path)


@pytest.mark.parametrize("loss", ["0.0", "2.5", "null", "NaN", "Infinity"])
def test_a_loss_that_is_not_finite_is_missing(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of exactly 0 is finite."""
    monkeypatch.setattr(module, "prepare_shards", lambda *_: None)
    monkeypatch.setattr(module, "why_not_scored", lambda *_: "")
    monkeypatch.setattr(module, "from_metrics", lambda _: {})
    children = Children()
    asked: list[Any] = []

    def run(self: Children, words: list[Any], *_: object, **__: object) -> str:
        asked.extend(words)
        return f'{{"mask_loss": {loss}}}'

    monkeypatch.setattr(Children, "run", run)
    given = ablation(tmp_path)
    found: dict[str, Any] = measure_run(
        given, given.jobs()[0], 1.0, children, tmp_path / "log", None
    )
    assert asked[asked.index("--mask-rate") + 1] == 0.0  # the baseline's, whatever the arm's
    assert found["peak_lr"] == 1.0
    if loss in ("0.0", "2.5"):
        assert found["measures"] == {"mask_loss": float(loss)} and not found["missing"]
    else:
        assert found["missing"] == {"mask_loss": DIVERGED} and not found["measures"]


@pytest.mark.parametrize("accuracy", ["", ', "pair_accuracy": null', ', "pair_accuracy": 0.75'])
def test_an_accuracy_that_is_not_known_is_missing(
    accuracy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare_shards", lambda *_: None)
    monkeypatch.setattr(module, "why_not_scored", lambda *_: "")
    monkeypatch.setattr(module, "held_out", lambda *_: Path("shards"))
    monkeypatch.setattr(module, "from_metrics", lambda _: {})
    monkeypatch.setattr(Children, "run", lambda *_, **__: f'{{"mask_loss": 2.5{accuracy}}}')
    table = arms_from_arguments("albert_tiny", [("sop", []), ("same", [])])
    given = replace(ablation(tmp_path), arms=make_arms(table, [], 0))
    found = measure_run(given, given.jobs()[0], 1.0, Children(), tmp_path / "log", None)
    known = {"pair_accuracy/order": 0.75} if "0.75" in accuracy else {}
    why = {"pair_accuracy/order": "shards has no held-out pairs to label"}
    assert found["measures"] == {"mask_loss": 2.5} | known
    assert found["missing"] == ({} if known else why)


def test_a_result_keeps_which_pairs_were_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "prepare_shards", lambda *_: None)
    monkeypatch.setattr(module, "why_not_scored", lambda *_: "")
    monkeypatch.setattr(module, "from_metrics", lambda _: {})
    scores = {"overall": {"accuracy": 0.5}, "phenomena": {"x": {"accuracy": 0.25}}, "hash": "ab"}
    said = json.dumps({"mask_loss": 1.0, "grammar": scores})
    monkeypatch.setattr(Children, "run", lambda *_, **__: said)
    given = replace(ablation(tmp_path), grammar=tmp_path)
    found = measure_run(given, given.jobs()[0], 1.0, Children(), tmp_path / "log", None)
    assert found["measures"] == {"mask_loss": 1.0, "grammar": 0.5, "grammar/x": 0.25}
    assert found["pairs"] == "ab"


def test_losses_of_sequences(tmp_path: Path) -> None:
    (tmp_path / "sequences.json").write_text('{"mask_loss": [1.5], "mask_count": [3.0]}')
    assert sequence_losses(tmp_path) == ([1.5], [3.0])


def test_pairs_are_judged_on_the_shards_of_each_label() -> None:
    arms = [
        ("sop", []), ("nsp", ["data.segments.label=next"]),
        ("none", ["data.segments.label=none", "objective.kind=mlm"]),
    ]  # fmt: skip
    table = arms_from_arguments("albert_tiny", arms)
    ablation = Ablation(
        table=table, arms=make_arms(table, [], 0), seeds=2, tune=False, grammar=None, inputs=(),
        output=Path("o"),
    )  # fmt: skip
    judges = pair_judges(ablation)
    assert {label: arm.name for label, arm in judges.items()} == {"order": "sop", "next": "nsp"}
