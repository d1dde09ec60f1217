"""`tenfold status` shows runs in words, in a table and as JSON."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline import status
from pipeline.training.run_directory.history import HISTORY
from tests.pipeline.preparing import Call

RUNS = Path(__file__).parents[1] / "golden" / "runs"
Show = Callable[..., str]


@pytest.fixture
def show(call: Call) -> Show:
    return functools.partial(call, status.main)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that failed in its second job."""
    run = tmp_path / "runs" / "large"
    (run / "checkpoints" / "step-00000020").mkdir(parents=True)
    (run / "checkpoints" / "step-00000020" / "state.json").write_bytes(bytes(2_500_000))
    (run / "checkpoints" / "latest").write_text("step-00000020\n")
    (run / "run.json").write_text(json.dumps({"run": {"name": "roberta_large", "steps": 4000}}))
    line = {"step": 22, "loss": 6.5, "tokens_per_second": 1234.0, "step_seconds": 3.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "9.log").write_text("a line\nerror: rank 3: no such file\n")
    events = [
        ("2026-01-01T00:00:00Z", "8", "job", ""),
        ("2026-01-01T00:10:00Z", "8", "requeued", "a rank was killed on node02"),
        ("2026-01-02T00:00:00Z", "9", "job", str(tmp_path / "9.log")),
        ("2026-01-02T00:10:00Z", "9", "failed", "no such file"),
    ]
    (run / HISTORY).write_text("".join("\t".join(event) + "\n" for event in events))
    return run


def test_one_run_in_full(run: Path, show: Show) -> None:
    lines = show(run).splitlines()
    assert "old, 2.5 MB" in lines.pop(4)
    assert lines == [
        f"{run}, roberta_large: failed (Slurm job 9)",
        "  reason       no such file",
        "  step         22 of 4,000 (0.5 %), loss 6.5000",
        "  speed        3 s per step, 1,234 tokens/s, 3 h 18 min of training left",
        "  restarts     1",
        "    2026-01-01T00:10:00Z  job 8: a rank was killed on node02",
        f"  log          {run.parents[1]}/9.log",
        "    a line",
        "    error: rank 3: no such file",
    ]


def test_a_run_that_waits_names_the_queue(run: Path, show: Show) -> None:
    """The files cannot tell whether the job was cancelled while it waited."""
    kept = (run / HISTORY).read_text().splitlines(keepends=True)[:2]
    (run / HISTORY).write_text("".join(kept))
    assert show(run).splitlines()[:3] == [
        f"{run}, roberta_large: waiting (Slurm job 8)",
        "  reason       a rank was killed on node02",
        "  queue        squeue --jobs=8 shows whether it still waits",
    ]


def test_several_runs_in_a_table(run: Path, show: Show) -> None:
    (run / "run.json").write_text("{")
    heading, first, second, damaged = show(run, RUNS / "bert").splitlines()
    assert heading.split() == list(status.COLUMNS)
    assert first.split()[:5] == [str(run), "failed", "22", "-", "1,234"]
    assert second.split()[1:4] == ["stopped", "10", "20"]
    assert damaged.startswith(f"damaged: {run}/run.json cannot be read: ")
    assert second.index("stopped") == first.index("failed") == heading.index("state")


def test_json_for_scripts(run: Path, show: Show) -> None:
    (found,) = json.loads(show(run, "--json"))
    assert found["state"] == "failed" and found["progress"]["step"] == 22
    assert found["progress"]["validation_loss"] is None
    assert found["restarts"][0]["reason"] == "a rank was killed on node02"
    assert len(json.loads(show(run, RUNS / "bert", "--json"))) == 2


def test_what_is_no_run_is_said(run: Path, tmp_path: Path, show: Show, prepared: Path) -> None:
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
    code = (
        "import sys; sys.modules |= dict.fromkeys(['torch', 'deepspeed', 'safetensors'])\n"
        "from pipeline.status import main\n"
        f"sys.argv = ['status', {str(run)!r}]; main()"
    )
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "roberta_large: failed" in result.stdout
