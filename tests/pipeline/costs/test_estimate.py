import pytest

from pipeline.costs.estimate import Estimate


def test_a_band_holds_its_value() -> None:
    exact = Estimate("weights", 8, "bytes", "computed", "bf16")
    assert (exact.least, exact.most) == (8, 8)
    wide = Estimate("context", 8, "bytes", "published", "CUDA 13", 4, 10)
    assert (wide.least, wide.most) == (4, 10)
    with pytest.raises(AssertionError):
        Estimate("context", 8, "bytes", "published", "CUDA 13", 9, 10)
