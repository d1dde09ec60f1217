"""Scores of several seeds -> median, mean, spread and the 95 % interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

CONFIDENCE = 0.95
_STEPS = 2000


def summary(values: Sequence[float]) -> dict[str, object]:
    """Median, mean, standard deviation and Student's interval of the mean; None where n is 1."""
    mean, count = fmean(values), len(values)
    spread = stdev(values) if count > 1 else None
    half = None if spread is None else t_quantile(count - 1) * spread / math.sqrt(count)
    return {
        "median": median(values),
        "mean": mean,
        "standard_deviation": spread,
        "low": None if half is None else mean - half,
        "high": None if half is None else mean + half,
        "n": count,
        "values": list(values),
    }


def t_quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t: P(|t| <= q) = 0.95."""
    low, high = 1.0, 13.0  # 12.71 at one degree of freedom
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < CONFIDENCE else (low, middle)
    return low


def _within(bound: float, freedom: int) -> float:
    """P(|t| <= bound), by Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    width = bound / _STEPS
    total = 0.0
    for index in range(_STEPS + 1):
        weight = 1 if index in (0, _STEPS) else 4 if index % 2 else 2
        total += weight * (1 + (index * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
    return 2 * scale * total * width / 3
