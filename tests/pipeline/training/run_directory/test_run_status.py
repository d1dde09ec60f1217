import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.training.checkpoints import read
from pipeline.training.run_directory import layout, metrics_log, run_json, run_status
from pipeline.training.run_directory.history import HISTORY, note_event
from pipeline.training.run_directory.layout import claim, mark_interrupted, mark_ready
from pipeline.training.run_directory.lease import LEASE
from pipeline.training.run_directory.run_status import read_status
from tests.pipeline.training.run_directory.test_lease import leave

STEPS = 40


def at(seconds: float) -> str:
    """A time, that many seconds from now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def save(run: Path, step: int, age: float = 0.0) -> None:
    """A checkpoint of three files, 3,000 bytes."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    for name in ("state.json", "weights-00000.safetensors", "index.json"):
        (folder / name).write_bytes(bytes(1000))
    os.utime(folder / "state.json", (time.time() - age, time.time() - age))
    (run / "checkpoints" / "latest").write_text(f"{folder.name}\n")


def log_steps(run: Path, *lines: dict[str, Any]) -> None:
    """metrics.jsonl, whose last line is still being written."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text + '{"step": 9')


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run at step 20 of 40 without a live job."""
    run = tmp_path / "run"
    run.mkdir()
    settings = {"name": "roberta_tiny", "steps": STEPS}
    (run / "run.json").write_text(json.dumps({"run": settings}))
    save(run, 20, age=100)
    line = {"loss": 6.5, "tokens_per_second": 1000.0, "step_seconds": 1.5}
    log_steps(
        run,
        {"step": 10, "time": at(-60), "validation_loss": 6.25, **line},
        {"step": 20, "time": at(-40), **line},
        {"step": 22, "time": at(-36), **line, "loss": None},
    )
    return run


def write_history(run: Path, *events: tuple[float, str, str, str]) -> None:
    (run / HISTORY).write_text("".join(f"{at(t)}\t{j}\t{k}\t{x}\n" for t, j, k, x in events))


def test_the_names_are_those_of_the_writers() -> None:
    assert (run_status.RECORD, run_status.METRICS) == (run_json.RECORD, metrics_log.METRICS)
    for name in ("READY", "INTERRUPTED"):
        assert getattr(run_status, name) == getattr(layout, name)
    for name in ("CHECKPOINTS", "LATEST", "STATE"):
        assert getattr(run_status, name) == getattr(read, name)


def test_progress(run: Path) -> None:
    """The speed is that of the clock, over the lines of this life."""
    found = read_status(run)
    assert (found.name, found.problems) == ("roberta_tiny", ())
    progress = found.progress
    assert (progress.step, progress.steps, progress.loss) == (22, STEPS, None)
    assert progress.loss_nan_since == 22
    assert (progress.validation_loss, progress.tokens_per_second) == (6.25, 1000.0)
    assert progress.seconds_per_step == 1.5, "without a history lines may be of several lives"
    write_history(run, (-100, "-", "began", ""))
    found = read_status(run)
    assert found.progress.seconds_per_step == pytest.approx(2, abs=0.1)
    assert found.progress.seconds_left == pytest.approx(18 * 2, abs=2)
    saved = found.checkpoint
    assert saved and (saved.step, saved.bytes) == (20, 3000)
    assert saved.age_seconds == pytest.approx(100, abs=10)


def test_how_a_run_lives_and_ends(run: Path) -> None:
    with claim(run):
        assert read_status(run).state == "starting"
        mark_ready(run)
        found = read_status(run)
        assert (found.state, found.reason) == ("running", "") and found.host
    assert read_status(run).state == "stopped"
    leave(run, age=5, slurm_job="77")
    assert (read_status(run).state, read_status(run).job) == ("running", "77") or (
        read_status(run).state == "starting"
    )
    leave(run, age=1000)
    found = read_status(run)
    assert found.state == "failed" and "on node7 ended without a message" in found.reason
    (run / LEASE).unlink()
    (run / HISTORY).unlink()
    with claim(run):
        mark_ready(run)
        mark_interrupted(run, 20)
    assert read_status(run).state == "interrupted"
    with pytest.raises(ValueError), claim(run):
        mark_ready(run)
        raise ValueError("no room\nand more")
    found = read_status(run)
    assert (found.state, found.reason) == ("failed", "no room")
    assert [restart.reason for restart in found.restarts] == ["asked to stop, and saved"]
    save(run, STEPS)
    assert read_status(run).state == "finished", "a later start that is refused changes nothing"


