"""The GPU of a rank as NVIDIA's management library (nvidia-ml-py) describes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pipeline.diagnosis.checks import FAIL, WARN, Check, judge, skip

NAME = "GPU"
LACKING = "GPUs need the nvidia-ml-py package: pip install '.[gpu]'"
_DRIVER = Path("/proc/driver/nvidia/version")
_NONE_GIVEN = ("", "NoDevFiles", "-1")
"""CUDA_VISIBLE_DEVICES of a job without GPUs; NoDevFiles is Slurm's."""
_HARMLESS = 0x1 | 0x2 | 0x4 | 0x100
"""Clock event reasons: idle, applications' clocks, power cap, display clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU; empty strings without one."""

    uuid: str = ""
    name: str = ""
    bus: str = ""
    numa: str = ""
    driver: str = ""


def find_device(
    local_rank: int, local_size: int, *, is_training: bool = False, needs_gpu: bool = False
) -> tuple[Device, list[Check]]:
    """The GPU that a rank of this node uses, with its checks.

    is_training: whether every rank needs one if the node has any. Other jobs may see a node's GPUs
    and use none. needs_gpu: a warning, instead of a skipped check, if the job has no GPU.
    """
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except ImportError:
        # a driver shows that there are GPUs, which the missing package would see
        return Device(), [_without(LACKING if _DRIVER.exists() else "no GPU", needs_gpu)]
    except Exception as error:  # the library's own class, which only it has
        return Device(), [_without(f"no GPU ({error})", needs_gpu)]
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not count or given in _NONE_GIVEN:
        return Device(), [_without("no GPU given to this job", needs_gpu)]
    visible = (
        # CUDA_VISIBLE_DEVICES may end with a comma
        [str(i) for i in range(count)] if given is None else list(filter(None, given.split(",")))
    )
    if len(visible) < local_size:
        return Device(), [
            judge(
                NAME,
                f"{len(visible)} visible for {local_size} ranks",
                WARN if given is None and not is_training else FAIL,
                "one per rank",
                "request --gres=gpu:RANKS, and leave CUDA_VISIBLE_DEVICES to Slurm",
            )
        ]
    try:
        return _describe(nvml, visible[local_rank])
    except Exception as error:  # a GPU that fell off the bus raises here
        return Device(), [
            judge(NAME, f"{visible[local_rank]}: {error}", FAIL, "answers", "exclude this node")
        ]


def _without(value: str, needs_gpu: bool) -> Check:
    """The check of a job without a GPU."""
    if not needs_gpu:
        return skip(NAME, value)
    return judge(
        NAME,
        value,
        WARN,
        "one per rank, as the recipe trains in bf16",
        "check on a node with GPUs, or choose a recipe for CPUs, such as roberta_mini",
    )


def _describe(nvml: Any, place: str) -> tuple[Device, list[Check]]:
    if place.isdecimal():  # CUDA_VISIBLE_DEVICES has indices or UUIDs
        handle = nvml.nvmlDeviceGetHandleByIndex(int(place))
    else:
        handle = nvml.nvmlDeviceGetHandleByUUID(place)
    bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
    device = Device(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        bus=bus,
        numa=_numa_node(bus),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
    )
    return device, [judge(NAME, device.name, ""), *_check_health(nvml, handle)]


def _check_health(nvml: Any, handle: Any) -> list[Check]:
    found = []
    try:
        # volatile: since the driver was loaded; what a reset has dealt with does not count
        errors = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        found.append(
            judge("GPU memory errors", f"{errors} uncorrected", WARN if errors else "", "none",
                  "let the site reset the GPU")
        )  # fmt: skip
    except Exception as error:  # GPUs without ECC
        found.append(skip("GPU memory errors", str(error)))
    try:
        # correctable, uncorrectable, pending, failed
        pending = nvml.nvmlDeviceGetRemappedRows(handle)[2]
        found.append(
            judge("GPU row remaps", "pending" if pending else "none pending",
                  WARN if pending else "", "none pending", "let the site reset the GPU")
        )  # fmt: skip
    except Exception as error:
        found.append(skip("GPU row remaps", str(error)))
    try:
        # not ...ThrottleReasons, the older name, which CUDA 14 removes
        reasons = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) & ~_HARMLESS
        found.append(
            judge("GPU clocks", f"slowed, reasons {reasons:#x}" if reasons else "not slowed",
                  WARN if reasons else "", "not slowed", "check power and cooling of the node")
        )  # fmt: skip
    except Exception as error:
        found.append(skip("GPU clocks", str(error)))
    return found


def compare_devices(
    found: Sequence[Mapping[str, str]], *, is_training: bool = False
) -> list[Check]:
    """Check that each rank has a GPU of its own; found: the row of each rank in the rank table.

    is_training: whether every rank needs one; other jobs may span nodes with and without GPUs.
    """
    owners: dict[str, list[int]] = {}
    for rank, row in enumerate(found):
        if row["uuid"]:
            owners.setdefault(row["uuid"], []).append(rank)
    if not owners:
        return []
    shared = {uuid: ranks for uuid, ranks in owners.items() if len(ranks) > 1}
    missing = [rank for rank, row in enumerate(found) if not row["uuid"]]
    value, wrong = f"{len(owners)} for {len(found)} ranks", ""
    if shared:
        wrong = FAIL
        uuid, ranks = next(iter(shared.items()))
        value = f"ranks {' and '.join(map(str, ranks))} both have {uuid}"
    elif missing:
        wrong = FAIL if is_training else WARN
        value = f"rank {missing[0]} has none, others have one"
    return [
        judge("one GPU per rank", value, wrong, "one per rank",
              "request --gres=gpu:RANKS; do not set CUDA_VISIBLE_DEVICES by hand")
    ]  # fmt: skip


def _text(value: str | bytes) -> str:
    # older bindings return bytes
    return value.decode() if isinstance(value, bytes) else str(value)


def _numa_node(bus: str) -> str:
    short = bus.lower()[-12:]  # NVML's PCI domain has 8 digits, that of sysfs 4
    try:
        return Path(f"/sys/bus/pci/devices/{short}/numa_node").read_text().strip()
    except OSError:
        return ""
