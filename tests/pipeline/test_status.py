"""`tenfold status`: which runs it takes, and in which form it shows them."""

import functools
import json
from pathlib import Path

import pytest

from pipeline import status
from tests.pipeline.preparing import Call, printed_without
from tests.pipeline.training.run_directory.test_status_words import write_failed_run

RUNS = Path(__file__).parents[1] / "golden" / "runs"


@pytest.fixture
def show(call: Call) -> Call:
    return functools.partial(call, status.main)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_failed_run(tmp_path)


def test_one_run_is_shown_in_full_and_several_in_a_table(run: Path, show: Call) -> None:
    assert show(run).startswith(f"{run}, roberta_large: failed (Slurm job 9)\n")
    table = show(run, RUNS / "bert").splitlines()
    for line, name in zip(table, ("run", run, RUNS / "bert"), strict=True):
        assert line.startswith(f"{name} ")


def test_json_for_scripts(run: Path, show: Call) -> None:
    (found,) = json.loads(show(run, "--json"))
    assert found["state"] == "failed" and found["progress"]["step"] == 22
    assert found["progress"]["validation_loss"] is None
    assert found["restarts"][0]["reason"] == "a rank was killed on node02"
    assert len(json.loads(show(run, RUNS / "bert", "--json"))) == 2


def test_what_is_no_run_is_said(run: Path, tmp_path: Path, show: Call, prepared: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("text")
    for path, message in {
        tmp_path / "none": "no such directory",
        run.parent: f"is a folder of 1 run(s); give {run.parent}/*",
        run / "checkpoints" / "step-00000020": f"is inside a run; give {run}",
        prepared: "is not a run but shards",
        prepared / "tokenizer": "is not a run but a tokenizer",
        prepared.parent: "is not a run but a folder of 1 results",
        tmp_path / "text": "is not a run but a folder without a run",
        tmp_path / "text" / "a.txt": "is not a run but a file",
    }.items():
        error = show(path, code=2)
        assert error.startswith(f"error: {path}") and message in error, error
        assert error.count("\n") == 1
    assert "is not a run" in show(run, prepared, code=2)


def test_it_needs_no_torch(run: Path) -> None:
    printed = printed_without(("torch", "deepspeed", "safetensors"), "status", run)
    assert "roberta_large: failed" in printed
