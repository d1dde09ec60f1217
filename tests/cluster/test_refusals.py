"""Mistakes: one `error:` line at the top of the job's log, at once, and no requeue."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import ROOT, Cluster, Job
from tests.cluster.training import Runs

pytestmark = pytest.mark.xdist_group("refusals")  # their jobs are submitted together
MISTAKES = {
    "missing data": ({"TENFOLD_DATA": "/nowhere"}, "no shards in /nowhere: it has no manifest"),
    "nothing prepared": (
        {"TENFOLD_DATA": "", "TENFOLD_ROOT": "/nowhere"},
        "no shards in /nowhere/shards; run pipeline.prepare",
    ),
    "which shards": ({"TENFOLD_DATA": "", "TENFOLD_ROOT": "two"}, "there are several shards: "),
    "unknown recipe": (
        {"TENFOLD_RECIPE": "roberta_tini"},
        "unknown recipe 'roberta_tini'; did you mean roberta_tiny",
    ),
    "no such folder": (
        {"TENFOLD_RECIPE": "./nowhere"},
        "recipe ./nowhere: no folder .*/nowhere; name one with config.json",
    ),
    "no model": ({"TENFOLD_RECIPE": "./slurm"}, "slurm has no config.json"),
    "neither": ({"TENFOLD_VENV": ""}, "neither TENFOLD_VENV nor TENFOLD_IMAGE is set"),
    "both": ({"TENFOLD_IMAGE": "x.sif"}, "TENFOLD_IMAGE=x.sif are both set; unset one"),
    "no such venv": ({"TENFOLD_VENV": "/nowhere"}, "TENFOLD_VENV=/nowhere has no bin/python"),
    "no image": (
        {"TENFOLD_VENV": "", "TENFOLD_CONTAINER": "apptainer"},
        "TENFOLD_CONTAINER=apptainer asks for a container, but TENFOLD_IMAGE is empty",
    ),
    "missing image": (
        {"TENFOLD_VENV": "", "TENFOLD_CONTAINER": "apptainer", "TENFOLD_IMAGE": "/no.sif"},
        "TENFOLD_IMAGE=/no.sif does not exist",
    ),
    "no runtime": (
        {"TENFOLD_VENV": "", "TENFOLD_IMAGE": "/no.sif"},
        "TENFOLD_IMAGE=/no.sif needs Apptainer, or Slurm with Pyxis; found neither",
    ),
    "unknown container": (
        {"TENFOLD_VENV": "", "TENFOLD_IMAGE": "x", "TENFOLD_CONTAINER": "docker"},
        "TENFOLD_CONTAINER=docker is unknown",
    ),
    "unknown launcher": ({"TENFOLD_LAUNCHER": "mpirun"}, "TENFOLD_LAUNCHER=mpirun is unknown"),
    "no checkout": ({"TENFOLD_HOME": "/nowhere"}, "/nowhere is not Tenfold's checkout"),
    "stale site.env": ({"TENFOLD_SITE_ENV": "stale.env"}, "has TENFOLD_SITE_VERSION=0"),
    "missing site.env": ({"TENFOLD_SITE_ENV": "/nowhere"}, "cannot read /nowhere"),
    "no free port": ({"TENFOLD_PORTS": "taken"}, "no free port in TENFOLD_PORTS="),
    "RUN in a file": ({"TENFOLD_RUN": "/dev/null/run"}, "cannot make TENFOLD_RUN=/dev/null/run"),
}


@pytest.fixture(scope="module")
def jobs(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """A job for every mistake, all at the same time."""
    folder = tmp_path_factory.mktemp("mistakes")
    stale = (ROOT / "slurm" / "site.env").read_text().replace("VERSION=1", "VERSION=0")
    (folder / "stale.env").write_text(stale)
    for corpus in ("news", "books"):
        (folder / "two" / "shards" / f"{corpus}-roberta_tiny-0123").mkdir(parents=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = {
            "stale.env": str(folder / "stale.env"), "two": str(folder / "two"),
            "taken": f"{port}-{port}",
        }  # fmt: skip
        submitted = {}
        for name, (environment, _) in MISTAKES.items():
            changed = {key: found.get(value, value) for key, value in environment.items()}
            run = folder / name.replace(" ", "-")
            submitted[name] = runs.submit(run, nodes=1, gpus=0, **changed)
        for job in submitted.values():
            job.end()
        yield submitted


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, jobs: dict[str, Job], cluster: Cluster) -> None:
    job = jobs[name]
    assert (job.state(), job.field("ExitCode"), job.field("Restarts")) == ("FAILED", "2:0", "0")
    (line,) = job.log().splitlines()
    assert line.startswith("error: ") and re.search(MISTAKES[name][1], line), line


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--partition=nowhere", "invalid partition specified: nowhere"),
        ("--nodes=3", "Node count specification invalid"),
        ("--gres=gpu:9", "Requested node configuration is not available"),
    ],
)
def test_sbatch_refuses_what_the_cluster_has_not(
    option: str, message: str, cluster: Cluster
) -> None:
    result = cluster.sbatch(option, "slurm/roberta_base.sbatch")
    assert result.returncode != 0 and message in result.stderr


def test_gpus_that_ranks_cannot_share_are_refused(runs: Runs, tmp_path: Path) -> None:
    job = runs.submit(tmp_path, "--ntasks-per-node=2", nodes=1, gpus=1)
    assert (job.end(), job.field("ExitCode"), job.field("Restarts")) == ("FAILED", "2:0", "0")
    assert "error: task 1 of node01 sees only GPUs 0" in job.log()
