"""Clocks of the nodes: leases, logs and authentication compare times of several machines."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.diagnosis.checks import FAIL, WARN, Check, judge

WARN_SECONDS = 1.0
FAIL_SECONDS = 60.0
"""A lease that is this old counts as abandoned (run_directory/lease.py)."""


def check_clocks(offsets: Sequence[float]) -> list[Check]:
    """Compare the ranks' clocks; offsets: seconds ahead of rank 0's. Nothing for one rank."""
    if len(offsets) < 2:
        return []
    rank = max(range(len(offsets)), key=lambda number: abs(offsets[number]))
    off = abs(offsets[rank])
    wrong = FAIL if off > FAIL_SECONDS else WARN if off > WARN_SECONDS else ""
    value = f"rank {rank} is {offsets[rank]:+.3f} s from rank 0"
    limit = FAIL_SECONDS if wrong == FAIL else WARN_SECONDS
    return [judge("clocks", value, wrong, f"within {limit:.0f} s", "synchronize them (NTP)")]
