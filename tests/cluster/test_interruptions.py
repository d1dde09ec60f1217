"""Whatever stops a job, its run ends bit-identical to an undisturbed one."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.cluster.configuration import NODES
from tests.cluster.slurm import Cluster, Job
from tests.cluster.training import STEPS, Runs, last_step, weights
from tests.pipeline.test_train import lines

ENOUGH = 4
"""Steps after which a run is disturbed."""


def under_way(job: Job, run: Path, resumed: int = 0) -> None:
    """Wait until some steps are done since the run resumed so often, and some remain."""
    job.until(lambda: job.log().count("resuming after step") == resumed)
    enough = ENOUGH + last_step(run) * bool(resumed)
    job.until(lambda: last_step(run) >= enough)
    assert last_step(run) < STEPS - 5, "too late to disturb it"


def same(job: Job, run: Path, undisturbed: Path, restarts: int = 1) -> None:
    """The job ended with the same weights and optimizer state, after the same steps."""
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == str(restarts)
    assert last_step(run) == STEPS
    assert weights(run) == weights(undisturbed)
    assert lines(run) == lines(undisturbed)


def signal_children(job: Job, name: str) -> None:
    """As sites with proctrack/cgroup signal: the processes that slurmstepd started, no others."""
    children = [task for node in NODES for task in job.cluster.tasks(node, job)]
    assert len(children) == 2
    for process in children:
        os.kill(process, signal.Signals[name])


def test_signals_save_and_requeue(runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """Before training, as --signal sends before the time limit, and to each rank alone."""
    job = runs.submit(tmp_path)
    job.until(lambda: "  node02 " in job.log() and bool(runs.cluster.tasks("node02", job)))
    # The ranks are still importing torch, and a signal would kill them: it waits.
    assert not (tmp_path / "ready").exists()
    job.signal("USR1")
    under_way(job, tmp_path)
    steps = last_step(tmp_path)
    job.signal("USR1")
    under_way(job, tmp_path, resumed=1)
    saved = int(re.findall(r"interrupted at step (\d+)", job.log())[-1])
    assert steps <= saved, "a step that was made is lost"
    assert f"resuming after step {saved}\n" in job.log()
    signal_children(job, "SIGTERM")
    same(job, tmp_path, undisturbed, restarts=3)
    assert not list(tmp_path.glob(".restarts-*"))


def test_torchrun_passes_signals_on(runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """Those for its agent on each of two nodes, and those for the batch script, with both ranks on
    one node."""
    apart, together = tmp_path / "apart", tmp_path / "together"
    first = runs.submit(apart, TENFOLD_LAUNCHER="torchrun")
    under_way(first, apart)
    signal_children(first, "SIGUSR1")
    options = ("--ntasks-per-node=2", "--cpus-per-task=2")
    second = runs.submit(together, *options, nodes=1, gpus=2, TENFOLD_LAUNCHER="torchrun")
    under_way(second, together)
    second.signal("USR1")
    same(first, apart, undisturbed)
    same(second, together, undisturbed)


@pytest.mark.parametrize("partition", ["main", "abrupt"])
def test_preemption(partition: str, runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """By a job that needs the GPUs, with and without a grace time."""
    job = runs.submit(tmp_path, f"--partition={partition}", gpus=8)
    under_way(job, tmp_path)
    options = ("--partition=high", "--nodes=2", "--gres=gpu:8")
    other = runs.cluster.submit_command("sleep 1", *options)
    same(job, tmp_path, undisturbed)
    assert other.end() == "COMPLETED"
    assert "interrupted at step" in job.log()


def test_nodes_that_fail(cluster: Cluster, runs: Runs, undisturbed: Path, tmp_path: Path) -> None:
    """Power is cut on the batch script's node, then on the other one: Slurm requeues the job."""
    job = runs.submit(tmp_path, TENFOLD_ARGS=runs.arguments(checkpoint__every=2))
    for resumed, node in enumerate(NODES):
        under_way(job, tmp_path, resumed)
        # no signal will trigger a save
        job.until((tmp_path / "checkpoints" / "latest").exists)
        cluster.kill(node)
        # Slurm does this itself after SlurmdTimeout
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
        job.until(lambda: job.state() == "PENDING")
        cluster.boot(node)
    assert job.end() == "COMPLETED", job.log()
    assert "restart 2 of job" in job.log() and job.log().count("resuming after step") == 2
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
