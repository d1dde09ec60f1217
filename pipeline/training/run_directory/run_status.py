"""RUN -> its status for people and scripts, only from its files.

A run may be training on another machine meanwhile: each file is read once, and one that has just
been removed counts as absent. A damaged file is one line in `problems`. Nothing is written, and
only JSON and text are read, so this needs no torch.
"""

from __future__ import annotations

import json
import math
import re
import time
from calendar import timegm
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline.training.run_directory.history import (
    ENDED,
    FAILURE,
    HISTORY,
    INTERRUPTION,
    REQUEUE,
    Life,
    lives,
    move_last,
)
from pipeline.training.run_directory.lease import LEASE, Holder, find_holder

# the modules that write these import torch
RECORD, METRICS, READY, INTERRUPTED = "run.json", "metrics.jsonl", "ready", "INTERRUPTED"
PLAN = "plan.json"
"""File of predicted and measured figures."""
CHECKPOINTS, LATEST, STATE = "checkpoints", "latest", "state.json"
MARKS = (RECORD, HISTORY, LEASE, INTERRUPTED)
"""A directory with one of these is a run's."""
RUNNING, STARTING, WAITING, INTERRUPTED_STATE = "running", "starting", "waiting", "interrupted"
FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"

TAIL_BYTES = 1 << 18
"""Bytes read at the end of a log or of metrics.jsonl: some hundred lines."""
MOST_BYTES = 1 << 26
"""Largest JSON file that is read; a run writes smaller ones."""
LOG_LINES = 8
MOST = 1e15
"""Numbers from here on are damage."""
RECENT_LINES = 100
"""Lines of metrics that the speed is measured over."""
MOST_SECONDS = 1e10
"""Longest time that is shown as left, 300 years."""
STARTING_SECONDS = 600
"""Most time from the start of a batch file to the lease: imports, and waiting for all ranks."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress and speed of a run; None for what is not known yet."""

    step: int
    steps: int | None
    words: int | None
    """Words between white space read so far."""
    loss: float | None
    loss_nan_since: int | None
    """Step of the first of the last losses that are not finite; None if the last one is finite."""
    validation_loss: float | None
    validation_loss_nan_since: int | None
    validation_mask_rate: float | None
    """Rate of the held-out masks, if training has another one."""
    validation_grammar: float | None
    seconds_per_step: float | None
    """Wall time per step, including validations and checkpoints."""
    tokens_per_second: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """The newest checkpoint."""

    step: int
    age_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A start after the first one."""

    at: str
    """Time at which the life before it ended, or "" if it ended without a message."""
    job: str
    """Slurm's number of that life's job, "" without one."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The status of a run directory."""

    run: str
    name: str
    """Name of the run, by default its recipe's; "" if unknown."""
    state: str
    """running, starting, waiting (for its restart), interrupted, finished, stopped or failed."""
    reason: str
    """Reason why it is not running, as far as known."""
    host: str
    job: str
    """Slurm's number of the last job, "" without one."""
    progress: RunProgress
    checkpoint: SavedCheckpoint | None
    restarts: tuple[Restart, ...]
    restarts_without_checkpoint: int
    """Number of the latest restarts in Slurm without a new checkpoint."""
    log: str
    last_lines: tuple[str, ...]
    """End of the log, if the last life failed."""
    problems: tuple[str, ...]
    """Damaged files."""


def is_run(path: Path) -> bool:
    """True if a directory is a run's; one that ended before it trained has no run.json yet."""
    return any((path / name).exists() for name in MARKS)


def read_status(run: Path) -> RunStatus:
    """The status of a run directory."""
    files = _Files(run)
    unknown: tuple[str, int | None] = ("", None)
    name, steps = files.read(RECORD, lambda: _settings(run), unknown)
    # Each file by itself: a damaged one must not hide what the others say.
    history: list[Life] = files.read(HISTORY, lambda: lives(_lines(run / HISTORY, MOST_BYTES)), [])
    holder = files.read(LEASE, lambda: find_holder(run), None)
    checkpoint = files.read(CHECKPOINTS, lambda: _newest(run / CHECKPOINTS), None)
    lines: list[dict[str, Any]] = files.read(METRICS, lambda: _metrics(run / METRICS), [])
    if holder and holder.alive:
        move_last(history, holder.slurm_job)  # a job that was refused meanwhile is not the last
    progress = _progress(steps, lines, history, checkpoint)
    last = history[-1] if history else None
    state, reason = _state(run, last, holder, progress, checkpoint)
    log = last.log if last else ""
    job = holder.slurm_job if holder and holder.alive else last.job if last else ""
    failed = state in (FAILED, WAITING)
    return RunStatus(
        run=str(run),
        name=name,
        state=state,
        reason=_printable(reason),
        host=holder.host if holder else "",
        job=job,
        progress=progress,
        checkpoint=checkpoint,
        restarts=_restarts(history),
        restarts_without_checkpoint=files.read(
            ".restarts", lambda: _restarts_in_a_row(run, job), 0
        ),
        log=_printable(log),
        last_lines=_last_lines(Path(log)) if log and failed else (),
        problems=tuple(map(_printable, files.problems)),
    )


