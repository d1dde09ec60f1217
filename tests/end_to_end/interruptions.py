"""Interrupt `pipeline.train` at many moments, resume it, compare with an undisturbed run.

Dies at `points` of all points at which a checkpoint is written, synced or renamed, by the writer's
thread or the main one (-1: at every point). Then SIGKILL at `kills` random moments, and SIGTERM and
SIGINT at `stops` moments each; seeds are fixed. ARGUMENTS are pipeline.train's, without --output,
and log every step.

After each death every named checkpoint is complete, the same command resumes, and weights, moments
and metrics at the end are those of an undisturbed run, to the bit. SIGTERM or SIGINT loses no step
and, once the file RUN/ready exists, ends in exit code 75 and RUN/INTERRUPTED. SIGKILL loses at most
the steps since the last checkpoint. Prints a line of a table for each death.

Without --ranks each run is one process, forked from this one: Python and DeepSpeed start once. With
--ranks each run starts as a user starts it, and moments count from the start of Python; several
ranks by torchrun, which gets the signal (it passes SIGTERM and SIGINT on to its ranks).
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from pipeline import train
from pipeline.base.command_line import Parser
from pipeline.base.errors import EXIT_INTERRUPTED, run_command
from pipeline.training.checkpoints.read import saved_steps, verify
from tests.pipeline.preparing import children, wait_for_end
from tests.pipeline.test_train import lines, tensors
from tests.pipeline.training.points import Points

COLUMNS = (
    "signal", "after, s", "exit code", "steps made", "last checkpoint", "steps lost",
    "next good step after, s", "same bits",
)  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """How runs of one command start."""

    work: Path
    arguments: tuple[str, ...]
    ranks: int
    """0: forked from this process."""

    def start(self, run: Path, before: Callable[[], object] = lambda: None) -> int:
        """The process of a started run; before: called in it, if it is forked."""
        process = os.fork()
        if process:
            return process
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            log = os.open(self.work / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            own = ["pipeline.train", *self.arguments, "--output", str(run)]
            if self.ranks:
                launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
                first = [*launcher, str(self.ranks), "-m"] if self.ranks > 1 else ["-m"]
                os.execv(sys.executable, [sys.executable, *first, *own])
            before()
            sys.argv = own
            run_command(train.main, at_once=True)
        finally:
            os._exit(1)

    def complete(self, run: Path) -> float:
        """Run the same command to its end; seconds until its first step after the checkpoint."""
        earlier, saved = read(run / "metrics.jsonl"), saved_step(run)
        began, process = time.monotonic(), self.start(run)
        seconds, ended = 0.0, 0
        while not ended:
            ended, status = os.waitpid(process, os.WNOHANG)
            now = read(run / "metrics.jsonl")
            if not seconds and now != earlier and last_step(now) > saved:
                seconds = time.monotonic() - began
            time.sleep(0.01)
        code = os.waitstatus_to_exitcode(status)
        assert code == 0, f"resuming failed with {code}: {self.log()}"
        return seconds

    def log(self) -> str:
        return (self.work / "log").read_text()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def last_step(metrics: str) -> int:
    """Of the last whole line."""
    whole = metrics.rpartition("\n")[0].splitlines()
    return int(json.loads(whole[-1])["step"]) if whole else 0


def saved_step(run: Path) -> int:
    return max(saved_steps(run / "checkpoints"), default=0)


def found(run: Path) -> dict[str, Any]:
    """What must not depend on interruptions: the last checkpoint's tensors, and the metrics."""
    latest = (run / "checkpoints" / "latest").read_text().strip()
    return {"latest": latest, "metrics": lines(run), **tensors(run, saved_step(run))}


def check(runs: Runs, run: Path, expected: dict[str, Any], what: str) -> float:
    """Check what an interruption left, and the end of the resumed run.

    Returns the seconds until its next step.
    """
    for directory in (run / "checkpoints").glob("step-*"):
        verify(directory)
    seconds = runs.complete(run)
    result = found(run)
    wrong = [name for name in expected if result.get(name) != expected[name]]
    assert not wrong, f"{what}: other {', '.join(wrong)} than undisturbed"
    assert not (run / "INTERRUPTED").exists() and not list((run / "checkpoints").glob(".*"))
    shutil.rmtree(run)
    return seconds


