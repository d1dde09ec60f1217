"""A Slurm cluster of two nodes on this machine, and the jobs on it.

    def test_something(cluster: Cluster) -> None:
        job = cluster.submit("slurm/roberta_tiny.sbatch", "--nodes=2", TENFOLD_RUN=str(run))
        job.until(lambda: "step 3" in job.log())       # polls every 0.2 s, fails if the job ended
        job.signal("USR1")                             # to the batch script, as --signal=B: does
        assert job.end() == "COMPLETED", job.log()     # the last state, after all requeues
        assert job.field("Restarts") == "1"

`cluster.submit` returns a Job or fails; `cluster.sbatch` and `cluster.run` return the whole
CompletedProcess of sbatch or any other command (`cluster.run("srun", "-N2", ...)`). Environment
variables are keyword arguments. `cluster.kill(node)` simulates a power cut, `cluster.boot(node)`
starts the node again. `cluster.processes(node)` are the processes there. A job's log is in
`cluster.logs`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.configuration import NODES, Place

ROOT = Path(__file__).parents[2]
ONE_HOST = {"MPIR_CVAR_NOLOCAL": "1"}
"""Both nodes are this machine: MPICH on one must not find the shared memory of the other."""
POLL_SECONDS = 0.2
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "TIMEOUT",
}  # fmt: skip
"""States that last. Others pass, such as SIGNALING, or PREEMPTED until the job is queued again."""
Result = subprocess.CompletedProcess[str]


@dataclass
class Cluster:
    """The daemons, each a child process, so that each can be ended by its process number."""

    place: Place
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _namespaces: dict[str, str] = field(default_factory=dict)

    @property
    def logs(self) -> Path:
        """The directory of job logs."""
        return self.place.directory / "jobs"

    def start(self) -> None:
        """Start all daemons, each after the ones that it needs answer."""
        self.place.write()
        self.logs.mkdir()
        munge = self.place.directory / "munge"
        self._start(
            "munged", "munged", "--foreground", "--force",  # its directory's parents are not root's
            f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
            f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        asked = ("munge", f"-S{munge}/socket", "-n")
        self._until("munged answers", lambda: self.run(*asked).returncode == 0)
        self._start("slurmctld", "slurmctld", "-D", "-i", "-f", str(self.place.slurm_conf))
        self._until("slurmctld answers", lambda: "is UP" in self.run("scontrol", "ping").stdout)
        for node in NODES:
            self.boot(node)
        for node in NODES:
            state = ("sinfo", "-h", "-p", "main", "-n", node, "-o", "%T")
            self._until(f"{node} is up", lambda: self.run(*state).stdout == "idle\n")  # noqa: B023

    def stop(self) -> None:
        """End every process of the cluster, in any state."""
        with suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--signal=KILL", "--full", "--user=root", timeout=10)
        for node in list(self._namespaces):
            self.kill(node)
        for name in reversed(list(self._daemons)):
            self._end(name, signal.SIGTERM)

    def boot(self, node: str) -> None:
        """Start a node: slurmd in a namespace whose host name is the node's."""
        script = (
            'mount --bind "$1/hosts" /etc/hosts && hostname "$2" && '
            'exec slurmd -D -N "$2" -f "$1/slurm.conf"'
        )
        daemon = self._start(
            node, "unshare", "--mount", "--uts", "--propagation", "slave", "--",
            "sh", "-c", script, "sh", str(self.place.directory), node,
        )  # fmt: skip
        ours = Path("/proc/self/ns/uts").readlink()
        link = Path(f"/proc/{daemon.pid}/ns/uts")
        self._until(f"{node} has its namespace", lambda: link.readlink() != ours)
        self._namespaces[node] = str(link.readlink())

    def processes(self, node: str) -> list[int]:
        """All processes of a node, slurmd's own included."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if str((path / "ns" / "uts").readlink()) == self._namespaces[node]:
                    found.append(int(path.name))
        return sorted(found)

    def tasks(self, node: str, job: Job) -> list[int]:
        """The direct children of a job's steps on a node, without the batch script."""
        found = []
        for process in self.processes(node):
            with suppress(OSError):
                parent = _parent(process)
                title = Path(f"/proc/{parent}/cmdline").read_text().replace("\0", " ").strip()
                if re.fullmatch(rf"slurmstepd: \[{job.id}\.\d+\]", title):
                    found.append(process)
        return found

    def kill(self, node: str) -> None:
        """Cut a node's power: every process there dies at once."""
        processes = self.processes(node)
        while processes:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._end(node, signal.SIGKILL)
            time.sleep(0.05)
            processes = [p for p in self.processes(node) if not _is_zombie(p)]

    def run(self, *command: object, timeout: float = 600, **environment: str) -> Result:
        """Run a command of Slurm, or any other, from the checkout as a user would."""
        return subprocess.run(
            [str(part) for part in command], cwd=ROOT, env=self.environment() | environment,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def sbatch(self, *arguments: object, **environment: str) -> Result:
        """Run sbatch, which may refuse; logs go to `logs`."""
        output = f"--output={self.logs}/%x-%j.log"
        return self.run("sbatch", "--parsable", output, *arguments, **environment)

    def submit(self, script: object, *options: object, **environment: str) -> Job:
        """Submit a batch script by its path from the checkout."""
        return self._submitted(*options, script, **environment)

    def submit_command(self, command: str, *options: object, **environment: str) -> Job:
        """Submit a shell command."""
        return self._submitted(*options, f"--wrap={command}", **environment)

    def _submitted(self, *arguments: object, **environment: str) -> Job:
        result = self.sbatch(*arguments, **environment)
        assert result.returncode == 0, result.stdout + result.stderr
        return Job(self, int(result.stdout))

    def cancel_jobs(self) -> None:
        """Cancel all jobs and wait until none is left."""
        if self._queued():
            self.run("scancel", "--user=root")
            self._until("no job is left", lambda: not self._queued())

    def _queued(self) -> str:
        return self.run("squeue", "--noheader", "--format=%A %T").stdout.strip()

    def environment(self) -> dict[str, str]:
        """A user's environment on the login node, with the Python of these tests."""
        foreign = ("SLURM_", "SBATCH_", "SRUN_", "TENFOLD_", "PYTEST_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        beside = Path(sys.executable).parent
        return kept | {
            "SLURM_CONF": str(self.place.slurm_conf),
            "PATH": f"{beside}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

    def _start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a daemon that ends with this process, even if pytest's controller is killed."""
        command = ("setpriv", "--pdeathsig", "TERM", *command)
        with (self.place.directory / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command, env=self.environment(), cwd=self.place.directory, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        return self._daemons[name]

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not done():
            dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            assert not dead, f"{dead[0]} ended by itself:\n{self._said(dead[0])}"
            names = "".join(self._said(name) for name in self._daemons)
            assert time.monotonic() < end, f"not within 120 s: {what}\n{names}"
            time.sleep(POLL_SECONDS)

    def _said(self, name: str) -> str:
        """The last lines of a daemon's logs."""
        log = self.place.directory / "log"
        paths = [log / f"{name}.out", log / f"{name}.log", log / f"slurmd.{name}.log"]
        return "".join(f"{p.name}: {p.read_text()[-1500:]}\n" for p in paths if p.exists())


@dataclass(frozen=True)
class Job:
    """A submitted job."""

    cluster: Cluster
    id: int | str

    def element(self, number: int) -> Job:
        """An element of a job array."""
        return Job(self.cluster, f"{self.id}_{number}")

    def field(self, name: str) -> str:
        """A field of `scontrol show job`: JobState, Restarts, ExitCode, NodeList, ..."""
        text = self.cluster.run("scontrol", "-o", "show", "job", self.id).stdout
        return dict(re.findall(r"(\w[\w:/]*)=(\S*)", text))[name]

    def state(self) -> str:
        """PENDING, RUNNING, COMPLETED, ..."""
        return self.field("JobState")

    def log(self) -> str:
        """The log so far, over all lives of the job; "" before it started."""
        path = Path(self.field("StdOut"))
        return path.read_text(errors="replace") if path.exists() else ""

    def until(self, done: Callable[[], bool], timeout: float = 600) -> None:
        """Wait for a condition to become true while the job exists."""
        end = time.monotonic() + timeout
        while not done():
            state = self.state()
            assert state not in ENDED or done(), f"job {self.id} is {state}\n{self.log()}"
            assert time.monotonic() < end, f"job {self.id}: not in {timeout} s\n{self.log()}"
            time.sleep(POLL_SECONDS)

    def end(self, timeout: float = 900) -> str:
        """Wait until the job has ended, restarts included; returns its last state."""
        self.until(lambda: self.state() in ENDED, timeout)
        return self.state()

    def signal(self, name: str) -> None:
        """Send a signal to the batch script only."""
        result = self.cluster.run("scancel", "--batch", f"--signal={name}", self.id)
        assert result.returncode == 0, result.stderr

    def cancel(self) -> None:
        """Cancel the job, as a user does."""
        assert self.cluster.run("scancel", self.id).returncode == 0


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
