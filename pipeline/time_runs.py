"""Times the parts of short runs: `python -m pipeline.time_runs FOLDER`, for `pipeline.ablate`.

A process that trains spends longer on its start than on the steps of a small model, so all runs are
timed in one: FOLDER/0.json, FOLDER/1.json, ... are each prepared on the sample corpus, trained and
scored by the code of the commands. Prints `{"runs": [...]}` with the fields of `RunTimes`, all but
`start`, which only the caller can see.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.base.errors import run_command
from pipeline.base.model_folder import check_imports

if __name__ == "__main__":
    run_command(partial(check_imports, tuple))  # before torch and `model` are imported

from pipeline import evaluate, prepare, train
from pipeline.base.typed_json import as_json
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.data_settings import shard_settings
from pipeline.config.settings import fingerprint
from pipeline.data.shards.manifest import read_manifest
from pipeline.experiments.run_times import MEASURED_STEPS, held_out_rows
from pipeline.kernels.cache import set_torch_caches
from pipeline.released.choice import read_recipe
from pipeline.training.job import read_job
from pipeline.training.network_arguments import parse_train
from pipeline.training.run_directory.metrics_log import read_metrics


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["TENFOLD_ROOT"] = str(folder / "root")
    set_torch_caches()
    files = itertools.takewhile(Path.exists, (folder / f"{i}.json" for i in itertools.count()))
    with redirect_stdout(sys.stderr):  # what commands print goes to the log
        stop = StopRequest()
        cluster = Cluster.join(stop)
        found = [time_run(file, cluster, stop) for file in files]
        cluster.leave()
    print(as_json({"runs": found}))


def time_run(file: Path, cluster: Cluster, stop: StopRequest) -> dict[str, float]:
    """Prepare, train and score the run of a file."""
    data = read_recipe(str(file)).run.data
    # arms with the same data share shards
    shards = file.with_name(f"shards-{fingerprint(shard_settings(data))}")
    output = file.with_suffix("")
    words: list[Any] = ["--corpus", "sample", "--recipe", file, "--output", shards, "--workers", 1]
    prepared = 0.0 if shards.exists() else _seconds(prepare.main, *words)
    words = [file, "--data", shards, "--output", output, "--stop-at", MEASURED_STEPS]
    trained = _seconds(lambda: train.train(read_job(parse_train()), cluster, stop), *words)
    scored = _seconds(evaluate.main, output, "--data", shards, "--json")
    lines = [line for line in read_metrics(output) if "step_seconds" in line]
    steps = [line["step_seconds"] for line in lines]
    return {
        "prepare": prepared,
        "setup": trained - sum(steps[1:]),  # kernels are compiled or loaded in the first step
        "step": median(steps[1:]),  # one slow step does not count
        "step_tokens": lines[-1]["tokens"] / lines[-1]["step"],
        "score": scored,
        "held_out": held_out_rows(read_manifest(shards)),
    }


def _seconds(call: Callable[[], object], *words: object) -> float:
    """Seconds that a command takes with these arguments."""
    sys.argv[1:] = map(str, words)
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    run_command(main, at_once=True)
