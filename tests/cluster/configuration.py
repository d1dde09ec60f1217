"""Configuration of the daemons: two nodes on this machine that appear as large GPU nodes.

    main     the default partition; `high` preempts its jobs, with a grace time
    abrupt   the same without a grace time
    high     preempts both

Nodes have their own addresses in 127/8, free ports, and host names from a namespace. Their GPUs are
null devices: Slurm counts, shares and names them, but nothing computes on them.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

NODES = ("node01", "node02")
NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Of this cluster among those side by side: each of pytest's workers has its own."""
GPUS = 8
KILL_WAIT = 10
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(frozen=True)
class Place:
    """Where the daemons of one cluster keep their files and listen."""

    directory: Path
    controller_port: int
    node_ports: tuple[int, ...]

    @classmethod
    def of(cls, directory: Path) -> Place:
        """In `directory`, whose path must be short because it holds sockets."""
        longest = directory / "spool" / NODES[0] / f"{NODES[0]}_1234.4294967291"
        assert len(str(longest)) < 108, f"{directory} is too long for a socket's path"
        controller, *nodes = free_ports(1 + len(NODES))
        return cls(directory, controller, tuple(nodes))

    @property
    def slurm_conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.directory / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where munged listens."""
        return self.directory / "munge" / "socket"

    def write(self) -> None:
        """Make directories, devices and configuration files."""
        for name in ("munge", "state", "spool", "log", "dev", "tmp"):
            (self.directory / name).mkdir()
        for node in NODES:
            (self.directory / "spool" / node).mkdir()
            (self.directory / "tmp" / node).mkdir()
        (self.directory / "munge").chmod(0o711)
        key = self.directory / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        for gpu in range(GPUS):
            null = os.makedev(1, 3)
            os.mknod(self.directory / "dev" / f"nvidia{gpu}", stat.S_IFCHR | 0o666, null)
        self.slurm_conf.write_text(self._slurm_conf())
        (self.directory / "gres.conf").write_text(
            f"AutoDetect=off\nName=gpu Type=h100 File={self.directory}/dev/nvidia[0-{GPUS - 1}]\n"
        )
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # read, not used
        hosts = ["127.0.0.1 localhost", f"127.0.0.1 {socket.gethostname()}"]
        hosts += [f"{_address(number)} {node}" for number, node in enumerate(NODES)]
        (self.directory / "hosts").write_text("\n".join(hosts) + "\n")

    def _slurm_conf(self) -> str:
        nodes = "\n".join(
            f"NodeName={node} NodeAddr={_address(number)} Port={port} CPUs=256 Sockets=1 "
            f"CoresPerSocket=256 ThreadsPerCore=1 RealMemory=2000000 Gres=gpu:h100:{GPUS} "
            "State=UNKNOWN"
            for number, (node, port) in enumerate(zip(NODES, self.node_ports, strict=True))
        )
        return SLURM_CONF.format(
            directory=self.directory,
            host=socket.gethostname(),
            controller_port=self.controller_port,
            munge_socket=self.munge_socket,
            kill_wait=KILL_WAIT,
            first_job=1 + 1000 * NUMBER,  # ranks choose the port at which they meet by it
            nodes=nodes,
        )


def free_ports(count: int) -> list[int]:
    """Free ports, below those that the kernel assigns to connections."""
    found: list[int] = []
    candidate = 10_000 + os.getpid() % 4_000 + 1_000 * NUMBER
    while len(found) < count:
        candidate += 1
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", candidate))
            except OSError:
                continue
        found.append(candidate)
    return found


def _address(number: int) -> str:
    return f"127.0.{77 + NUMBER}.{number + 1}"


SLURM_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# a requeued job waits until its old credential has expired: 120 seconds by default, 5 at least
AuthInfo=socket={munge_socket},cred_expire=5
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmdLogFile={directory}/log/slurmd.%n.log
SlurmdSpoolDir={directory}/spool/%n
# per node, or the nodes' PMI files would be the same
TmpFS={directory}/tmp/%n
# no cgroups and no accounting daemon
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
# nodes may claim more than this machine has, so that realistic requests are accepted
SlurmdParameters=config_overrides
# sbatch refuses what no node can provide, instead of waiting forever
EnforcePartLimits=ALL
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=128
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
# a preempted job gets its --signal at once (SchedulerParameters would ignore this, silently)
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
FirstJobId={first_job}
ReturnToService=2
SlurmctldTimeout=30
# long: on a busy machine a daemon may not answer for a while
SlurmdTimeout=120
MessageTimeout=10
KillWait={kill_wait}
MinJobAge=3600
SlurmctldDebug=info
SlurmdDebug=info
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 PriorityTier=1 GraceTime=60
PartitionName=abrupt Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=1 GraceTime=0
PartitionName=high Nodes=ALL MaxTime=INFINITE DefaultTime=10 PriorityTier=10 PreemptMode=OFF
"""
