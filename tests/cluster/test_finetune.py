"""Tasks and seeds as a job array give the scores of one process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import ROOT, Cluster
from tests.launching.process import run

BATCH_FILE = "slurm/finetune.sbatch"
SMALL = ("--cpus-per-task=1", "--mem=1G", "--gres=none", "--time=10")
MODEL = ROOT / "tests/golden/exports/bert"
SEEDS = ("--seeds", "2", "--epochs", "1", "--baselines", "majority")
TASKS = {
    "sst2": ("sentence\tlabel", "the film is {}\t{}"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\ta film\tit is {}\t{}"),
}
"""Header and line of a file."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A folder of files as published for each task."""
    for task, (header, line) in TASKS.items():
        for name, count in (("train.tsv", 24), ("dev.tsv", 10)):
            lines = [line.format(("bad", "good")[i % 2], i % 2) for i in range(count)]
            (tmp_path / task).mkdir(exist_ok=True)
            (tmp_path / task / name).write_text("\n".join([header, *lines]) + "\n")
    return {task: tmp_path / task for task in TASKS}


def environment(files: dict[str, Path], scores: Path) -> dict[str, str]:
    """The variables that a user exports."""
    return {
        "TENFOLD_VENV": sys.prefix,
        "TENFOLD_MODEL": str(MODEL),
        "TENFOLD_TASKS": " ".join(f"{task}={folder}" for task, folder in files.items()),
        "TENFOLD_SCORES": str(scores),
        "TENFOLD_LOCAL": str(scores.parent / "local"),
        "TENFOLD_DOCTOR": "off",
        "TENFOLD_FINETUNE_ARGS": " ".join(SEEDS),
    }


def scores_of(output: Path) -> dict[str, Any]:
    """The scores, without how long they took."""
    found: dict[str, Any] = json.loads((output / "scores.json").read_text())
    del found["seconds"]
    for part in found["runs"]:
        del part["seconds"]
    return found


def test_tasks_and_seeds_as_an_array(
    cluster: Cluster, files: dict[str, Path], tmp_path: Path
) -> None:
    """On both nodes; numbered task by task, one submitted later by itself, as after a kill.

    Without the doctor, which takes longer than they.
    """
    scores = tmp_path / "scores"
    variables = environment(files, scores)
    first = cluster.submit(BATCH_FILE, "--array=0,1,3", *SMALL, **variables)
    elements = {number: first.element(number) for number in (0, 1, 3)}
    assert [element.end() for element in elements.values()] == ["COMPLETED"] * 3, first.log()
    assert "1 of 2 fine-tunings are left" in elements[3].log(), elements[3].log()
    last = cluster.submit(BATCH_FILE, "--array=2", *SMALL, **variables)
    elements[2] = last.element(2)
    assert elements[2].end() == "COMPLETED", last.log()
    for number, element in elements.items():
        (task, seed) = (list(TASKS)[number // 2], number % 2)
        assert f"model seed {seed}, " in element.log(), element.log()
        assert f"{scores / task}" in element.log() or f"model seed {1 - seed}" not in element.log()
    for task, folder in files.items():
        alone = tmp_path / "alone" / task
        command = [sys.executable, "-m", "pipeline.finetune", MODEL, "--task", task, "--data"]
        local = run([*command, folder, "--output", alone, *SEEDS], env=cluster.environment())
        assert local.returncode == 0, local.stderr
        assert scores_of(scores / task) == scores_of(alone)
        assert (scores / task / "model/model.safetensors").exists()


def test_mistakes_are_one_line(cluster: Cluster, files: dict[str, Path], tmp_path: Path) -> None:
    jobs = []
    for array, changes, message in (
        ("4", {}, "element 4 is none of 2 tasks with 2 seeds each; give --array=0-3"),
        ("0", {"TENFOLD_FINETUNE_ARGS": "--seeds=x"}, "--seeds x in TENFOLD_FINETUNE_ARGS"),
        ("0-1", {"TENFOLD_MODEL": ""}, "TENFOLD_MODEL is not set"),
        ("0-1", {"TENFOLD_TASKS": ""}, "TENFOLD_TASKS is not set"),
        ("", {}, "submit this file as an array"),
    ):
        variables = environment(files, tmp_path / "scores") | changes
        options = [f"--array={array}"] if array else []
        job = cluster.submit(BATCH_FILE, *options, *SMALL, **variables)
        jobs.append((job.element(int(array[-1])) if array else job, message))
    for job, message in jobs:
        assert (job.end(), job.field("ExitCode")) == ("FAILED", "2:0"), job.log()
        (line,) = job.log().splitlines()
        assert line.startswith("error: ") and message in line
    assert not (tmp_path / "scores").exists()
