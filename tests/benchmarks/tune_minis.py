"""Learning rates and curves of the mini recipes on real text.

    python -m tests.benchmarks.tune_minis --shards DIR --output DIR [--only roberta electra ...]
        [--precision bf16] [--jobs N] [--curves [--steps N] [--seeds N ...]]

DIR holds the shards of each family: `roberta`, which `modernbert` reads too, `electra`, `bert`,
`spanbert` and `albert`. Each family tries half, once and twice 8e-4 for the steps that two cores do
in ten minutes in float32, after the recipe's warm-up and down to zero. --curves trains each recipe
as it is instead: `roberta_mini` for all its steps, the others for HALF_HOUR_STEPS, or each for
--steps. Runs use one thread each, --jobs of them at once. A finished one is kept in
OUTPUT/points.jsonl and not run again; an interrupted curve continues. Prints lines of the tables in
pipeline/recipes/MINI.md.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from pipeline.recipes import recipe

FAMILIES = ("roberta", "electra", "bert", "spanbert", "albert", "modernbert")
SHARDS_OF = {"modernbert": "roberta"}
"""Families that read another's shards."""
RATES = (4e-4, 8e-4, 1.6e-3)
POINT_STEPS = 1_200
"""Steps of roberta_mini in ten minutes on two cores, in float32."""
CURVE_STEPS = {"roberta": 14_000}
HALF_HOUR_STEPS = 5_300
"""Steps of a curve that CURVE_STEPS does not name: in bfloat16 half an hour on one core."""


class Trial(NamedTuple):
    """One run: a family's recipe for some steps; rate: None for the recipe's."""

    family: str
    steps: int
    rate: float | None
    precision: str
    seed: int

    @property
    def name(self) -> str:
        rate = "recipe" if self.rate is None else f"{self.rate:g}"
        initializer = recipe(f"{self.family}_mini").encoder.initializer
        name = f"{self.family}-{rate}-{self.steps}-{self.precision}-{initializer}"
        return f"{name}-{self.seed}" if self.seed else name


def train(trial: Trial, shards: Path, output: Path) -> dict[str, Any]:
    """Run to the end, from where it stands: its held-out losses and its CPU seconds."""
    run = output / trial.name
    settings = {
        "steps": trial.steps, "precision": trial.precision, "seed": trial.seed, "logging.every": 50,
    }  # fmt: skip
    if trial.rate is not None:
        settings |= {"optimizer.peak_lr": trial.rate}
        settings |= dict.fromkeys(("validation.every", "checkpoint.every"), trial.steps)
    command = [sys.executable, "-m", "pipeline.train", f"{trial.family}_mini", "--output", run]
    command += ["--data", shards / SHARDS_OF.get(trial.family, trial.family)]
    command += [f"--set={name}={value}" for name, value in settings.items()]
    with (output / f"{trial.name}.log").open("a") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{trial.name} ended with {child.returncode}, see {log.name}")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "name": trial.name, **trial._asdict(), "tokens": last["tokens"],
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
        "date": datetime.now(timezone.utc).date().isoformat(),
        **{name: value for name, value in last.items() if name.startswith("validation_")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--steps", type=int, help="of every curve (default: see above)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of every curve")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    kept, lock = arguments.output / "points.jsonl", Lock()
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {json.loads(line)["name"] for line in lines}

    def finish(trial: Trial) -> None:
        point = train(trial, arguments.shards, arguments.output)
        with lock, kept.open("a") as file:
            file.write(json.dumps(point) + "\n")
        print(
            f"| `{trial.family}_mini` | {trial.rate or 'recipe'} | {point['date']} | "
            f"{trial.steps:,} | {point['cpu_seconds']:,} | {point['validation_loss']:.4f} | "
            f"{point['validation_mlm_loss']:.4f} |",
            flush=True,
        )

    if arguments.curves:
        steps_of = {family: arguments.steps or CURVE_STEPS.get(family, HALF_HOUR_STEPS)
                    for family in FAMILIES}  # fmt: skip
        rates, seeds = (None,), arguments.seeds
    else:
        steps_of, rates, seeds = dict.fromkeys(FAMILIES, POINT_STEPS), RATES, [0]
    trials = [
        Trial(family, steps_of[family], rate, arguments.precision, seed)
        for seed in seeds
        for family in arguments.only
        for rate in rates
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(finish, (trial for trial in trials if trial.name not in done)))


if __name__ == "__main__":
    main()
