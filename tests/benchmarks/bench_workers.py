"""pipeline.prepare with one worker, with more, and under MPI, by the clock: needs idle cores.

    python -m tests.benchmarks.bench_workers [--megabytes 4000] [--workers 2]

Whole commands on one JSONL file, which stays in the page cache, alternating, start-up included;
medians. "Outside" is the time by the clock in which no task is under way: planning, joining,
publishing, and the start, which is measured on a file of 100 kB and taken off.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import parse
from tests.benchmarks.vocabulary import bench_vocabulary
from tests.pipeline.preparing import MPIEXEC

GOAL = 1.8
GOAL_OUTSIDE = 0.02

# Run in a process of its own, so that imports count as the user's do.
_TIMED = """
import time
began_at = time.perf_counter()
import json, os, sys
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
    said.write_text(json.dumps([wall, wall - inside]))
"""


def main() -> None:
    options = parse(__doc__, megabytes=4000, workers=2, rounds=3)
    several = options.workers
    ways: dict[str, tuple[list[object], list[object]]] = {
        "1": ([], ["--workers", 1]), str(several): ([], ["--workers", several]),
    }  # fmt: skip
    if MPIEXEC.exists():
        ways[f"{several} MPI ranks"] = ([MPIEXEC, "-n", several], [])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench_vocabulary(work / "tokenizer")
        write_jsonl(work / "small.jsonl", 100_000)
        size = write_jsonl(work / "text.jsonl", options.megabytes * 1_000_000) / 1e6
        starts = {way: _prepare(work, "small", *words)[1] for way, words in ways.items()}
        measured: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, words in ways.items():
                measured[way].append(_prepare(work, "text", *words))
    walls = {}
    for way, rows in measured.items():
        wall, outside = map(statistics.median, zip(*rows, strict=True))
        walls[way] = wall
        share = max(0.0, outside - starts[way]) / wall
        print(
            f"workers: {way}: {size / wall:.1f} MB/s, {wall:.1f} s by the clock; outside tasks "
            f"{outside:.2f} s, of which {starts[way]:.2f} s start: the rest is {share:.1%} "
            f"(goal <= {GOAL_OUTSIDE:.0%})"
        )
    faster = walls["1"] / walls[str(several)]
    print(f"workers: {several} are {faster:.2f}x one by the clock (goal >= {GOAL} of 2)")


def _prepare(
    work: Path, name: str, before: list[object], workers: list[object]
) -> tuple[float, float]:
    """Seconds of a command by the clock, and of them outside tasks."""
    shutil.rmtree(work / "out", ignore_errors=True)
    os.sync()  # so that this run does not wait for what the previous one wrote
    said = work / "said.json"
    command = [
        *before, sys.executable, "-c", _TIMED, said, "--corpus", "text", "--input",
        work / f"{name}.jsonl", "--tokenizer", work / "tokenizer", "--output", work / "out",
        *workers,
    ]  # fmt: skip
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
    wall, outside = json.loads(said.read_text())
    return wall, outside


if __name__ == "__main__":
    main()