def die_at_points(runs: Runs, expected: dict[str, Any], count: int) -> None:
    """Die at `count` points of all; at every one if it is negative."""
    run, counted = runs.work / "run", runs.work / "points"

    def until(die_at: int) -> None:
        points = Points(die_at, only=run / "checkpoints")
        points.install()
        exit_now = os._exit

        def report(code: int) -> None:
            counted.write_text(str(points.passed))
            exit_now(code)

        if die_at < 0:
            os._exit = report  # type: ignore[assignment]

    assert end(runs.start(run, lambda: until(-1))) == 0, runs.log()
    shutil.rmtree(run)
    total = int(counted.read_text())
    number = total if count < 0 else count
    for point in (total * (2 * turn + 1) // (2 * number) for turn in range(number)):
        code = end(runs.start(run, lambda: until(point)))  # noqa: B023
        assert code == 137, f"point {point} of {total}: {code}, {runs.log()}"
        check(runs, run, expected, f"point {point} of {total}")
    print(number, "of", total, "points\n", flush=True)


def signal_at_moments(
    runs: Runs, expected: dict[str, Any], number: signal.Signals, count: int, seconds: float
) -> None:
    """Send a signal to `count` runs, which take `seconds`, and print what each did."""
    moments, run = random.Random(number), runs.work / "run"
    for turn in range(count):
        moment = seconds * (turn + moments.random()) / count
        process = runs.start(run)
        time.sleep(moment)
        ready = (run / "ready").exists()
        ranks = children(process)
        os.kill(process, number)
        code = end(process)
        wait_for_end(*ranks)
        made, saved = last_step(read(run / "metrics.jsonl")), saved_step(run)
        what = f"{number.name} after {moment:.2f} s, exit code {code}, step {made}"
        row = [number.name, f"{moment:.1f}", code, made, saved, max(0, made - saved)]
        if number == signal.SIGKILL:
            every = json.loads(read(run / "run.json") or "{}").get("run", {}).get("checkpoint", {})
            assert made - saved <= 2 * int(every.get("every", 0)), what
        else:
            check_stop(runs, run, ready, code, number, f"{what}: {runs.log()}")
            assert made <= saved, what
        left = expected["metrics"][-1]["step"] - saved
        after = check(runs, run, expected, what)
        print_row(*row, f"{after:.1f}" if left else "-", "yes")


def check_stop(
    runs: Runs, run: Path, ready: bool, code: int, number: signal.Signals, what: str
) -> None:
    """Exit code and mark of a run that was asked to stop; ready: before it was."""
    marked = (run / "INTERRUPTED").exists()
    if runs.ranks > 1:  # torchrun has exit codes of its own
        made = last_step(read(run / "metrics.jsonl"))
        assert marked or not ready or saved_step(run) == made, what
        return
    at_first = -number  # Python itself starts: a tenth of a second
    assert code in ((0, EXIT_INTERRUPTED) if ready else (0, EXIT_INTERRUPTED, at_first)), what
    assert marked == (code == EXIT_INTERRUPTED and run.exists()), what


def end(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def main() -> None:
    usage = "python %(prog)s WORK [--points N] [--kills N] [--stops N] [--ranks N] -- ARGUMENTS..."
    parser = Parser(prog="interruptions.py", usage=usage, description=__doc__)
    parser.add_argument("work", type=Path, metavar="WORK", help="new directory for all runs")
    for name, words in (
        ("points", "deaths while a checkpoint is written; only without --ranks"),
        ("kills", "runs that get SIGKILL"),
        ("stops", "runs that get SIGTERM, and as many SIGINT"),
        ("ranks", "start new processes instead of forks"),
    ):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N", help=words)
    parser.add_argument(
        "arguments", nargs="+", metavar="ARGUMENTS", help="after --: those of pipeline.train"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = Runs(options.work.resolve(), tuple(options.arguments), options.ranks)
    if not runs.ranks:
        for module in ("deepspeed", "torch.utils.tensorboard", "PIL.ImageDraw"):
            importlib.import_module(module)  # once, before any fork

    began = time.monotonic()
    runs.complete(runs.work / "undisturbed")
    seconds = time.monotonic() - began
    expected = found(runs.work / "undisturbed")
    if options.points:
        die_at_points(runs, expected, options.points)
    print(f"Runs of {expected['metrics'][-1]['step']} steps and {seconds:.1f} s.\n")
    print_row(*COLUMNS)
    print_row(*["---"] * len(COLUMNS))
    signal_at_moments(runs, expected, signal.SIGKILL, options.kills, seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal_at_moments(runs, expected, number, options.stops, seconds)


if __name__ == "__main__":
    run_command(main, at_once=True)
