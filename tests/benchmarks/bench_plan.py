"""Seconds per step that a plan expects from a site's first run, beside those of a second run.

    python -m tests.benchmarks.bench_plan [--recipes roberta_tiny ...] [--steps 60] [--threads 2]

For each recipe: prepares the sample corpus, trains some steps with an empty site.json, asks
`pipeline.plan --json` for as many cores as threads, and trains again. `roberta_base` makes three
steps, in fp32, four rows at a time. Runs are by the clock, so other work on the machine shows: the
goal is for an idle one.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from pipeline.base.errors import run_command
from tests.benchmarks.timing import parse, run_alone
from tests.pipeline.conftest import keep_held_out

RECIPES = ["roberta_tiny", "roberta_mini", "roberta_base"]
SEQUENCES, BASE_STEPS, BASE_ROWS = 32, 3, 4
GOAL = 0.20
SETTINGS = (
    "precision=fp32", f"batch.sequences={SEQUENCES}", "schedule.warmup_steps=1",
    "validation.every=1000000", "checkpoint.every=1000000",
)  # fmt: skip


def main() -> None:
    options = parse(__doc__, recipes=RECIPES, steps=60, threads=2)
    for name in options.recipes:
        steps = min(options.steps, BASE_STEPS) if name == "roberta_base" else options.steps
        with tempfile.TemporaryDirectory() as folder:
            bench(name, steps, options.threads, Path(folder))


def bench(name: str, steps: int, threads: int, work: Path) -> None:
    """Train, plan and train again in an empty directory; print a line."""
    shards = work / "shards"
    environment = {
        "TENFOLD_ROOT": str(work), "OMP_NUM_THREADS": str(threads),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # ninja is there
    }  # fmt: skip

    def command(name: str, *words: object) -> str:
        return run_alone(sys.executable, "-m", f"pipeline.{name}", *words, **environment).said

    command("prepare", "--corpus", "sample", "--recipe", name, "--output", shards)
    keep_held_out(shards, 1)  # a run validates at its end, which is not measured here
    rows = BASE_ROWS if name == "roberta_base" else SEQUENCES
    chosen = (*SETTINGS, f"steps={steps}", f"batch.per_device={rows}")
    given = (name, "--data", shards, *(word for value in chosen for word in ("--set", value)))
    command("train", *given, "--output", work / "first")
    content = json.loads(command("plan", *given, "--cpu", "--cores", threads, "--json"))
    planned = next(part for part in content["sections"]["step"] if part["name"] == "step")
    command("train", *given, "--output", work / "second")
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


if __name__ == "__main__":
    run_command(main)
