"""slurm/README.md is correct: its ten steps are run as written, then the chain of three jobs."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import ONE_HOST, ROOT, Cluster, Job
from tests.cluster.training import Runs, last_step

README = (ROOT / "slurm" / "README.md").read_text()
STEPS = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^Steps )", README, re.M | re.S)
COMMANDS = [
    line[7:].strip() for _, text in STEPS for line in text.splitlines() if line[:7] == " " * 7
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The result of `git clone` and `make venv`."""
    for name in ("pipeline", "model", "slurm", "ds_configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def test_ten_steps(cluster: Cluster, runs: Runs, checkout: Path) -> None:
    assert [number for number, _ in STEPS] == [str(n) for n in range(1, 11)]
    assert COMMANDS[0].startswith("git clone ") and COMMANDS[1] == "make venv"
    environment = {
        "TENFOLD_ARGS": runs.arguments(), "TENFOLD_LOCAL": str(runs.folder / "local")
    } | ONE_HOST  # fmt: skip
    exports: list[str] = []
    for command in COMMANDS[2:]:
        if command.startswith("export "):
            exports.append(command)
            continue
        script = f"cd {checkout}; " + "; ".join([*exports, command])
        result = cluster.run("bash", "-e", "-c", script, **environment)
        assert result.returncode == 0, command + result.stderr
        if command.startswith("sbatch ") and "--test-only" not in command:
            job = Job(cluster, int(result.stdout.split()[-1]))
            assert job.end() == "COMPLETED", job.log()
    run = checkout / "data" / "runs" / "roberta_tiny"
    assert last_step(run) > 0
    assert (run.with_name("roberta_tiny-export") / "model.safetensors").exists()
    _chain(cluster, checkout, exports, environment)


def _chain(
    cluster: Cluster, checkout: Path, exports: list[str], environment: dict[str, str]
) -> None:
    """pipeline.sh finds shards and run complete, and exports again."""
    again = checkout / "again"
    options = "--prepare --ntasks-per-node=1 --train --ntasks-per-node=1 --gres=gpu:1 --mem=4G"
    command = f"slurm/pipeline.sh roberta_tiny --partition=main {options}"
    script = "; ".join([f"cd {checkout}", *exports, f"{command} --check", command])
    result = cluster.run("bash", "-e", "-c", script, **environment, TENFOLD_EXPORT=str(again))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\nok ") == 7, result.stdout
    numbers = re.findall(r"\d+", result.stdout.splitlines()[-1])
    jobs = [Job(cluster, int(number)) for number in numbers]
    assert [job.field("NumTasks") for job in jobs] == ["1"] * 3
    assert [job.end() for job in jobs] == ["COMPLETED"] * 3, [job.log() for job in jobs]
    assert "complete already" in jobs[0].log() and "nothing to do" in jobs[1].log()
    assert (again / "model.safetensors").exists()


def test_what_follows_a_failure_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    """No job waits forever for a job that has failed."""
    result = cluster.run(
        ROOT / "slurm" / "pipeline.sh", "roberta_large", f"--output={tmp_path}/%j.log",
        "--prepare", "--ntasks-per-node=1", "--train", "--nodes=1", TENFOLD_VENV=sys.prefix,
        TENFOLD_ROOT=str(tmp_path), TENFOLD_CORPUS="nothing-like-this",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    jobs = [Job(cluster, int(number)) for number in re.findall(r"\d+", result.stdout)]
    assert [job.end() for job in jobs] == ["FAILED", "CANCELLED", "CANCELLED"]
    assert "error: unknown corpus 'nothing-like-this'" in jobs[0].log()


def test_what_would_fail_in_the_queue_is_found_before(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing is submitted; each mistake is a line."""
    (tmp_path / "shards" / "wikipedia-roberta_tiny-0123").mkdir(parents=True)
    good = {"TENFOLD_VENV": sys.prefix, "TENFOLD_ROOT": str(tmp_path), "TENFOLD_CORPUS": "cc-news"}
    bad = {"TENFOLD_CORPOS": "x", "TENFOLD_ARGS": "--set stepz=3", "TENFOLD_INPUT": "/no/file"}
    pipeline = ROOT / "slurm" / "pipeline.sh"
    options = ("--partition=main", "--train", "--nodes=3", "--export", "--gres=gpu:9")
    result = cluster.run(pipeline, "--check", "roberta_tiny", *options, **good, **bad, timeout=300)
    assert result.returncode == 2
    for line, expected in zip(
        result.stderr.splitlines(),
        (
            "settings: unknown setting TENFOLD_CORPOS",
            "shards: there would be several shards: ",
            "prepare: /no/file",
            "train: unknown setting stepz",
            "train-request: sbatch refuses it: allocation failure: Node count",
            "export-request: sbatch refuses it: allocation failure: Requested node",
        ),
        strict=True,
    ):
        assert line.startswith(f"error: {expected}"), result.stderr
    for more, recipe, expected in (
        ({"TENFOLD_VENV": "/nowhere"}, "roberta_large", "TENFOLD_VENV=/nowhere has no bin/python"),
        ({}, "roberta_huge", "unknown recipe 'roberta_huge'"),
    ):
        for words in ((), ("--check", "--train", "--nodes=1")):
            result = cluster.run(pipeline, *words[:1], recipe, *words[1:], **good | more)
            errors = [line for line in result.stderr.splitlines() if expected in line]
            assert result.returncode == 2 and len(errors) == 1, result.stderr
    assert not cluster.run("squeue", "--noheader", "--name=prepare").stdout
