"""Published rates of GPUs and CPUs, each with its source: the one table of them.

Figures are of the SXM boards, dense (without sparsity) and in one direction. What a training run
makes of a peak is a band of utilizations, see `DeviceRates.utilization`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.base.null_device import NULL, recorded_device

CPU = "cpu"
CPU_CORE_FLOPS = (8e9, 30e9, 110e9)
"""Least, usual and most per second and core in fp32. The most is RoBERTa-base on two cores of a
Xeon (tests/benchmarks/RESULTS.md: 0.72 sequences/s); toy sizes are far below it."""
CPU_UPDATE_SECONDS = 13.5e-9
"""The optimizer's, per weight and core: 0.84 s for RoBERTa-base on two cores (RESULTS.md)."""
CPU_BUS_BANDWIDTH = (0.3e9, 1e9, 3e9)
"""Bytes per second of gloo between ranks, assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """The published rates of a GPU."""

    name: str
    memory: float
    """Bytes."""
    bf16_flops: float
    """FLOP per second of the tensor cores, dense."""
    fp32_flops: float
    """FLOP per second without tensor cores: torch leaves TF32 off, and so do we."""
    bandwidth: float
    """Bytes per second of its memory."""
    link_bandwidth: float
    """Bytes per second to the other GPUs of the node, one direction."""
    nic_bandwidth: float
    """Bytes per second of one network card of the maker's own node, which has one per GPU."""
    watts: tuple[float, float]
    """Most power: of only the GPU, and of an eighth of the whole node (10.2 kW, A100 6.5 kW)."""
    utilization: tuple[float, float, float]
    """Least, usual and most share of the bf16 peak that encoder pretraining reaches."""
    utilization_source: str
    source: str

    def flops(self, precision: str) -> float:
        """The peak in a precision."""
        return self.fp32_flops if precision == "fp32" else self.bf16_flops


_HOPPER_BAND = (0.24, 0.37, 0.43)
_HOPPER_SOURCE = (
    "open encoder runs on H100 and H200 reach 24 to 32 %, RoBERTa-large here 41 % in bf16 on an "
    "H200 (RESULTS.md); fp32 and stage 3 are assumed to reach as much"
)
GPUS = {
    "h100": DeviceRates(
        name="H100", memory=80e9, bf16_flops=989e12, fp32_flops=67e12,
        bandwidth=3.35e12, link_bandwidth=450e9, nic_bandwidth=50e9, watts=(700, 1275),
        utilization=_HOPPER_BAND, utilization_source=_HOPPER_SOURCE,
        source="data sheets of NVIDIA H100 SXM and DGX H100",
    ),
    "h200": DeviceRates(
        name="H200", memory=141e9, bf16_flops=989e12, fp32_flops=67e12,
        bandwidth=4.8e12, link_bandwidth=450e9, nic_bandwidth=50e9, watts=(700, 1275),
        utilization=_HOPPER_BAND, utilization_source=_HOPPER_SOURCE,
        source="data sheets of NVIDIA H200 SXM and DGX H200",
    ),
    "a100": DeviceRates(
        name="A100", memory=80e9, bf16_flops=312e12, fp32_flops=19.5e12,
        bandwidth=2.04e12, link_bandwidth=300e9, nic_bandwidth=25e9, watts=(400, 812),
        utilization=(0.237, 0.35, 0.50),
        utilization_source="BERT on A100 reaches 24 % (MosaicML) and 25 % (NVIDIA), hand-fused "
        "models 50 to 55",
        source="data sheets of NVIDIA A100 80GB SXM and DGX A100",
    ),
}  # fmt: skip
BOARDS: tuple[tuple[str, DeviceRates | float], ...] = (
    # MIG before all others: a slice of a GPU also has the board's name, but not its rates.
    ("MIG", 0.0), ("B200", 2250e12), ("GH200", 989e12),
    ("H200 NVL", 835e12), ("H200", GPUS["h200"]), ("H100 PCIe", 756e12), ("H100 NVL", 835e12),
    ("H100", GPUS["h100"]), ("A100.*PCIe", 312e12), ("A100", GPUS["a100"]), ("L40S", 362e12),
)  # fmt: skip
"""Pattern of a part of a GPU's name, the first match; its rates, or only the dense bf16 FLOP per
second of a board that is not in the table, from NVIDIA's data sheets."""
LINK_SHARE, NIC_SHARE = 0.8, 0.82
"""Share of the links that an all-reduce reaches: 330 of eight NICs' 400 GB/s, and as much of NVLink
(assumed)."""
MANY_GPUS_SHARE = 0.75
"""Share of that bandwidth that remains from 512 GPUs on: 250 instead of 330 GB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machines that a run is planned for."""

    device: DeviceRates | None
    """The GPU; None trains on CPUs."""
    nodes: int
    per_node: int
    """Ranks per node, one per GPU."""
    cores: int
    """CPU cores per node."""
    nics: int
    """Network cards per node."""

    @property
    def ranks(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.per_node

    @property
    def kind(self) -> str:
        """`cpu`, `H100`, ...: the name under which a site's rates are kept."""
        return self.device.name if self.device else CPU

    @property
    def units(self) -> int:
        """Units that rates are given per: GPUs, or cores over all nodes."""
        return self.ranks if self.device else self.nodes * self.cores

    @property
    def words(self) -> str:
        """`2 nodes x 8 H100`."""
        nodes = f"{self.nodes:,} node{'s' * (self.nodes != 1)}"
        if self.device:
            return f"{nodes} x {self.per_node} {self.device.name}"
        ranks = f"{self.per_node} rank{'s' * (self.per_node != 1)}"
        return f"{nodes} x {ranks} on {self.cores} CPU core{'s' * (self.cores != 1)}"

    def bus_bandwidth(self) -> tuple[float, float, float]:
        """Least, usual and most bytes per second that each rank sends in an all-reduce."""
        if not self.device:
            return CPU_BUS_BANDWIDTH
        inside = LINK_SHARE * self.device.link_bandwidth
        # NCCL runs a ring over every card, so all cards of a node add up.
        usual = inside
        if self.nodes > 1:
            # The slower link bounds a ring over both.
            usual = min(inside, NIC_SHARE * self.nics * self.device.nic_bandwidth)
        least = usual * (MANY_GPUS_SHARE if self.ranks >= 512 else 0.9)
        return least, usual, usual * 1.1


def rates_of(name: str) -> DeviceRates | None:
    """The rates of a GPU by the name that its driver tells; None for an unknown one."""
    found = _find(name)
    return found if isinstance(found, DeviceRates) else None


def peak_flops_of(name: str) -> float:
    """Dense bf16 FLOP/s of a GPU by the name that its driver tells; 0 if unknown."""
    found = _find(name)
    return found.bf16_flops if isinstance(found, DeviceRates) else found


def _find(name: str) -> DeviceRates | float:
    if recorded_device(name) == NULL:  # whose name has the board that it stands for
        return 0.0
    return next(
        (known for part, known in BOARDS if re.search(rf"\b{part}\b", name, re.IGNORECASE)), 0.0
    )
