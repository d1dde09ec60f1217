"""What a null GPU made is refused by every command that reads weights or scores."""

import json
import re
import shutil
from pathlib import Path

import pytest

from pipeline import evaluate, export, finetune, report
from pipeline.base.errors import CheckpointError
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
from tests.pipeline.preparing import Call
from tests.pipeline.reporting.small_runs import write_run
from tests.pipeline.reporting.test_score_files import FINE_TUNED

GOLDEN = Path(__file__).parents[2] / "golden"
NAME = "Tenfold null GPU H200"


def test_the_device_is_known_by_its_name_and_has_the_rates_of_no_gpu() -> None:
    """So no utilization is logged, and a site keeps no rate of it."""
    board = (Path(__file__).parents[2] / "null_gpu/device/board.h").read_text()
    names = re.findall(r'"(Tenfold[^"]*)"', board)
    assert NAME in names and {recorded_device(name) for name in names} == {NULL}
    assert recorded_device("NVIDIA H200") == "NVIDIA H200"
    assert null_entry(NULL) == {"device": "null"} and null_entry("NVIDIA H200") == {}
    assert rates_of(NAME) is None and peak_flops_of(NAME) == 0


def test_weights_do_not_move_between_it_and_a_real_device() -> None:
    for device in ("", "cpu", "NVIDIA H200", None, {}, ["null"]):
        refuse_null(device, "RUN")
    with pytest.raises(CheckpointError, match="RUN was made on a null GPU"):
        refuse_null(NULL, "RUN")
    for before, now in (("", "cpu"), ("cpu", "NVIDIA H200"), (NULL, NULL)):
        check_same_device(before, now, "RUN")
    with pytest.raises(CheckpointError, match="was made on a null GPU"):
        check_same_device(NULL, "cpu", "RUN")
    with pytest.raises(CheckpointError, match="holds weights of a real run"):
        check_same_device("", NULL, "RUN")


def refused(said: str) -> bool:
    return said.startswith("error: ") and "on a null GPU" in said and said.count("\n") == 1


def test_runs_and_folders_are_refused(prepared: Path, tmp_path: Path, call: Call) -> None:
    """Folders by the one function that reads them, for --init, finetune and --init-from too."""
    run, folder = tmp_path / "null-run", tmp_path / "null-export"
    shutil.copytree(GOLDEN / "runs" / "bert", run)
    for path in run.glob("checkpoints/*/state.json"):
        path.write_bytes(seal(unseal(path) | {"device": NULL}))
    shutil.copytree(GOLDEN / "exports" / "bert", folder)
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"tenfold_device": NULL}))
    with pytest.raises(CheckpointError, match="was made on a null GPU"):
        read_folder(folder)
    lines = "".join(f'{{"text": "x{n}", "label": "{n % 2}"}}\n' for n in range(8))
    (tmp_path / "train.jsonl").write_text(lines)
    (tmp_path / "dev.jsonl").write_text(lines.replace(': "x', ': "y'))
    task = (
        "--task", "classification", "--text", "text", "--target", "label",
        "--train", tmp_path / "train.jsonl", "--dev", tmp_path / "dev.jsonl",
    )  # fmt: skip
    for main, *given in (
        (export.main, run, "--output", tmp_path / "out"),
        (evaluate.main, run, "--data", prepared),
        (evaluate.main, folder, "--data", prepared),
        (finetune.main, run, *task, "--output", tmp_path / "out"),
        (finetune.main, folder, *task, "--output", tmp_path / "out"),
    ):
        assert refused(call(main, *given, code=2))


def test_a_report_refuses_runs_and_scores(tmp_path: Path, call: Call) -> None:
    fine_tuned = FINE_TUNED | {"model": FINE_TUNED["model"] | {"device": NULL}}
    perplexity = {"model": "RUN step 10", "device": NULL, "perplexity": 3.0}
    run, scores = write_run(tmp_path / "run"), tmp_path / "scores.json"
    for content in (fine_tuned, perplexity):
        scores.write_text(json.dumps(content))
        assert refused(call(report.main, run, "--text", "--scores", scores, code=2))
    record = json.loads((run / "run.json").read_bytes())
    (run / "run.json").write_text(json.dumps(record | {"device": NULL}))
    assert refused(call(report.main, run, "--text", code=2))
