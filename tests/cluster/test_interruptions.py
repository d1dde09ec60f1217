"""Whatever stops a job, its run ends bit-identical to an undisturbed one."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cluster.configuration import NODES
from tests.cluster.slurm import Cluster, Job
from tests.cluster.training import STEPS, Runs, last_step, metrics, weights

ENOUGH = 4
"""Steps after which a run is disturbed."""


def under_way(job: Job, run: Path) -> None:
    """Wait until some steps are done and some remain."""
    job.until(lambda: last_step(run) >= ENOUGH)
    assert last_step(run) < STEPS - 5, "too late to disturb it"


def same(run: Path, undisturbed: Path) -> None:
    """Both ended with the same weights and optimizer state, after the same steps."""
    assert last_step(run) == STEPS
    assert weights(run) == weights(undisturbed)
    assert metrics(run) == metrics(undisturbed)


def test_usr1_saves_and_requeues(runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """As --signal sends before the time limit; `scancel --batch` sends the same."""
    job = runs.submit(tmp_path)
    under_way(job, tmp_path)
    steps = last_step(tmp_path)
    job.signal("USR1")
    job.until(lambda: "resuming after step" in job.log())
    saved = int(job.log().split("interrupted at step ")[1].split()[0])
    assert steps <= saved, "a step that was made is lost"
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1"
    assert f"resuming after step {saved}\n" in job.log()
    assert not list(tmp_path.glob(".restarts-*"))
    same(tmp_path, undisturbed)


def test_a_signal_that_comes_too_early_waits(runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """The ranks are still importing torch, and the signal would kill them."""
    job = runs.submit(tmp_path)
    job.until(lambda: "  node02 " in job.log() and bool(runs.cluster.tasks("node02", job)))
    assert not (tmp_path / "ready").exists()
    job.signal("USR1")
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1"
    same(tmp_path, undisturbed)


@pytest.mark.parametrize(("launcher", "name"), [("srun", "TERM"), ("torchrun", "USR1")])
def test_signals_for_direct_children_alone(
    launcher: str, name: str, runs: Runs, undisturbed: Path, tmp_path: Path
) -> None:
    """Sites with proctrack/cgroup signal the processes that slurmstepd started, and no others."""
    job = runs.submit(tmp_path, TENFOLD_LAUNCHER=launcher)
    under_way(job, tmp_path)
    children = [task for node in NODES for task in runs.cluster.tasks(node, job)]
    assert len(children) == 2
    for process in children:
        os.kill(process, signal.Signals[f"SIG{name}"])
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1"
    same(tmp_path, undisturbed)


def test_torchrun_passes_on_what_the_batch_script_gets(
    runs: Runs, undisturbed: Path, tmp_path: Path
) -> None:
    """With both ranks on one node."""
    options = ("--ntasks-per-node=2", "--cpus-per-task=2")
    job = runs.submit(tmp_path, *options, nodes=1, gpus=2, TENFOLD_LAUNCHER="torchrun")
    under_way(job, tmp_path)
    job.signal("USR1")
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1"
    same(tmp_path, undisturbed)


@pytest.mark.parametrize("partition", ["main", "abrupt"])
def test_preemption(partition: str, runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """By a job that needs the GPUs, with and without a grace time."""
    job = runs.submit(tmp_path, f"--partition={partition}", gpus=8)
    under_way(job, tmp_path)
    options = ("--partition=high", "--nodes=2", "--gres=gpu:8")
    other = runs.cluster.submit_command("sleep 1", *options)
    assert job.end() == "COMPLETED", job.log()
    assert other.end() == "COMPLETED"
    assert job.field("Restarts") == "1"
    assert "interrupted at step" in job.log()
    same(tmp_path, undisturbed)


@pytest.mark.parametrize("node", NODES)
def test_a_node_that_fails(
    node: str, cluster: Cluster, runs: Runs, undisturbed: Path, tmp_path: Path
) -> None:
    """Power is cut on the batch script's node or the other: Slurm notices and requeues the job."""
    job = runs.submit(tmp_path, TENFOLD_ARGS=runs.arguments(checkpoint__every=2))
    job.until((tmp_path / "checkpoints" / "latest").exists)  # no signal will trigger a save
    under_way(job, tmp_path)
    cluster.kill(node)
    # Slurm does this itself after SlurmdTimeout
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
    job.until_state("PENDING")
    cluster.boot(node)
    assert job.end() == "COMPLETED", job.log()
    assert "restart 1 of job" in job.log() and "resuming after step" in job.log()
    assert "submit again" not in job.log()
    assert weights(tmp_path) == weights(undisturbed)


def test_a_run_has_one_job_and_a_cancelled_one_is_not_started_again(
    runs: Runs, tmp_path: Path
) -> None:
    """And one start: a second one in the same allocation is refused as well."""
    arguments = runs.arguments(steps=100_000)
    job = runs.submit(tmp_path, TENFOLD_ARGS=arguments)
    job.until(lambda: last_step(tmp_path) >= ENOUGH)
    second = runs.submit(tmp_path, TENFOLD_ARGS=arguments)
    assert second.end() == "FAILED"
    errors = [line for line in second.log().splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and f"belongs to a live job (Slurm job {job.id}," in errors[0]
    assert (second.field("ExitCode"), second.field("Restarts")) == ("2:0", "0")
    assert job.state() == "RUNNING", "the second job disturbed the first"
    again = runs.start_in(job, tmp_path, arguments)
    expected = rf"error: {tmp_path} is in use by an earlier start in this Slurm job, {job.id} "
    assert again.returncode == 2 and re.search(expected, again.stderr), again.stderr
    step = last_step(tmp_path)
    job.until(lambda: last_step(tmp_path) > step)
    job.cancel()
    assert job.end() == "CANCELLED"
    assert job.field("Restarts") == "0"
    assert (tmp_path / "INTERRUPTED").exists(), job.log()
    third = runs.submit(tmp_path, TENFOLD_ARGS=arguments)
    third.until(lambda: "resuming after step" in third.log())
    third.cancel()
    assert third.end() == "CANCELLED"
