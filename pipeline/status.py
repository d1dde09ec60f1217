"""How runs are doing: `tenfold status RUN...`, one in full, several in a table.

Reads the files in RUN, which may be training meanwhile on any machine. Needs no torch.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.base.command_line import Parser, example_text
from pipeline.base.durations import in_words
from pipeline.base.errors import ConfigError, run_command
from pipeline.data.inspection.places import describe_place
from pipeline.data.shards.manifest import MANIFEST
from pipeline.training.run_directory.status import (
    RUNNING,
    WAITING,
    RunStatus,
    is_run,
    read_status,
)
from pipeline.training.validation.before_after import at_rate

MOST_RESTARTS_SHOWN = 10
COLUMNS = ("run", "state", "step", "of", "tokens/s", "left", "loss", "checkpoint", "restarts")


def main() -> None:
    arguments = _parse()
    for path in arguments.runs:
        _check_run(path)
    found = [read_status(path) for path in arguments.runs]
    if arguments.json:
        print(json.dumps([asdict(status) for status in found], indent=1))
    elif len(found) == 1:
        print("\n".join(full_lines(found[0])))
    else:
        print("\n".join(table_lines(found)))


def full_lines(status: RunStatus) -> list[str]:
    """All that is known of one run."""
    progress, saved = status.progress, status.checkpoint
    where = [f"Slurm job {status.job}"] * bool(status.job) + [status.host] * bool(status.host)
    named = f", {status.name}" if status.name else ""
    lines = [f"{status.run}{named}: {status.state}" + (f" ({', '.join(where)})" if where else "")]
    if status.reason:
        lines.append(f"  reason       {status.reason}")
    if status.state == WAITING and status.job:
        lines.append(f"  queue        squeue --jobs={status.job} shows whether it still waits")
    lines.append(f"  step         {', '.join(_step_words(status))}")
    if progress.seconds_per_step is not None:
        lines.append(f"  speed        {', '.join(_speed_words(status))}")
    if saved:
        lines.append(
            f"  checkpoint   step {saved.step:,}, {in_words(saved.age_seconds)} old, "
            f"{saved.bytes / 1e6:,.1f} MB"
        )
    else:
        lines.append("  checkpoint   none")
    lines += _restart_lines(status)
    if status.log:
        lines.append(f"  log          {status.log}")
        lines += [f"    {line}" for line in status.last_lines]
    return lines + [f"  damaged      {problem}" for problem in status.problems]


def table_lines(found: Sequence[RunStatus]) -> list[str]:
    """One line for each run."""
    rows = [COLUMNS, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
    for status in found:
        lines += [f"damaged: {problem}" for problem in status.problems]
    return lines


def _step_words(status: RunStatus) -> list[str]:
    progress = status.progress
    of = f" of {progress.steps:,}" if progress.steps is not None else ""
    share = (
        f" ({math.floor(1000 * progress.step / progress.steps) / 10} %)" if progress.steps else ""
    )
    words = [f"{progress.step:,}{of}{share}"]
    if progress.loss is not None:
        words.append(f"loss {progress.loss:.4f}")
    if progress.validation_loss is not None:
        rate = at_rate(progress.validation_mask_rate)
        words.append(f"validation loss{rate} {progress.validation_loss:.4f}")
    if progress.validation_grammar is not None:
        words.append(f"grammar {progress.validation_grammar:.1%}")
    return words


def _speed_words(status: RunStatus) -> list[str]:
    progress = status.progress
    words = [f"{progress.seconds_per_step:.3g} s per step"]
    if progress.tokens_per_second is not None:
        words.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.seconds_left:
        words.append(f"{in_words(progress.seconds_left)} of training left")
        if status.state == RUNNING:
            at = time.localtime(time.time() + progress.seconds_left)
            words.append(f"done {time.strftime('%Y-%m-%d %H:%M', at)}")
    return words


def _restart_lines(status: RunStatus) -> list[str]:
    in_a_row = status.restarts_without_checkpoint
    since = f", {in_a_row} since the last checkpoint" if in_a_row else ""
    lines = [f"  restarts     {len(status.restarts)}{since}"]
    shown = status.restarts[-MOST_RESTARTS_SHOWN:]
    if len(shown) < len(status.restarts):
        lines.append(f"    ... {len(status.restarts) - len(shown):,} before these")
    for restart in shown:
        job = f"job {restart.job}: " if restart.job else ""
        lines.append(f"    {restart.at or 'unknown time':20}  {job}{restart.reason}")
    return lines


def _row(status: RunStatus) -> tuple[str, ...]:
    progress, saved = status.progress, status.checkpoint
    unknown = "-"
    return (
        status.run,
        status.state,
        f"{progress.step:,}",
        unknown if progress.steps is None else f"{progress.steps:,}",
        unknown if progress.tokens_per_second is None else f"{progress.tokens_per_second:,.0f}",
        unknown if progress.seconds_left is None else in_words(progress.seconds_left),
        unknown if progress.loss is None else f"{progress.loss:.4f}",
        f"{in_words(saved.age_seconds)} old" if saved else unknown,
        f"{len(status.restarts)}",
    )


def _check_run(path: Path) -> None:
    """Raises ConfigError with what a path is instead of a run."""
    if is_run(path):
        return
    outer = next((folder for folder in path.resolve().parents if is_run(folder)), None)
    if outer and path.exists():
        raise ConfigError(f"{path} is inside a run; give {outer}")
    lines = describe_place(path)
    inside = [folder for folder in path.iterdir() if is_run(folder)] if path.is_dir() else []
    if inside:
        raise ConfigError(f"{path} is a folder of {len(inside)} run(s); give {path}/*")
    if lines:
        kind = lines[0].removeprefix(f"{path}: ")
    elif (path / MANIFEST).exists():
        kind = "shards"
    elif (path / "tokenizer.json").exists():
        kind = "a tokenizer"
    else:
        kind = "a file" if path.is_file() else "a folder without a run"
    raise ConfigError(f"{path} is not a run but {kind}; give the --output of pipeline.train")


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.status",
        description="Show how a run is doing: whether it runs, waits for its restart, was "
        "interrupted, finished or failed; step, speed, time left, last checkpoint, restarts with "
        "their reasons, and the log of what failed. Reads files only, so it works on a login node "
        "and needs no torch.",
        epilog=example_text(
            "python -m pipeline.status data/runs/roberta_large",
            "python -m pipeline.status data/runs/*",
            "python -m pipeline.status data/runs/* --json",
        ),
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run directories: one is shown in full, several with a line each",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a list with an object for each run; unknown values are null",
    )
    return parser.parse_args()


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)
