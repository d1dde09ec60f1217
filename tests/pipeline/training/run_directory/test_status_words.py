"""The status of runs in words, in full and in a table."""

import json
from pathlib import Path

import pytest

from pipeline.training.run_directory.history import HISTORY
from pipeline.training.run_directory.run_status import read_status
from pipeline.training.run_directory.status_words import COLUMNS, describe_run, tabulate_runs

RUNS = Path(__file__).parents[3] / "golden" / "runs"


def write_failed_run(folder: Path) -> Path:
    """A run that failed in its second job."""
    run = folder / "runs" / "large"
    (run / "checkpoints" / "step-00000020").mkdir(parents=True)
    (run / "checkpoints" / "step-00000020" / "state.json").write_bytes(bytes(2_500_000))
    (run / "checkpoints" / "latest").write_text("step-00000020\n")
    (run / "run.json").write_text(json.dumps({"run": {"name": "roberta_large", "steps": 4000}}))
    line = {"step": 22, "loss": 6.5, "tokens_per_second": 1234.0, "step_seconds": 3.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "9.log").write_text("a line\nerror: rank 3: no such file\n")
    events = [
        ("2026-01-01T00:00:00Z", "8", "job", ""),
        ("2026-01-01T00:10:00Z", "8", "requeued", "a rank was killed on node02"),
        ("2026-01-02T00:00:00Z", "9", "job", str(folder / "9.log")),
        ("2026-01-02T00:10:00Z", "9", "failed", "no such file"),
    ]
    (run / HISTORY).write_text("".join("\t".join(event) + "\n" for event in events))
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_failed_run(tmp_path)


def test_one_run_in_full(run: Path) -> None:
    lines = describe_run(read_status(run))
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


def test_a_loss_that_is_not_finite_is_shown_with_its_step(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1023, "loss": null}\n{"step": 1024, "validation_loss": null}\n')
    status = read_status(run)
    (step,) = [line for line in describe_run(status) if line.startswith("  step")]
    assert step.endswith(", loss nan since step 1,023, validation loss nan since step 1,024")
    assert "nan" in tabulate_runs([status])[1].split()


def test_words_read_stand_after_the_steps(run: Path) -> None:
    assert read_status(run).progress.words is None, "shards of an older version"
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "loss": 6.25, "words": 1234567}\n')
        file.write('{"step": 30, "validation_loss": 6.5}\n')  # of a validation: no words
    status = read_status(run)
    assert status.progress.words == 1_234_567
    (step,) = [line for line in describe_run(status) if line.startswith("  step")]
    assert "30 of 4,000 (0.7 %), 1,234,567 words, loss 6.2500" in step


def test_a_run_that_waits_names_the_queue(run: Path) -> None:
    """The files cannot tell whether the job was cancelled while it waited."""
    kept = (run / HISTORY).read_text().splitlines(keepends=True)[:2]
    (run / HISTORY).write_text("".join(kept))
    assert describe_run(read_status(run))[:3] == [
        f"{run}, roberta_large: waiting (Slurm job 8)",
        "  reason       a rank was killed on node02",
        "  queue        squeue --jobs=8 shows whether it still waits",
    ]


def test_several_runs_in_a_table(run: Path) -> None:
    (run / "run.json").write_text("{")
    heading, first, second, damaged = tabulate_runs([read_status(run), read_status(RUNS / "bert")])
    assert heading.split() == list(COLUMNS)
    assert first.split()[:5] == [str(run), "failed", "22", "-", "1,234"]
    words = second.removeprefix(str(RUNS / "bert")).split()
    assert words[:3] == ["stopped", "10", "20"]
    assert damaged.startswith(f"damaged: {run}/run.json cannot be read: ")
    assert second.index("stopped") == first.index("failed") == heading.index("state")
