"""pipeline.prepare with one worker, with more, and under MPI, by the clock: needs idle cores.

    python -m tests.benchmarks.bench_workers [--megabytes 4000] [--workers 2] [--dedup near]

Whole commands on one JSONL file, alternating, start-up included; medians. "Outside" is the time by
the clock in which no task is under way: planning, joining, publishing, and the start, which is
measured on a file of 100 kB and taken off. Also the serial part: CPU seconds of the process that
plans, waits and combines the parts, and the speed-up that this alone would allow (Amdahl). A busy
machine lowers the first figure, but not the last.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

ROUNDS = 3
GOAL = 1.8
GOAL_OUTSIDE = 0.02
MPIEXEC = Path(sys.executable).parent / "mpiexec"

# Run in a process of its own, so that imports count as the user's do.
_TIMED = """
import time
began_at = time.perf_counter()
import json, os, resource, sys
from pathlib import Path
from pipeline.execution.workers import Executor
inside, depth = 0.0, 0

def timed(method):
    def call(self, *given, **named):
        global inside, depth
        asked_at, depth = time.perf_counter(), depth + 1
        try:
            return method(self, *given, **named)
        finally:
            depth -= 1
            if not depth:
                inside += time.perf_counter() - asked_at
    return call

for name in ("run", "take"):
    setattr(Executor, name, timed(getattr(Executor, name)))
results = Executor.results
together = timed(lambda *given: iter(list(results(*given))))

def counted(self, stage, tasks):  # one function that is called alone is serial work
    alone = stage.directory is None and len(tasks) < 2
    return (results if alone else together)(self, stage, tasks)

Executor.results = counted
from pipeline import prepare
said = Path(sys.argv.pop(1))
prepare.main()
if os.environ.get("PMI_RANK", "0") == "0":
    wall = time.perf_counter() - began_at
    cpu = [sum(resource.getrusage(who)[:2]) for who in
           (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    said.write_text(json.dumps([wall, wall - inside, *cpu]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=4000, help="text, in the page cache")
    parser.add_argument("--workers", type=int, default=2, help="compared with one")
    parser.add_argument("--dedup", default="none", help="as for prepare")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench_vocabulary(work / "tokenizer")
        write_jsonl(work / "small.jsonl", 100_000)
        size = write_jsonl(work / "text.jsonl", options.megabytes * 1_000_000) / 1e6
        several = options.workers
        ways = {"1": (1, 1), str(several): (several, 1)}
        if MPIEXEC.exists():
            ways[f"{several} MPI ranks"] = (1, several)
        starts = {
            way: _prepare(work, "small", *counts, options.dedup)[1] for way, counts in ways.items()
        }
        measured: dict[str, list[list[float]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, counts in ways.items():
                measured[way].append(_prepare(work, "text", *counts, options.dedup))
        medians = {
            way: [statistics.median(column) for column in zip(*rows, strict=True)]
            for way, rows in measured.items()
        }
        for way, (wall, outside, own, others) in medians.items():
            share = max(0.0, outside - starts[way]) / wall
            print(
                f"workers: {way}: {size / wall:.1f} MB/s, {wall:.1f} s by the clock; CPU "
                f"{own:.1f} s in the command's process, {others:.1f} s in its workers; outside "
                f"tasks {outside:.2f} s, of which {starts[way]:.2f} s start: the rest is "
                f"{share:.1%} (goal <= {GOAL_OUTSIDE:.0%})"
            )
        wall, _, alone, others = medians[str(several)]
        allowed = (alone + others) / (alone + others / several)
        print(
            f"workers: {several} are {medians['1'][0] / wall:.2f}x one by the clock (goal >= "
            f"{GOAL} of 2); the serial part allows {allowed:.2f}x"
        )


def _prepare(work: Path, name: str, workers: int, ranks: int, dedup: str) -> list[float]:
    """Seconds of a command: by the clock, of them outside tasks, CPU of it, of its workers."""
    shutil.rmtree(work / "out", ignore_errors=True)
    os.sync()  # so that this run does not wait for what the previous one wrote
    said = work / "said.json"
    command = [
        sys.executable, "-c", _TIMED, str(said), "--corpus", "text", "--input",
        str(work / f"{name}.jsonl"), "--tokenizer", str(work / "tokenizer"), "--output",
        str(work / "out"), "--dedup", dedup,
    ]  # fmt: skip
    if ranks > 1:
        command = [str(MPIEXEC), "-n", str(ranks), *command]
    else:
        command += ["--workers", str(workers)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found: list[float] = json.loads(said.read_text())
    return found


if __name__ == "__main__":
    main()
