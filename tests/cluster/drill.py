"""From text to scores on two nodes, with kills: what a change of many rooms can break at once.

    make drill        as root, on Debian, like `make test-cluster`; at most ten minutes

Text is prepared by MPI ranks, one of which is killed, and by a job array, of which an element is
requeued: the shards are the same bytes. A model trains on them on two nodes, one of which loses its
power: its weights are those of an undisturbed run. It is exported by a job, and scored.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.slurm import ONE_HOST, Cluster
from tests.cluster.test_interruptions import under_way
from tests.cluster.training import STEPS, Runs, last_step, weights
from tests.pipeline.preparing import contents

PREPARE, EXPORT = "slurm/prepare.sbatch", "slurm/export.sbatch"
SMALL = ("--cpus-per-task=1", "--mem-per-cpu=500M", "--time=10")


def test_from_text_to_scores(cluster: Cluster, tmp_path: Path) -> None:
    clock = time.monotonic()

    def done(what: str) -> None:
        print(f"{time.monotonic() - clock:4.0f} s  {what}", flush=True)

    common = {
        "TENFOLD_VENV": sys.prefix, "TENFOLD_LOCAL": str(tmp_path / "local"),
        "TENFOLD_RECIPE": "roberta_tiny", "TENFOLD_CORPUS": "sample",
    }  # fmt: skip
    by_ranks, by_parts = (
        common | {
            "TENFOLD_ROOT": str(tmp_path / way),
            "TENFOLD_PREPARE_ARGS": f"--output {tmp_path / way / 'shards'}",
        } | ONE_HOST
        for way in ("ranks", "parts")
    )  # fmt: skip
    four = ("--nodes=2", "--ntasks-per-node=2", *SMALL)
    job = cluster.submit(PREPARE, *four, **by_ranks)
    job.until(lambda: "4 ranks on 2 node(s)" in job.log() and bool(cluster.tasks("node02", job)))
    for process in cluster.tasks("node02", job)[:1]:
        os.kill(process, signal.SIGKILL)
    assert job.end() == "FAILED", job.log()
    job = cluster.submit(PREPARE, *four, **by_ranks)
    assert job.end() == "COMPLETED", job.log()
    shards = tmp_path / "ranks" / "shards"
    done("prepared by 4 ranks on 2 nodes, one of which had been killed")

    array = cluster.submit(PREPARE, "--array=1-2", "--ntasks-per-node=1", *SMALL, **by_parts)
    elements = [array.element(number) for number in (1, 2)]
    elements[0].until(lambda: elements[0].state() == "RUNNING")
    assert cluster.run("scontrol", "requeue", elements[0].id).returncode == 0
    assert [each.end() for each in elements] == ["COMPLETED"] * 2, elements[0].log()
    assert contents(tmp_path / "parts" / "shards") == contents(shards)
    done("prepared by a job array, of which an element had been requeued: the same bytes")

    runs = Runs(cluster, shards, tmp_path)
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    job = runs.submit(undisturbed)
    assert job.end() == "COMPLETED", job.log()
    job = runs.submit(run, TENFOLD_ARGS=runs.arguments(checkpoint__every=2))
    under_way(job, run)
    job.until((run / "checkpoints" / "latest").exists)
    cluster.kill("node02")
    cluster.run("scontrol", "update", "NodeName=node02", "State=DOWN", "Reason=power")
    job.until(lambda: job.state() == "PENDING")
    cluster.boot("node02")
    assert job.end() == "COMPLETED", job.log()
    assert last_step(run) == STEPS and weights(run) == weights(undisturbed)
    done("trained on 2 nodes, one of which had lost its power: the same weights")

    folder = tmp_path / "model"
    given = common | {"TENFOLD_RUN": str(run), "TENFOLD_EXPORT": str(folder)}
    job = cluster.submit(EXPORT, "--cpus-per-task=1", "--mem=2G", **given)
    assert job.end() == "COMPLETED", job.log()
    scores = [
        cluster.run(sys.executable, "-m", "pipeline.evaluate", model, "--data", shards, "--json")
        for model in (folder, run)
    ]
    losses = [json.loads(each.stdout)["loss"] for each in scores]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and 0 < losses[0] < 9
    done("exported by a job, and scored")
