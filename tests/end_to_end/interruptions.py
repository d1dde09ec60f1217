"""Kill or stop `pipeline.train` at many moments, resume it, compare with an undisturbed run.

    python interruptions.py POINTS KILLS TERMS WORK_DIRECTORY ARGUMENTS...

Dies at POINTS of all points at which a checkpoint is written, synced or renamed, by the writer's
thread or the main one (-1: at every point). Then SIGKILL at KILLS random moments, and SIGTERM and
SIGINT at TERMS moments each. ARGUMENTS are pipeline.train's, without --output.

After each death every named checkpoint is complete, the same command resumes, and weights, moments
and metrics at the end are those of an undisturbed run, to the bit. SIGTERM or SIGINT after the file
RUN/ready exists must end in exit code 75 and RUN/INTERRUPTED. Prints what was done.

Each run is one process, forked from this one: Python and DeepSpeed start once.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from pipeline import train
from pipeline.errors import EXIT_INTERRUPTED, run_command
from pipeline.training.checkpoints.read import verify
from tests.pipeline.training.points import Points

POINTS, KILLS, TERMS = map(int, sys.argv[1:4])
WORK = Path(sys.argv[4]).resolve()
ARGUMENTS = sys.argv[5:]
TIMES = ("_seconds", "tokens_per_second", "time", "memory_gb")


def start(run: Path, die_at: int | None = None, count: Path | None = None) -> int:
    """The process of a started run. die_at: number of a point; count: file for their number."""
    process = os.fork()
    if process:
        return process
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        log = os.open(WORK / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        points = Points(-1 if die_at is None else die_at, only=run / "checkpoints")
        if die_at is not None or count:
            points.install()
        sys.argv = ["train", *ARGUMENTS, "--output", str(run)]
        train.main()
    except SystemExit as stop:
        if count:
            count.write_text(str(points.passed))
        os._exit(stop.code if isinstance(stop.code, int) else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def end(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def go_on(run: Path) -> None:
    """Run the same command to the end."""
    code = end(start(run))
    assert code == 0, f"resuming failed with {code}: {(WORK / 'log').read_text()}"


def found(run: Path) -> dict[str, Any]:
    """What must not depend on interruptions: the last checkpoint's tensors, and the metrics."""
    latest = (run / "checkpoints" / "latest").read_text().strip()
    folder = run / "checkpoints" / latest
    tensors = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{k: v for k, v in line.items() if not k.endswith(TIMES)} for line in lines]
    return {"latest": latest, "metrics": kept, **tensors}


def check(run: Path, expected: dict[str, Any], what: str) -> None:
    for directory in (run / "checkpoints").glob("step-*"):
        verify(directory)
    go_on(run)
    result = found(run)
    wrong = [name for name in expected if result.get(name) != expected[name]]
    assert not wrong, f"{what}: other {', '.join(wrong)} than undisturbed"
    assert not (run / "INTERRUPTED").exists() and not list((run / "checkpoints").glob(".*"))
    shutil.rmtree(run)


def die_at_points(expected: dict[str, Any]) -> None:
    count = WORK / "count"
    assert end(start(WORK / "counted", count=count)) == 0
    total = int(count.read_text())
    number = total if POINTS < 0 else POINTS
    for point in (total * (2 * turn + 1) // (2 * number) for turn in range(number)):
        run = WORK / "run"
        code = end(start(run, die_at=point))
        assert code == 137, f"point {point} of {total}: {code}, {(WORK / 'log').read_text()}"
        check(run, expected, f"point {point} of {total}")
    print(number, "of", total, "points")


def signal_at_moments(
    expected: dict[str, Any], number: signal.Signals, count: int, seconds: float
) -> None:
    moments, saved = random.Random(number), 0
    for _ in range(count):
        run, moment = WORK / "run", moments.uniform(0.02, 1.1) * seconds
        process = start(run)
        time.sleep(moment)
        ready = (run / "ready").exists()
        os.kill(process, number)
        code = end(process)
        what = f"signal {number} after {moment:.2f} s, exit code {code}"
        if number != signal.SIGKILL and ready and code != 0:
            assert code == EXIT_INTERRUPTED, f"{what}: {(WORK / 'log').read_text()}"
            assert (run / "INTERRUPTED").exists(), what
            saved += 1
        elif number != signal.SIGKILL:
            assert code in (0, EXIT_INTERRUPTED, -number), what
            marked = code == EXIT_INTERRUPTED and run.exists()
            assert (run / "INTERRUPTED").exists() == marked, what
        check(run, expected, what)
    print(count, number.name, f"in runs of {seconds:.1f} s;", saved, "saved and left")


def main() -> None:
    torch.set_num_threads(1)
    for module in ("deepspeed", "torch.utils.tensorboard", "matplotlib.figure"):
        importlib.import_module(module)  # once, before any fork

    began = time.monotonic()
    go_on(WORK / "undisturbed")
    seconds = time.monotonic() - began
    expected = found(WORK / "undisturbed")
    if POINTS:
        die_at_points(expected)
    signal_at_moments(expected, signal.SIGKILL, KILLS, seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal_at_moments(expected, number, TERMS, seconds)


if __name__ == "__main__":
    run_command(main, at_once=True)
