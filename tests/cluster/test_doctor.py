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
SECOND = '[ "$SLURM_NODEID" = 1 ]'
"""Whether a task runs on the node with the fault."""
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


def examine(
    cluster: Cluster, *arguments: object, fault: str = ":", prefix: str = "", **environment: str
) -> tuple[str, Found]:
    """The status and the checks of the doctor on both nodes, each in a mount namespace of its own,
    after `fault`, a shell command; prefix: before Python."""
    words = " ".join(map(str, (sys.executable, "-m", "pipeline.doctor", "--json", *arguments)))
    script = f"{fault}; exec {prefix} {words}"
    result = cluster.run(
        "srun", "--nodes=2", "--ntasks-per-node=1", "--mpi=none", "--quiet",
        "unshare", "--mount", "--propagation", "private", "bash", "-c", script, **environment,
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


def on_second(command: str) -> str:
    return f"if {SECOND}; then {command}; fi"


def test_a_healthy_cluster(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    status, found = examine(
        cluster, "--recipe", "roberta_tiny", "--data", runs.shards, "--output", tmp_path / "run"
    )
    assert status != "fail"
    assert not [check for check in found.values() if check["status"] == "fail"]
    for name in ("clocks", "versions", "locks", "shared directory", "USR1", "open files"):
        assert found[name]["status"] in ("ok", "warn"), found[name]
    assert "from Slurm" in found["USR1"]["value"]


def test_a_nearly_full_tmpfs(cluster: Cluster, tmp_path: Path) -> None:
    """On one node alone: there TENFOLD_LOCAL is."""
    local = tmp_path / "local"
    local.mkdir(mode=0o700)
    fault = on_second(f"mount -t tmpfs -o size=20m,mode=700 none {local}")
    _, found = examine(cluster, fault=fault, TENFOLD_LOCAL=str(local))
    assert (found["local directory"]["status"], found["local directory"]["ranks"]) == ("fail", [1])


def test_low_limits(cluster: Cluster) -> None:
    _, found = examine(cluster, fault=on_second("ulimit -n 128"))
    assert (found["open files"]["status"], found["open files"]["ranks"]) == ("fail", [1])


def test_another_version_on_one_node(cluster: Cluster, tmp_path: Path) -> None:
    metadata = tmp_path / "deepspeed-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.1\n")
    _, found = examine(cluster, fault=on_second(f"export PYTHONPATH={tmp_path}"))
    assert found["versions"]["status"] == "fail"
    assert "deepspeed is 0.1 on rank 1" in found["versions"]["value"]


def test_a_directory_that_one_node_lacks(cluster: Cluster, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    fault = on_second(f"mount -t tmpfs none {shared}")
    _, found = examine(cluster, "--output", shared / "run", fault=fault)
    check = found["shared directory"]
    assert (check["status"], "not seen here" in check["value"]) == ("fail", True)


def test_a_file_system_without_locks(cluster: Cluster, tmp_path: Path) -> None:
    fault = f"export LD_PRELOAD={shim(tmp_path)}"
    _, found = examine(cluster, "--output", tmp_path / "run", fault=fault)
    assert found["locks"]["status"] == "warn" and "no locks" in found["locks"]["value"]


def test_a_clock_that_is_off(cluster: Cluster, tmp_path: Path) -> None:
    fault = on_second(f"export LD_PRELOAD={shim(tmp_path, '-DLATE=500')}")
    _, found = examine(cluster, fault=fault)
    assert found["clocks"]["status"] == "fail" and "rank 1 is +" in found["clocks"]["value"]


def test_a_signal_that_does_not_arrive(cluster: Cluster) -> None:
    command = f"exec env --block-signal=USR1 {sys.executable} -m pipeline.doctor --json"
    fault = on_second(command)
    _, found = examine(cluster, fault=fault)
    assert (found["USR1"]["status"], found["USR1"]["ranks"]) == ("fail", [1])


def test_two_ranks_on_one_device(cluster: Cluster, tmp_path: Path) -> None:
    """Both nodes are one machine, so that both first GPUs are the same one."""
    (tmp_path / "pynvml.py").write_text(STAND_IN)
    _, found = examine(cluster, fault=f"export PYTHONPATH={tmp_path}; unset CUDA_VISIBLE_DEVICES")
    assert found["one GPU per rank"]["status"] == "fail"
    assert "ranks 0 and 1 both have GPU-0" in found["one GPU per rank"]["value"]


def test_shards_that_lack_a_file(cluster: Cluster, runs: Runs, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs.shards, tmp_path / "copy"))
    missing = copy / "mask-2" / "train-00000.arrow"
    missing.unlink()
    _, found = examine(cluster, "--data", copy)
    check = found[f"shards {copy}"]
    assert check["status"] == "fail" and f"{missing} is missing" in check["value"]


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


@pytest.mark.parametrize("switch", ["on", "off"])
def test_a_job_that_would_fail_is_stopped(switch: str, runs: Runs, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs.shards, tmp_path / "copy"))
    (copy / "mask-2" / "train-00000.arrow").unlink()
    job = runs.submit(tmp_path / "run", TENFOLD_DATA=str(copy), TENFOLD_DOCTOR=switch)
    assert (job.end(), job.field("ExitCode")) == ("FAILED", "2:0"), job.log()
    assert ("the doctor's checks above failed" in job.log()) == (switch == "on")
    assert "train-00000.arrow is missing" in job.log()