def test_a_job_that_waits_for_its_restart(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    log = run.parent / "12.log"
    log.write_text("one\n\x1b[31mtwo\x1b[0m\n\n" + "".join(f"line {n}\n" for n in range(7)))
    note_event(run, "job", str(log))
    assert read_status(run).state == "starting"
    with pytest.raises(ValueError), claim(run):
        raise ValueError("CUDA error")
    note_event(run, "requeued", "a device failed on node02")
    (run / ".restarts-12").write_text("step-00000020 2\n")
    found = read_status(run)
    assert (found.state, found.reason) == ("waiting", "a device failed on node02")
    assert (found.job, found.restarts_without_checkpoint, found.log) == ("12", 2, str(log))
    assert found.last_lines == (" [31mtwo [0m", *(f"line {n}" for n in range(7)))
    note_event(run, "job", str(log))
    found = read_status(run)
    assert [(r.job, r.reason) for r in found.restarts] == [("12", "a device failed on node02")]
    assert found.last_lines == ()


def test_a_job_that_was_killed_before_its_ranks_began(run: Path) -> None:
    write_history(run, (-5000, "12", "job", "/nonexistent/12.log"))
    found = read_status(run)
    assert found.state == "failed" and "squeue --jobs=12" in found.reason
    assert found.last_lines == ()


def test_a_job_that_is_refused_does_not_hide_the_one_that_trains(run: Path) -> None:
    refusal = "the run belongs to a live job"
    write_history(
        run, (-90, "7", "job", "7.log"), (-80, "7", "began", ""), (-20, "8", "job", "8.log"),
        (-10, "8", "failed", refusal),
    )  # fmt: skip
    leave(run, age=5, slurm_job="7")
    found = read_status(run)
    assert (found.state, found.job, found.log) == ("starting", "7", "7.log")
    assert [(r.job, r.reason) for r in found.restarts] == [("8", refusal)]


@pytest.mark.parametrize(
    ("name", "step", "steps"),
    [
        ("run.json", 22, None), ("metrics.jsonl", 20, STEPS), (LEASE, 22, STEPS),
        ("checkpoints/latest", 22, STEPS),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line_and_the_others_are_shown(
    name: str, step: int, steps: int | None, run: Path
) -> None:
    contents = b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"[]\n", b'{"run": 3, "step": []}\n', b""
    for content in contents:
        (run / name).write_bytes(content)
        found = read_status(run)
        assert (found.progress.step, found.progress.steps) == (step, steps)
        if name == "metrics.jsonl" and not content:
            assert found.problems == ()  # that of a run before its first line
        else:
            (problem,) = found.problems
            assert problem.startswith(str(run / name.partition("/")[0])) and "\n" not in problem


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", '{"run": {"name": "n", "steps": Infinity}}'),
        ("run.json", '{"run": {"name": "n", "steps": 1' + 400 * "0" + "}}"),
        ("run.json", '{"run": {"name": "n", "steps": -4}}'),
        ("metrics.jsonl", '{"step": 1' + 400 * "0" + "}\n"),
        ("metrics.jsonl", '{"step": true}\n'),
        ("metrics.jsonl", '{"step": 1, "time": "z"}\n{"step": 2, "time": "zz"}\n'),
    ],
)
def test_numbers_and_times_that_cannot_be_are_damage(name: str, content: str, run: Path) -> None:
    (run / name).write_text(content)
    (problem,) = read_status(run).problems
    assert problem.startswith(str(run / name)) and len(problem) < len(str(run)) + 120


def test_losses_that_are_not_finite_are_no_earlier_ones(run: Path) -> None:
    """Also where the last line has only the one or the other."""
    lines = {"step": 23, "loss": None}, {"step": 24, "loss": None, "validation_loss": None}
    log_steps(run, *lines)
    progress = read_status(run).progress
    assert (progress.loss, progress.loss_nan_since) == (None, 23)
    assert (progress.validation_loss, progress.validation_loss_nan_since) == (None, 24)
    log_steps(run, *lines, {"step": 25, "loss": 6.0})
    progress = read_status(run).progress
    assert (progress.loss, progress.loss_nan_since) == (6.0, None)
    assert (progress.validation_loss, progress.validation_loss_nan_since) == (None, 24)


def test_values_that_cannot_be_are_unknown(run: Path) -> None:
    (run / ".restarts-12").write_text("")  # being written
    write_history(run, (0, "12", "job", "\x1b[31mlog"))
    log_steps(run, {"step": 3, "loss": 10**400, "step_seconds": 1e14})
    found = read_status(run)
    assert (found.problems, found.progress.loss, found.progress.seconds_left) == ((), None, None)
    assert (found.restarts_without_checkpoint, found.log) == (0, " [31mlog")


def test_a_file_that_would_wait_or_run_a_command_is_damaged(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    write_history(run, (0, "12", "job", str(run)))
    (run / ".restarts-12").write_text("none RANDOM[$(true)]\n")
    assert len(read_status(run).problems) == 2


def test_a_run_without_its_first_step(tmp_path: Path) -> None:
    with claim(tmp_path):
        mark_ready(tmp_path)
        found = read_status(tmp_path)
    assert (found.state, found.name, found.checkpoint) == ("running", "", None)
    assert (found.progress.step, found.progress.steps, found.problems) == (0, None, ())