class _Files:
    """Reads the files of a run, and remembers the damaged ones."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.problems: list[str] = []

    def read(self, name: str, content: Callable[[], T], otherwise: T) -> T:
        """The content of a file; `otherwise` if it is absent or damaged."""
        try:
            return content()
        except FileNotFoundError:
            return otherwise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
            missing = f"has no entry {error}" if isinstance(error, KeyError) else str(error)
            self.problems.append(f"{self.run / name} cannot be read: {missing}")
            return otherwise


def _settings(run: Path) -> tuple[str, int | None]:
    """The name and the steps of the run."""
    settings = json.loads(_content(run / RECORD, MOST_BYTES))["run"]
    return _printable(str(settings["name"])), _count(settings["steps"], "run.steps")


def _metrics(path: Path) -> list[dict[str, Any]]:
    """The last lines of metrics.jsonl, without one that is being written."""
    lines = _lines(path, TAIL_BYTES)
    found = [json.loads(line) for line in lines[-RECENT_LINES:] if line.endswith("\n")]
    for line in found:
        if not isinstance(line, dict) or "step" not in line:
            raise ValueError("a line has no step")
        _count(line["step"], "step")
        if "time" in line:  # of a training step, not only of a validation
            _seconds(str(line["time"]))
    return found


def _count(value: object, name: str) -> int:
    """A value that is a number of steps. Raises ValueError for any other."""
    if type(value) is not int or not 0 <= value < MOST:
        raise ValueError(f"{name} is {str(value)[:40]}, not a number of steps")
    return value


def _newest(checkpoints: Path) -> SavedCheckpoint | None:
    """The checkpoint that `latest` names. One that is being replaced is absent for a moment."""
    name = _content(checkpoints / LATEST, MOST_BYTES).decode(errors="replace").strip()
    match = re.fullmatch(r"step-(\d{8,18})", name)  # 18 digits fit into 64 bits
    if not match:
        raise ValueError(f"{LATEST} names {name[:40]!r}, which is not a checkpoint")
    saved_at = (checkpoints / name / STATE).stat().st_mtime
    size = 0
    for file in (checkpoints / name).iterdir():
        size += file.stat().st_size
    return SavedCheckpoint(
        step=int(match[1]), age_seconds=max(0.0, time.time() - saved_at), bytes=size
    )


def _progress(
    steps: int | None,
    lines: Sequence[dict[str, Any]],
    history: Sequence[Life],
    checkpoint: SavedCheckpoint | None,
) -> RunProgress:
    step = max(lines[-1]["step"] if lines else 0, checkpoint.step if checkpoint else 0)
    seconds = _seconds_per_step(lines, history[-1].began_at if history else "")
    left = None if steps is None or seconds is None else max(0, steps - step) * seconds
    if left is not None and left > MOST_SECONDS:
        left = None
    return RunProgress(
        step=step,
        steps=steps,
        words=None if (words := _last_number(lines, "words")) is None else int(words),
        loss=_last_number(lines, "loss"),
        loss_nan_since=_nan_since(lines, "loss"),
        validation_loss=_last_number(lines, "validation_loss"),
        validation_loss_nan_since=_nan_since(lines, "validation_loss"),
        validation_mask_rate=_last_number(lines, "validation_mask_rate"),
        validation_grammar=_last_number(lines, "validation_grammar"),
        seconds_per_step=seconds,
        tokens_per_second=_last_number(lines, "tokens_per_second"),
        seconds_left=left,
    )


def _seconds_per_step(lines: Sequence[dict[str, Any]], began_at: str) -> float | None:
    """Wall time per step over the lines of this life; for one line, as measured between validations
    and checkpoints."""
    # "?" is above every digit: without a start no line counts.
    timed = [line for line in lines if str(line.get("time", "")) >= (began_at or "?")]
    if len(timed) > 1 and (steps := timed[-1]["step"] - timed[0]["step"]) > 0:
        seconds = _seconds(str(timed[-1]["time"])) - _seconds(str(timed[0]["time"]))
        if seconds >= 10:  # times are whole seconds
            return float(seconds / steps)
    return _last_number(lines, "step_seconds")


def _state(
    run: Path,
    last: Life | None,
    holder: Holder | None,
    progress: RunProgress,
    checkpoint: SavedCheckpoint | None,
) -> tuple[str, str]:
    """The state, and its reason."""
    if holder and holder.alive:
        # First: marks may be those of the life before.
        return (RUNNING if (run / READY).exists() else STARTING), ""
    if last and last.end == REQUEUE:
        return WAITING, last.reason
    # A failure after the last step, say while printing, does not undo the run.
    if last and last.end == FAILURE and not _is_done(progress, checkpoint):
        return FAILED, last.reason
    if (run / INTERRUPTED).exists() or (last and last.end == INTERRUPTION):
        return INTERRUPTED_STATE, "asked to stop, and saved"
    if _is_done(progress, checkpoint):
        return FINISHED, ""
    if last and not last.end and not last.ready and _age(last.began_at) < STARTING_SECONDS:
        return STARTING, ""
    if holder or (last and last.end != ENDED):
        where = f"process {holder.process} on {holder.host}" if holder else "its process"
        job = (
            f"; squeue --jobs={last.job} shows whether it starts again" if last and last.job else ""
        )
        return FAILED, f"{where} ended without a message: killed, or its machine failed{job}"
    return STOPPED, "ended before its last step, as with --stop-at"


def _is_done(progress: RunProgress, checkpoint: SavedCheckpoint | None) -> bool:
    return bool(checkpoint and progress.steps is not None and checkpoint.step >= progress.steps)


def _restarts(history: Sequence[Life]) -> tuple[Restart, ...]:
    reasons = {
        INTERRUPTION: "asked to stop, and saved",
        ENDED: "ended, and was started again",
        "": "ended without a message: preempted or killed, or its node failed",
    }
    return tuple(
        Restart(
            at=_printable(life.ended_at),
            job=_printable(life.job),
            reason=_printable(life.reason or reasons.get(life.end, life.end)),
        )
        for life in history[:-1]
    )


def _restarts_in_a_row(run: Path, job: str) -> int:
    """The count in RUN/.restarts-JOB, which slurm/restarts.sh writes."""
    if not re.fullmatch(r"\d{1,18}", job):
        return 0
    words = _content(run / f".restarts-{job}", MOST_BYTES).split()
    return int(words[-1]) if words else 0  # empty while it is written


def _last_number(lines: Sequence[dict[str, Any]], name: str) -> float | None:
    """The last value of a field that is not damaged; None if it is absent or not finite."""
    for line in reversed(lines):
        value = line.get(name)
        if value is None and name in line:
            return None
        # NaN fails the comparison, too.
        if isinstance(value, int | float) and abs(value) < MOST:
            return float(value)
    return None


def _nan_since(lines: Sequence[dict[str, Any]], name: str) -> int | None:
    since = None
    for line in reversed(lines):
        if name in line:
            if line[name] is not None:  # values that are not finite are null
                break
            since = line["step"]
    return since


def _last_lines(log: Path) -> tuple[str, ...]:
    """The end of a log, without control characters; empty if it cannot be read."""
    try:
        lines = _lines(log, TAIL_BYTES)
    except (OSError, ValueError):
        return ()
    return tuple([_printable(line) for line in lines if line.strip()][-LOG_LINES:])


def _lines(path: Path, most: int) -> list[str]:
    """Lines of a text with their ends; of a large one, those within its last `most` bytes."""
    content = _content(path, most, tail=True)
    lines = content.decode(errors="replace").splitlines(keepends=True)
    return lines[1:] if len(content) == most else lines  # the first one is cut


def _content(path: Path, most: int, *, tail: bool = False) -> bytes:
    """The bytes of a regular file: a pipe would wait forever."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size > most and not tail:
            raise ValueError(f"it has {size:,} bytes")
        file.seek(max(0, size - most))
        return file.read(most)


def _printable(text: str) -> str:
    """A text without line ends and the codes that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text).rstrip()


def _age(at: str) -> float:
    """Seconds since a time; infinity if it is not one."""
    try:
        return time.time() - _seconds(at)
    except ValueError:
        return math.inf


def _seconds(at: str) -> int:
    # The times are UTC, and mktime would read local ones.
    return timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))
