"""pipeline.prepare with one worker and with more, by the clock: needs that many idle cores.

    python -m tests.benchmarks.bench_workers [--megabytes 4000] [--workers 2]

Whole runs on one JSONL file, alternating, start-up included; medians. Also the serial part: CPU
seconds of the process that plans, waits and combines the parts, and the speed-up that this alone
would allow (Amdahl). A busy machine lowers the first figure, but not the second.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pipeline import prepare
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

ROUNDS = 3
GOAL = 1.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=4000, help="text, in the page cache")
    parser.add_argument("--workers", type=int, default=2, help="compared with one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench_vocabulary(work / "tokenizer")
        size = write_jsonl(work / "text.jsonl", options.megabytes * 1_000_000) / 1e6
        measured: dict[int, list[tuple[float, float, float]]] = {1: [], options.workers: []}
        for _ in range(ROUNDS):
            for workers, seconds in measured.items():
                seconds.append(_prepare(work, workers))
        walls = {}
        for workers, seconds in measured.items():
            wall, own, others = (statistics.median(column) for column in zip(*seconds))
            walls[workers] = wall
            print(
                f"workers: {workers}: {size / wall:.1f} MB/s, {wall:.1f} s by the clock; CPU "
                f"{own:.1f} s in the command's process, {others:.1f} s in workers"
            )
        alone = statistics.median(own for _, own, _ in measured[options.workers])
        total = alone + statistics.median(others for _, _, others in measured[options.workers])
        allowed = total / (alone + (total - alone) / options.workers)
        print(
            f"workers: {options.workers} are {walls[1] / walls[options.workers]:.2f}x one by the "
            f"clock (goal >= {GOAL} of 2); the serial part allows {allowed:.2f}x"
        )


def _prepare(work: Path, workers: int) -> tuple[float, float, float]:
    """Seconds of a whole run: by the clock, CPU of this process, CPU of its workers."""
    shutil.rmtree(work / "out", ignore_errors=True)
    os.sync()  # so that this run does not wait for what the previous one wrote
    sys.argv = [
        "prepare", "--corpus", "text", "--input", str(work / "text.jsonl"), "--tokenizer",
        str(work / "tokenizer"), "--output", str(work / "out"), "--workers", str(workers),
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started, own = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.main()
    wall, own = time.perf_counter() - started, time.process_time() - own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, own, others


if __name__ == "__main__":
    main()
