"""Which rank this process is, as torchrun, srun or slurm/rank.sh say, and where rank 0 is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlace:
    """This process among those of its launch."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Number among the ranks of its node."""
    local_size: int = 1
    address: str = ""
    """Address of rank 0's node; empty for one process."""
    token: str = ""
    """Text that the ranks of this launch know, and that differs from other launches'."""
    launcher: str = "alone"

    @property
    def is_first_on_node(self) -> bool:
        """True if this rank acts for its node."""
        return self.local_rank == 0


def find_placement(environment: Mapping[str, str] = os.environ) -> LaunchPlace:
    """The placement that the launcher's variables describe; one process without a launcher.

    Raises ConfigError if the variables are not numbers, or do not tell where rank 0 is.
    """
    # srun's, not SLURM_NTASKS, which a batch script has without being a rank
    in_step = "SLURM_STEP_NUM_TASKS" in environment
    if "RANK" in environment and "WORLD_SIZE" in environment:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in environment else "srun"
    elif in_step:
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "LOCAL_WORLD_SIZE")
        launcher = "srun"
    else:
        return LaunchPlace()
    rank, world_size, local_rank = (_number(environment, name) for name in names[:3])
    if world_size < 2:
        return LaunchPlace(launcher=launcher)
    step = [environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    # a group that torchrun has restarted must not meet the ranks of the one before
    run = [
        environment.get(name, "")
        for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    ]
    return LaunchPlace(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=_ranks_here(environment, world_size),
        address=environment.get("MASTER_ADDR") or _first_host(environment),
        token=".".join([*step, *run]),
        launcher=launcher,
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment.get(name, "0"))
    except ValueError:
        raise ConfigError(
            f"{name}={environment[name]} is not a number; it is set by the launcher, not by hand"
        ) from None


def _ranks_here(environment: Mapping[str, str], world_size: int) -> int:
    if "LOCAL_WORLD_SIZE" in environment:
        return _number(environment, "LOCAL_WORLD_SIZE")
    nodes = max(1, _number(environment, "SLURM_STEP_NUM_NODES"))
    return max(1, -(-world_size // nodes))  # rounded up, as nodes may have unequal numbers of ranks


def _first_host(environment: Mapping[str, str]) -> str:
    """The first node of a step that was not started by a batch file of slurm/."""
    nodes = environment.get("SLURM_STEP_NODELIST", "")
    if "[" not in nodes:  # nothing to expand
        return nodes.split(",")[0]
    try:
        shown = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True, text=True, timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        raise ConfigError(
            f"scontrol cannot tell the first of {nodes}; set MASTER_ADDR to its name"
        ) from None
    return shown.split()[0]
