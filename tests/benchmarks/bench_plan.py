"""Seconds per step that a plan expects from a site's first run, beside those of a second run.

    python -m tests.benchmarks.bench_plan [--recipes roberta_tiny ...] [--steps 60] [--threads 2]

For each recipe: prepares the sample corpus, trains some steps with an empty site.json, asks
`pipeline.plan --json`, and trains again. `roberta_base` makes three steps, in fp32, four rows at a
time. Runs are by the clock, so other work on the machine shows: the goal is for an idle one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline.base.errors import run_command
from tests.pipeline.conftest import keep_held_out

RECIPES = ("roberta_tiny", "roberta_mini", "roberta_base")
SEQUENCES, BASE_STEPS, BASE_ROWS = 32, 3, 4
GOAL = 0.20
SETTINGS = (
    "precision=fp32", f"batch.sequences={SEQUENCES}", "schedule.warmup_steps=1",
    "validation.every=1000000", "checkpoint.every=1000000",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument(
        "--steps", type=int, default=60,
        help=f"of each run (default: 60); roberta_base makes {BASE_STEPS} at most",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=2, help="of torch, and cores planned for")
    options = parser.parse_args()
    for name in options.recipes:
        steps = min(options.steps, BASE_STEPS) if name == "roberta_base" else options.steps
        with tempfile.TemporaryDirectory() as folder:
            bench(name, steps, options.threads, Path(folder))


def bench(name: str, steps: int, threads: int, work: Path) -> None:
    """Train, plan and train again in an empty directory; print a line."""
    shards = work / "shards"
    command(work, threads, "prepare", "--corpus", "sample", "--recipe", name, "--output", shards)
    hold_out_less(shards)
    rows = BASE_ROWS if name == "roberta_base" else SEQUENCES
    chosen = (*SETTINGS, f"steps={steps}", f"batch.per_device={rows}")
    changes = [word for value in chosen for word in ("--set", value)]
    train = ("train", name, "--data", shards, *changes)
    command(work, threads, *train, "--output", work / "first")
    words = ("plan", name, "--data", shards, *changes, "--cpu", "--cores", threads, "--json")
    content = json.loads(command(work, threads, *words))
    planned = next(part for part in content["sections"]["step"] if part["name"] == "step")
    command(work, threads, *train, "--output", work / "second")
    first, second = (
        json.loads((work / run / "plan.json").read_text())["seconds_per_step"]
        for run in ("first", "second")
    )
    assert planned["basis"] == "measured here"
    off = planned["value"] / second["measured"] - 1
    print(
        f"plan: {name}, {SEQUENCES} sequences per step, {steps} steps, {threads} threads: without "
        f"a measurement {first['predicted']:.3g} s, first run {first['measured']:.3g} s, then "
        f"planned {planned['value']:.3g} s, second run {second['measured']:.3g} s: {off:+.1%} "
        f"(goal within {GOAL:.0%})",
        flush=True,
    )


def hold_out_less(shards: Path) -> None:
    """Keep the smallest held-out shard: a run validates at its end, which is not measured here."""
    keep_held_out(shards, shards, 1)


def command(root: Path, threads: int, name: str, *words: object) -> str:
    """The output of a command of the pipeline, whose TENFOLD_ROOT is `root`."""
    beside = str(Path(sys.executable).parent)  # ninja is there
    result = subprocess.run(
        [sys.executable, "-m", f"pipeline.{name}", *map(str, words)],
        env=os.environ | {
            "TENFOLD_ROOT": str(root), "OMP_NUM_THREADS": str(threads),
            "PATH": f"{beside}:{os.environ['PATH']}",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        sys.exit(f"{name} ended with {result.returncode}: {result.stderr}")
    return result.stdout


if __name__ == "__main__":
    run_command(main)
