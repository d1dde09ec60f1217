"""When a job is restarted, without which nodes, and when it is given up."""

import os
import signal
import sys
from pathlib import Path

from pipeline.training.run_directory.run_status import read_status
from tests.cluster.configuration import NODES
from tests.cluster.slurm import Cluster
from tests.cluster.training import Runs, last_step, weights


def test_slow_and_failed_nodes_are_excluded(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    """As long as enough nodes remain for the job."""
    arguments = runs.arguments(steps=300, checkpoint__every=2)
    job = runs.submit(tmp_path, nodes=1, TENFOLD_ARGS=arguments)
    job.until(lambda: last_step(tmp_path) >= 4)
    slow = job.field("NodeList")
    (other,) = {*NODES} - {slow}
    (tmp_path / ".slow-nodes").write_text(f"{slow}\n")
    job.signal("USR1")
    job.until(lambda: job.log().count("resuming after step") == 1)
    assert (job.field("ExcNodeList"), job.field("NodeList")) == (slow, other)
    step = last_step(tmp_path)
    job.until(lambda: last_step(tmp_path) > step)
    (rank,) = cluster.tasks(other, job)
    os.kill(rank, signal.SIGKILL)
    job.until(lambda: job.log().count("resuming after step") == 2)
    assert f"slurm: a rank was killed on {other}\n" in job.log()
    assert "not excluding node[01-02]: 0 other nodes are up, 1 are needed" in job.log()
    assert job.field("ExcNodeList") == slow
    job.cancel()


FAULTS = """#!/bin/sh
# Python whose rank on node02 has a fault in every life of the job; the other rank lives on.
[ -n "$RANK" ] || exec {python} "$@"
life=${{SLURM_RESTART_COUNT:-0}}
case "$life $*" in
1*pipeline.doctor*) exit 70 ;;
*pipeline.doctor*) exec {python} "$@" ;;
esac
# No fault before both ranks are here and ignore TERM: one that still starts would end at once.
here="$0.$life.$RANK" other="$0.$life.$((1 - RANK))"
echo $$ >"$here.new" && mv "$here.new" "$here"
until [ -e "$other" ]; do sleep 0.1; done
case $life/$RANK in
0/1) echo 'torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1 ;;
0/0) exec sleep 60 ;;
1/1) echo 'error: rank 1 on node02 lost another rank (NCCL error): look there' >&2; exit 70 ;;
?/1) kill -KILL $$ ;;
?/0)
  while kill -0 "$(cat "$other")" 2>/dev/null; do sleep 0.1; done
  sleep 1 # srun hears of the other one first
  exit 70
  ;;
esac
"""


def test_faults_restart_the_job_thrice_without_a_new_checkpoint(
    cluster: Cluster, runs: Runs, tmp_path: Path
) -> None:
    """A device, a lost rank, a kill. In the first life srun kills the rank that has no fault."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAULTS.format(python=sys.executable))
    python.chmod(0o755)
    job = runs.submit(tmp_path / "run", TENFOLD_VENV=str(tmp_path / "venv"))
    assert job.end() == "FAILED", job.log()
    assert job.field("Restarts") == "3"
    log = job.log()
    assert "srun: error: node01: task 0: Killed" in log.partition("slurm: requeued")[0]
    assert log.count("not excluding node02: 1 other nodes are up, 2 are needed") == 2
    assert "not excluding node01" not in log
    assert (
        log.count("slurm: the doctor ended with 70 before its last check; continuing without it")
        == 1
    )
    last = log.splitlines()[-1]
    assert last.startswith("error: 3 restarts in a row without a new checkpoint (newest: none in")
    status = read_status(tmp_path / "run")
    assert [restart.reason for restart in status.restarts] == [
        "a device failed on node02: uncorrectable ECC error encountered",
        "rank 1 on node02 lost another rank (NCCL error): look there",
        "a rank was killed on node02",
    ]
    assert (status.state, status.log) == ("failed", job.field("StdOut"))
    assert status.reason.startswith("3 restarts in a row") and last in status.last_lines


def test_a_hung_rank_restarts_the_job(
    cluster: Cluster, runs: Runs, undisturbed: Path, tmp_path: Path
) -> None:
    """The other one, which waits for it, ends."""
    arguments = runs.arguments(checkpoint__every=2, logging__hang_seconds=5)
    job = runs.submit(tmp_path, TENFOLD_ARGS=arguments)
    job.until((tmp_path / "checkpoints" / "latest").exists)
    (rank,) = cluster.tasks("node02", job)
    os.kill(rank, signal.SIGSTOP)
    job.until(lambda: job.log().count("resuming after step") == 1)
    assert "slurm: rank 0 on node01 has made no progress for " in job.log()
    assert job.field("ExcNodeList") == "(null)"
    assert job.end() == "COMPLETED", job.log()
    assert job.field("Restarts") == "1"
    assert weights(tmp_path) == weights(undisturbed)
