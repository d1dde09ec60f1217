from __future__ import annotations

import pytest

from pipeline.costs.devices import GPUS
from pipeline.costs.kernel_rates import KERNEL_RATES, StepWork, step_seconds


def test_no_kernel_exceeds_its_data_sheet() -> None:
    for name, rates in KERNEL_RATES.items():
        sheet = GPUS[name]
        assert rates.products < sheet.bf16_flops and rates.bandwidth < sheet.bandwidth
        for forward, backward in rates.attention.values():
            assert backward < forward < rates.products


def test_seconds_by_part() -> None:
    rates = KERNEL_RATES["h200"]
    work = StepWork(
        product_flops=680e12, attention_flops={"flash": (282e12, 396e12), "cudnn": (335e12, 0)},
        moved_bytes=2e12,
    )  # fmt: skip
    assert step_seconds(work, rates) == pytest.approx(
        {"products": 1.0, "attention": 1 + 2 + 1, "moving": 0.5}
    )
