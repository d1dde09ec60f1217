"""Three learning rates per mini recipe, each for the CPU time of ten minutes on two cores.

    python -m tests.benchmarks.tune_minis --shards DIR --output DIR [--only roberta electra ...]

DIR holds the shards of each family: `roberta`, `electra`, `bert`, `spanbert` and `albert`. The
first family tries half, once and twice 1e-3, each later one the same around the best of the one
before. Every run has its own whole schedule. A finished point is kept in OUTPUT/points.jsonl,
and not run again. Prints lines of the table in pipeline/recipes/MINI.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

FAMILIES = ("roberta", "electra", "bert", "spanbert", "albert")
FIRST = 1e-3
"""The rate in the middle for the first family."""
STEPS = 1_200
"""Steps of roberta_mini in 1,200 CPU seconds, ten minutes of two cores."""
THREADS = 2


def points_of(output: Path) -> list[dict[str, Any]]:
    """The points that are finished."""
    path = output / "points.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(family: str, rate: float, shards: Path, output: Path, steps: int) -> dict[str, Any]:
    """One point: its held-out losses and the CPU seconds it took."""
    run = output / f"{family}-{rate:g}"
    settings = {
        "steps": steps, "optimizer.peak_lr": rate, "schedule.warmup_steps": steps // 20,
        "validation.every": steps, "checkpoint.every": steps, "logging.every": 50,
    }  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pipeline.train", f"{family}_mini", "--data", shards / family]
    command += ["--output", run]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with (output / f"{family}-{rate:g}.log").open("w") as log:
        subprocess.run(
            list(map(str, command)), check=True, stdout=log, stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": str(THREADS)},
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    found = {name: value for name, value in last.items() if name.startswith("validation_")}
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    day = datetime.now(timezone.utc).date().isoformat()
    return {
        "family": family, "peak_lr": rate, "steps": steps, "tokens": last["tokens"],
        "cpu_seconds": round(seconds), "date": day, **found,
    }  # fmt: skip


def score(point: dict[str, Any]) -> float:
    """What the best is chosen by: the whole loss if there is a second part."""
    return float(point["validation_loss"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    middle = FIRST
    for family in arguments.only:
        for rate in (middle, 2 * middle, middle / 2):
            done = [(p["family"], p["peak_lr"], p["steps"]) for p in points_of(arguments.output)]
            if (family, rate, arguments.steps) in done:
                continue
            point = train(family, rate, arguments.shards, arguments.output, arguments.steps)
            with (arguments.output / "points.jsonl").open("a") as file:
                file.write(json.dumps(point) + "\n")
            print(
                f"| `{family}_mini` | {rate:g} | {point['date']} | {arguments.steps:,} | "
                f"{point['cpu_seconds']:,} | {score(point):.4f} | "
                f"{point['validation_mlm_loss']:.4f} |",
                flush=True,
            )
        own = [p for p in points_of(arguments.output) if p["family"] == family]
        middle = min(own, key=score)["peak_lr"]


if __name__ == "__main__":
    main()
