"""How the processes of a run meet, on which device, and the one import of DeepSpeed."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pipeline.base.errors import ConfigError
from pipeline.base.null_device import recorded_device
from pipeline.base.progress import note_loading
from pipeline.cluster.rendezvous import fresh_store

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT_VARIABLE = "TENFOLD_TIMEOUT_SECONDS"
TIMEOUT_SECONDS = 1800.0
"""Time that a rank waits for another one: longer than the slowest checkpoint or compilation."""
JOIN_SECONDS = 300.0
"""Time that the ranks wait for each other at start."""
TESTED_VERSION = "0.19.8"


def init_distributed() -> torch.device:
    """Join the other ranks, or run as the only one if no launcher set variables. Idempotent.

    Raises ConfigError if only some of LAUNCHER_VARIABLES are set.
    """
    present = [name for name in LAUNCHER_VARIABLES if name in os.environ]
    known = len(present) == len(LAUNCHER_VARIABLES) or dist.is_initialized()
    if "RANK" in present and not known:
        missing = ", ".join(name for name in LAUNCHER_VARIABLES if name not in present)
        raise ConfigError(
            f"the launcher set {', '.join(present)} but not {missing}; set these too, or start "
            "with torchrun or deepspeed"
        )
    if "RANK" not in present:
        # Without these DeepSpeed 0.19.8 asks mpi4py, which may not be installed.
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    deepspeed = deepspeed_library()
    device = compute_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before NCCL starts, which takes the current device
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        if os.environ["WORLD_SIZE"] == "1":
            alone = dist.HashStore()  # type: ignore[attr-defined]  # needs no port
            dist.init_process_group(backend, store=alone, rank=0, world_size=1)
        else:
            store, rank, world_size = fresh_store(timeout(JOIN_SECONDS), timeout())
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=world_size, timeout=timeout()
            )
    with quiet():
        deepspeed.init_distributed()  # finds the group, and uses it
    return device


def timeout(default: float = TIMEOUT_SECONDS) -> timedelta:
    """The time to wait for another rank before it is an error; batch scripts may change it.

    default: seconds, unless TIMEOUT_VARIABLE is set.
    """
    given = os.environ.get(TIMEOUT_VARIABLE, str(default))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"{TIMEOUT_VARIABLE}={given!r} is not a number of seconds; unset it")
    return timedelta(seconds=seconds)


def compute_device() -> torch.device:
    """This rank's GPU, or the CPU if there is none."""
    if torch.cuda.is_available():
        # one GPU per rank of a node
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def device_name(device: torch.device) -> str:
    """Name of a device in files: `cpu`, a GPU's, or `null` for one that computes nothing."""
    if device.type != "cuda":
        return device.type
    return recorded_device(torch.cuda.get_device_name(device))


@functools.cache
def deepspeed_library() -> Any:
    """DeepSpeed, imported on first use (it takes seconds) and silenced."""
    note_loading("deepspeed")
    logging.disable(logging.WARNING)  # its own logger exists only after the import
    try:
        with quiet():
            import deepspeed
    finally:
        logging.disable(logging.NOTSET)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if deepspeed.__version__ != TESTED_VERSION:
        print(
            f"DeepSpeed {deepspeed.__version__} is not the tested version {TESTED_VERSION}; "
            "its layout is checked at start",
            file=sys.stderr,
        )
    # On a CPU it would compile an extension for inference at start, and wait forever if a killed
    # process has left the lock of that compilation; training does not use the extension.
    deepspeed.ops.__dict__["__compatible_ops__"] = {}
    return deepspeed


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence DeepSpeed's prints and its warnings about deprecated functions of torch."""
    # For good, not in `catch_warnings`: steps after this block warn, too, many times each.
    warnings.filterwarnings(
        "ignore", category=FutureWarning, message=".*(all_gather|reduce_scatter)_"
    )
    with contextlib.redirect_stdout(io.StringIO()):
        yield
