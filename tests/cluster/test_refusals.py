"""Mistakes: one `error:` line at the top of the job's log, at once, and no requeue."""

import re
import socket
from pathlib import Path

from tests.cluster.slurm import ROOT, Cluster, Job
from tests.cluster.training import Runs

MISTAKES = {
    "missing data": ({"TENFOLD_DATA": "/nowhere"}, "no shards in /nowhere: it has no manifest"),
    "nothing prepared": (
        {"TENFOLD_DATA": "", "TENFOLD_ROOT": "/nowhere"},
        "no shards in /nowhere/shards; run pipeline.prepare",
    ),
    "which shards": ({"TENFOLD_DATA": "", "TENFOLD_ROOT": "two"}, "there are several shards: "),
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


def is_a_mistake(job: Job) -> bool:
    """It failed with exit code 2, and did not start again."""
    found = (job.end(), job.field("ExitCode"), job.field("Restarts"))
    return found == ("FAILED", "2:0", "0")


def test_mistakes_are_one_line(runs: Runs, tmp_path: Path) -> None:
    """A job for each, all at the same time."""
    stale = (ROOT / "slurm" / "site.env").read_text().replace("VERSION=1", "VERSION=0")
    (tmp_path / "stale.env").write_text(stale)
    for corpus in ("news", "books"):
        (tmp_path / "two" / "shards" / f"{corpus}-roberta_tiny-0123").mkdir(parents=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = {
            "stale.env": str(tmp_path / "stale.env"), "two": str(tmp_path / "two"),
            "taken": f"{port}-{port}",
        }  # fmt: skip
        jobs = {}
        for name, (environment, _) in MISTAKES.items():
            changed = {key: found.get(value, value) for key, value in environment.items()}
            run = tmp_path / name.replace(" ", "-")
            jobs[name] = runs.submit(run, nodes=1, gpus=0, **changed)
        for name, job in jobs.items():
            assert is_a_mistake(job), name + job.log()
            (line,) = job.log().splitlines()
            assert line.startswith("error: ") and re.search(MISTAKES[name][1], line), line


def test_sbatch_refuses_what_the_cluster_has_not(cluster: Cluster) -> None:
    for option in ("--partition=nowhere", "--nodes=3", "--gres=gpu:9"):
        assert cluster.sbatch(option, "slurm/roberta_base.sbatch").returncode != 0


def test_gpus_that_ranks_cannot_share_are_refused(runs: Runs, tmp_path: Path) -> None:
    job = runs.submit(tmp_path, "--ntasks-per-node=2", nodes=1, gpus=1)
    assert is_a_mistake(job), job.log()
    assert "error: task 1 of node01 sees only GPUs 0" in job.log()
