import pytest

from pipeline.costs.device_rates import GPUS
from pipeline.costs.kernel_rates import KERNEL_RATES, StepWork, step_seconds


def test_no_kernel_exceeds_its_data_sheet() -> None:
    for name, rates in KERNEL_RATES.items():
        sheet = GPUS[name]
        assert rates.products < sheet.bf16_flops and rates.bandwidth < sheet.bandwidth
        for kernel, (forward, backward) in rates.attention.items():
            assert max(forward, backward) < rates.products
            # an H200 measured 53 and 65 TFLOP/s of this one, so only there forward is the slower
            assert backward < forward or kernel == "memory_efficient"


def test_seconds_by_part() -> None:
    rates = KERNEL_RATES["h200"]
    (ahead, back), (other, _) = rates.attention["flash"], rates.attention["cudnn"]
    work = StepWork(
        product_flops=rates.products, moved_bytes=rates.bandwidth / 2,
        attention_flops={"flash": (ahead, 2 * back), "cudnn": (other, 0)},
    )  # fmt: skip
    assert step_seconds(work, rates) == pytest.approx(
        {"products": 1.0, "attention": 1 + 2 + 1, "moving": 0.5}
    )
