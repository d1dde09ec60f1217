"""What a null GPU made is refused by every command that reads weights or scores."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import evaluate, export, finetune, report
from pipeline.base.errors import CheckpointError, run_command
from pipeline.base.null_device import (
    NULL,
    check_same_device,
    null_entry,
    recorded_device,
    refuse_null,
)
from pipeline.costs.device_rates import peak_flops_of, rates_of
from pipeline.training.checkpoints.fragment_files import seal, unseal
from pipeline.training.weights.model_folders import read_folder
from tests.pipeline.reporting.small_runs import write_run
from tests.pipeline.reporting.test_score_files import FINE_TUNED

GOLDEN = Path(__file__).parents[2] / "golden"
NAME = "Tenfold null GPU H200"


def test_the_device_is_known_by_its_name() -> None:
    board = (Path(__file__).parents[2] / "null_gpu/device/board.h").read_text()
    names = re.findall(r'"(Tenfold[^"]*)"', board)
    assert NAME in names and {recorded_device(name) for name in names} == {NULL}
    assert recorded_device("NVIDIA H200") == "NVIDIA H200"


def test_its_rates_are_those_of_no_gpu() -> None:
    """So no utilization is logged, and a site keeps no rate of it."""
    assert rates_of(NAME) is None and peak_flops_of(NAME) == 0


def test_refuse_null() -> None:
    for device in ("", "cpu", "NVIDIA H200", None, {}, ["null"]):
        refuse_null(device, "RUN")
    with pytest.raises(CheckpointError, match="RUN was made on a null GPU"):
        refuse_null(NULL, "RUN")


def test_null_entry() -> None:
    assert null_entry(NULL) == {"device": "null"} and null_entry("NVIDIA H200") == {}


def test_weights_do_not_move_between_it_and_a_real_device() -> None:
    for before, now in (("", "cpu"), ("cpu", "NVIDIA H200"), (NULL, NULL)):
        check_same_device(before, now, "RUN")
    with pytest.raises(CheckpointError, match="was made on a null GPU"):
        check_same_device(NULL, "cpu", "RUN")
    with pytest.raises(CheckpointError, match="holds weights of a real run"):
        check_same_device("", NULL, "RUN")


@pytest.fixture
def null_run(tmp_path: Path) -> Path:
    """A checkpoint of the golden run of BERT, with the mark of the null device."""
    run = tmp_path / "null-run"
    shutil.copytree(GOLDEN / "runs" / "bert", run)
    for path in run.glob("checkpoints/*/state.json"):
        path.write_bytes(seal(unseal(path) | {"device": NULL}))
    return run


@pytest.fixture
def null_export(tmp_path: Path) -> Path:
    folder = tmp_path / "null-export"
    shutil.copytree(GOLDEN / "exports" / "bert", folder)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"tenfold_device": NULL}))
    return folder


def refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[], None],
    *arguments: object,
) -> None:
    monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        run_command(main)
    said = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and len(said) == 1
    assert said[0].startswith("error: ") and "was made on a null GPU" in said[0]


def test_a_run_is_refused(
    null_run: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    refused(monkeypatch, capsys, export.main, null_run, "--output", tmp_path / "out")
    refused(monkeypatch, capsys, evaluate.main, null_run, "--data", prepared)


def test_a_folder_is_refused(
    null_export: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By the one function that reads folders, for --init, finetune and --init-from too."""
    refused(monkeypatch, capsys, evaluate.main, null_export, "--data", prepared)
    with pytest.raises(CheckpointError, match="was made on a null GPU"):
        read_folder(null_export)


def test_fine_tuning_does_not_start_from_it(
    null_run: Path, null_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    lines = "".join(f'{{"text": "x{n}", "label": "{n % 2}"}}\n' for n in range(8))
    (tmp_path / "train.jsonl").write_text(lines)
    (tmp_path / "dev.jsonl").write_text(lines.replace(': "x', ': "y'))
    for model in (null_run, null_export):
        refused(
            monkeypatch, capsys, finetune.main, model, "--task", "classification",
            "--text", "text", "--target", "label",
            "--train", tmp_path / "train.jsonl", "--dev", tmp_path / "dev.jsonl",
            "--output", tmp_path / "out",
        )  # fmt: skip


def test_a_report_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    record = json.loads((run / "run.json").read_bytes())
    (run / "run.json").write_text(json.dumps(record | {"device": NULL}))
    refused(monkeypatch, capsys, report.main, run, "--text")


@pytest.mark.parametrize(
    "scores",
    [
        FINE_TUNED | {"model": FINE_TUNED["model"] | {"device": NULL}},
        {"model": "RUN step 10", "device": NULL, "perplexity": 3.0},
    ],
)
def test_scores_are_refused(
    scores: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    run = write_run(tmp_path / "run")
    refused(monkeypatch, capsys, report.main, run, "--text", "--scores", tmp_path / "scores.json")
