"""Faults planted on the nodes of the cluster are found by the doctor; a healthy one has none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.slurm import Cluster
from tests.cluster.training import Runs
from tests.launching.process import ROOT
from tests.pipeline.diagnosis.test_devices import STAND_IN

Found = dict[str, dict[str, Any]]
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>
#ifdef LATE
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += LATE;
  return result;
}
#else
int flock(int file, int operation) { errno = ENOLCK; return -1; }
#endif
"""


def examine(cluster: Cluster, fault: str, *arguments: object) -> tuple[str, Found]:
    """The status and the checks of the doctor on both nodes, each in a mount namespace of its own,
    after `fault`, shell commands that can put words before Python into $PREFIX."""
    words = " ".join(map(str, (sys.executable, "-m", "pipeline.doctor", "--json", *arguments)))
    result = cluster.run(
        "srun", "--nodes=2", "--ntasks-per-node=1", "--mpi=none", "--quiet",
        "unshare", "--mount", "--propagation", "private",
        "bash", "-c", f"{fault}; exec $PREFIX {words}",
    )  # fmt: skip
    assert result.stdout.startswith("{"), result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert (result.returncode != 0) == (report["status"] == "fail"), result.stderr
    return report["status"], {check["name"]: check for check in report["checks"]}


def shim(folder: Path, *options: str) -> Path:
    """A library that changes what the C library answers."""
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    command = ["gcc", "-shared", "-fPIC", *options, "-o", library, source, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


def test_a_healthy_cluster(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    given = ("--recipe", "roberta_tiny", "--data", runs.shards, "--output", tmp_path / "run")
    status, found = examine(cluster, ":", *given)
    assert status != "fail"
    assert not [check for check in found.values() if check["status"] == "fail"]
    for name in ("clocks", "versions", "locks", "shared directory", "USR1", "open files"):
        assert found[name]["status"] in ("ok", "warn"), found[name]
    assert "from Slurm" in found["USR1"]["value"]


def test_faults_of_one_node_are_found(cluster: Cluster, tmp_path: Path) -> None:
    """A nearly full tmpfs, low limits, another version, a directory that is not mounted, a clock
    that is off, and a signal that does not arrive."""
    for name, mode in (("local", 0o700), ("shared", 0o777)):
        (tmp_path / name).mkdir(mode=mode)
    metadata = tmp_path / "deepspeed-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.1\n")
    fault = f"""
export TENFOLD_LOCAL={tmp_path}/local
if [ "$SLURM_NODEID" = 1 ]; then
  mount -t tmpfs -o size=20m,mode=700 none {tmp_path}/local
  mount -t tmpfs none {tmp_path}/shared
  ulimit -n 128
  export PYTHONPATH={tmp_path} LD_PRELOAD={shim(tmp_path, "-DLATE=500")}
  PREFIX='env --block-signal=USR1'
fi"""
    _, found = examine(cluster, fault, "--output", tmp_path / "shared" / "run")
    for name, value in (
        ("local directory", ""),
        ("open files", ""),
        ("USR1", ""),
        ("versions", "deepspeed is 0.1 on rank 1"),
        ("shared directory", "not seen here"),
        ("clocks", "rank 1 is +"),
    ):
        assert found[name]["status"] == "fail" and value in found[name]["value"], found[name]
    for name in ("local directory", "open files", "USR1"):
        assert found[name]["ranks"] == [1], found[name]


def test_faults_of_both_nodes_are_found(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    """A file system without locks, two ranks on one device (both nodes are one machine, so both
    first GPUs are the same one), and shards that lack a file."""
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    missing = without_a_file(runs.shards, tmp_path / "copy")
    fault = f"export PYTHONPATH={tmp_path} LD_PRELOAD={shim(tmp_path)}; unset CUDA_VISIBLE_DEVICES"
    given = ("--output", tmp_path / "run", "--data", tmp_path / "copy")
    _, found = examine(cluster, fault, *given)
    for name, status, value in (
        ("locks", "warn", "no locks"),
        ("one GPU per rank", "fail", "ranks 0 and 1 both have GPU-0"),
        (f"shards {tmp_path}/copy", "fail", f"{missing} is missing"),
    ):
        assert found[name]["status"] == status and value in found[name]["value"], found[name]


def without_a_file(shards: Path, copy: Path) -> Path:
    """Copy shards but for one file; returns its path."""
    shutil.copytree(shards, copy)
    missing = copy / "mask-2" / "train-00000.arrow"
    missing.unlink()
    return missing


NETWORK = """
set -eu
ip link set lo up
ip link add hub type bridge && ip link set hub up
for rank in 0 1 2; do
  mkfifo $FOLDER/ready-$rank
  unshare --net --uts bash -c "
    hostname node-$rank
    read -r < $FOLDER/ready-$rank
    ip link set lo up && ip address add 10.9.8.1$rank/24 dev wire$rank && ip link set wire$rank up
    export RANK=$rank GLOO_SOCKET_IFNAME=wire$rank
    exec $PYTHON -m pipeline.doctor --full --json" > $FOLDER/report-$rank &
  child=$!
  children="${children:-} $child"
  ip link add port$rank type veth peer name wire$rank
  until [ $(readlink /proc/$child/ns/net) != $(readlink /proc/self/ns/net) ]; do sleep 0.05; done
  ip link set wire$rank netns $child
  ip link set port$rank master hub up
  echo > $FOLDER/ready-$rank
done
tc qdisc add dev port2 root tbf rate 160mbit burst 64kb latency 400ms
for child in $children; do wait $child; done
"""
"""Three ranks on a switch, each in a network namespace; the wire to the last one is slow."""


@pytest.mark.cluster
def test_one_slow_link(tmp_path: Path) -> None:
    places = {"WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    launch = {"MASTER_ADDR": "10.9.8.10", "TORCHELASTIC_RUN_ID": "x", "OMP_NUM_THREADS": "1"}
    words = {"FOLDER": str(tmp_path), "PYTHON": sys.executable}
    subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
         "bash", "-c", NETWORK],
        check=True, timeout=300, cwd=ROOT, env=os.environ | places | launch | words,
    )  # fmt: skip
    report = json.loads((tmp_path / "report-0").read_text())
    assert [row["nic"].split()[0] for row in report["ranks"]] == ["wire0", "wire1", "wire2"]
    found = {check["name"]: check for check in report["checks"]}
    assert found["pairs of nodes"]["status"] == "warn" and report["status"] == "warn"
    assert "node-2" in found["pairs of nodes"]["value"]
    assert found["all-reduce"]["value"].startswith("bus bandwidth ")


def test_a_job_that_would_fail_is_stopped(runs: Runs, tmp_path: Path) -> None:
    missing = without_a_file(runs.shards, tmp_path / "copy")
    jobs = {
        switch: runs.submit(
            tmp_path / switch, TENFOLD_DATA=str(tmp_path / "copy"), TENFOLD_DOCTOR=switch
        )
        for switch in ("on", "off")
    }
    for switch, job in jobs.items():
        assert (job.end(), job.field("ExitCode")) == ("FAILED", "2:0"), job.log()
        assert ("the doctor's checks above failed" in job.log()) == (switch == "on")
        assert f"{missing.name} is missing" in job.log()
