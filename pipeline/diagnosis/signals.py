"""Check that USR1, which asks a run to save and stop, reaches this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time

from pipeline.cluster.processes import name
from pipeline.diagnosis.checks import FAIL, Check, judge, skip
from pipeline.diagnosis.exchange import Exchange

NAME = "USR1"
_PATIENCE_SECONDS = 5.0
_REMEDY = (
    "remove the wrapper between Slurm and Python that blocks the signal; without it a job that "
    "runs out of time does not save"
)


class SignalWatch:
    """Counts USR1 from its creation on; create it in the main thread, early."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        # blocking nothing returns what is blocked
        self._blocked = signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        signal.signal(signal.SIGUSR1, lambda number, frame: self._arrived.set())

    def check(self, ranks: Exchange) -> Check:
        """Let Slurm send USR1 to all ranks of this step, or send it here. Collective."""
        step = _own_step()
        # scancel signals all processes of a step: a launcher between Slurm and Python would end by
        # it
        able = ranks.gather(bool(step) and name(os.getppid()).startswith("slurmstepd"))
        through_slurm = ranks.broadcast(all(able))
        ranks.barrier()  # not before all ranks listen
        error = _send_to_step(step) if ranks.placement.rank == 0 and through_slurm else ""
        if error := ranks.broadcast(error):
            return skip(NAME, f"scancel cannot send signals from here: {error}")
        if self._blocked:
            return judge(NAME, "blocked by what started Python", FAIL, "arrives", _REMEDY)
        if not through_slurm:
            os.kill(os.getpid(), signal.SIGUSR1)
        self._wait()
        how = "from Slurm" if through_slurm else "from this process, as Slurm did not start it"
        arrived = self._arrived.is_set()
        return judge(
            NAME, f"{'arrived' if arrived else 'did not arrive'} {how}", "" if arrived else FAIL,
            "arrives", _REMEDY,
        )  # fmt: skip

    def _wait(self) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not self._arrived.is_set() and time.monotonic() < end:
            time.sleep(0.01)


def _own_step() -> str:
    job, step = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_STEP_ID", "")
    usable = job.isdecimal() and step.isdecimal() and shutil.which("scancel")
    return f"{job}.{step}" if usable else ""


def _send_to_step(step: str) -> str:
    """Reason why the signal could not be sent; "" if it was."""
    command = ["scancel", "--signal=USR1", step]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=False,
            preexec_fn=_ignore_signal,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ended.stderr.strip() or f"exit code {ended.returncode}" if ended.returncode else ""


def _ignore_signal() -> None:
    """scancel is a process of the step, too."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
