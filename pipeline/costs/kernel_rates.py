"""How fast GPUs run the kernels of a micro-step: the constants of the counted model, with sources.

A micro-step's time is counted, not measured: FLOPs of its products and of its attention over their
rates, plus bytes that all other kernels move over the bandwidth. Gaps between launches, gradient
accumulation by DeepSpeed and the optimizer are left out, so it is a lower bound. `DeviceRates` has
the peaks; these are what kernels of our shapes reach of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

AttentionName = Literal["flash", "cudnn", "memory_efficient"]
"""torch's fused attention: FlashAttention-2, cuDNN's, and the memory-efficient one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRates:
    """Rates that a GPU reaches in bf16, at rows of 512 tokens and heads of 64."""

    products: float
    """FLOP per second of a layer's products."""
    bandwidth: float
    """Bytes per second of kernels that only move."""
    attention: Mapping[AttentionName, tuple[float, float]]
    """FLOP per second, forward and backward."""
    band: tuple[float, float]
    """Factors around the time of a step, for what else takes time and what is assumed."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of a micro-step for a device."""

    product_flops: float
    attention_flops: Mapping[AttentionName, tuple[float, float]]
    """Forward and backward, by the kernel that computes it."""
    moved_bytes: float
    """Bytes moved by all other kernels."""


_MEASURED = "measured in a step on an H200 with torch 2.11 (RESULTS.md)"
_HERE, _ELSEWHERE = (0.95, 1.25), (0.8, 1.5)
"""Bands where rates are measured, where steps took 2 to 10 % longer, and where they are assumed."""
_HOPPER_ATTENTION: Mapping[AttentionName, tuple[float, float]] = {
    "flash": (176e12, 152e12),  # measured, with dropout; published: 282 and 198 without
    "cudnn": (348e12, 258e12),  # measured on full rows without dropout
    "memory_efficient": (53e12, 65e12),  # measured separately, with dropout and padding
}
_BANDWIDTH_SHARE = 2.5 / 4.8
"""Share of the data sheet's bandwidth: 2.5 TB/s measured on an H200, where a copy moves 4.2; GELU
takes longer to compute than to read. Assumed for the others too."""
KERNEL_RATES: Mapping[str, KernelRates] = {
    "h100": KernelRates(
        products=766e12, bandwidth=_BANDWIDTH_SHARE * 3.35e12, attention=_HOPPER_ATTENTION,
        band=_ELSEWHERE, source="assumed as measured on an H200, which has the same processors",
    ),
    "h200": KernelRates(
        products=766e12, bandwidth=_BANDWIDTH_SHARE * 4.8e12, attention=_HOPPER_ATTENTION,
        band=_HERE, source=_MEASURED,
    ),
    "a100": KernelRates(
        products=234e12, bandwidth=_BANDWIDTH_SHARE * 2.04e12,
        attention={
            "flash": (150e12, 125e12),
            "cudnn": (150e12, 125e12),
            "memory_efficient": (100e12, 70e12),
        },
        band=_ELSEWHERE,
        source="assumed: products at 75 % of the peak, attention between 22 and 48 %",
    ),
}  # fmt: skip
"""Rates by the keys of `device_rates.GPUS`."""


def step_seconds(work: StepWork, rates: KernelRates) -> dict[str, float]:
    """The least seconds of a micro-step by part: products, attention, moving."""
    attention = sum(
        flops / rate
        for kernel, both in work.attention_flops.items()
        for flops, rate in zip(both, rates.attention[kernel], strict=True)
    )
    return {
        "products": work.product_flops / rates.products,
        "attention": attention,
        "moving": work.moved_bytes / rates.bandwidth,
    }
