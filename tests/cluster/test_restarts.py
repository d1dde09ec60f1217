"""When a job is restarted, without which nodes, and when it is given up."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from tests.cluster.configuration import NODES
from tests.cluster.slurm import Cluster
from tests.cluster.training import Runs, last_step


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


def test_restarts_without_progress_end(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    """Python is killed whenever it is a rank, as on a broken node."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ -z "$RANK" ] || kill -KILL $$\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    job = runs.submit(tmp_path / "run", nodes=1, TENFOLD_VENV=str(tmp_path / "venv"))
    assert job.end() == "FAILED"
    assert job.field("Restarts") == "3"
    killed = re.findall(r"^slurm: a rank was killed on (.*)$", job.log(), re.M)
    assert killed and job.field("ExcNodeList") == killed[0]
    last = job.log().splitlines()[-1]
    assert last.startswith("error: 3 restarts in a row without a new checkpoint (newest: none in")
