"""The status of runs in words: one in full, or several in a table. Needs no torch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from pipeline.base.durations import in_words
from pipeline.config.mask_rates import at_rate
from pipeline.training.run_directory.run_status import RUNNING, WAITING, RunStatus

MOST_RESTARTS_SHOWN = 10
COLUMNS = ("run", "state", "step", "of", "tokens/s", "left", "loss", "checkpoint", "restarts")


def describe_run(status: RunStatus) -> list[str]:
    """Lines with all that is known of one run."""
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


def tabulate_runs(found: Sequence[RunStatus]) -> list[str]:
    """Lines of a table with a row for each run, then what is damaged."""
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
        # Rounded down: 100 % is a run that is done.
        f" ({math.floor(1000 * progress.step / progress.steps) / 10} %)" if progress.steps else ""
    )
    words = [f"{progress.step:,}{of}{share}"]
    if progress.words is not None:
        words.append(f"{progress.words:,} words")
    held_out = f"validation loss{at_rate(progress.validation_mask_rate)}"
    for called, loss, since in (
        ("loss", progress.loss, progress.loss_nan_since),
        (held_out, progress.validation_loss, progress.validation_loss_nan_since),
    ):
        if since is not None:
            words.append(f"{called} nan since step {since:,}")
        elif loss is not None:
            words.append(f"{called} {loss:.4f}")
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
    loss = unknown if progress.loss is None else f"{progress.loss:.4f}"
    return (
        status.run,
        status.state,
        f"{progress.step:,}",
        unknown if progress.steps is None else f"{progress.steps:,}",
        unknown if progress.tokens_per_second is None else f"{progress.tokens_per_second:,.0f}",
        unknown if progress.seconds_left is None else in_words(progress.seconds_left),
        loss if progress.loss_nan_since is None else "nan",
        f"{in_words(saved.age_seconds)} old" if saved else unknown,
        f"{len(status.restarts)}",
    )
