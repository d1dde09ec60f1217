"""A clock that is off is named."""

from __future__ import annotations

from pipeline.diagnosis.checks import FAIL, OK, WARN
from pipeline.diagnosis.clocks import check_clocks


def test_clocks() -> None:
    assert check_clocks([0.0]) == []
    for offsets, status in (([0.0, 0.1], OK), ([0.0, -2.5], WARN), ([0.0, 0.2, 3600.0], FAIL)):
        (check,) = check_clocks(offsets)
        assert check.status == status
    assert check.value == "rank 2 is +3600.000 s from rank 0"
