"""Scores of several seeds -> median, mean, spread and the 95 % interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

CONFIDENCE = 0.95


def summarize_seeds(values: Sequence[float]) -> dict[str, object]:
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
    while high - low > 1e-12:  # P rises with the bound
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < CONFIDENCE else (low, middle)
    return low


def t_within(bound: float, freedom: int) -> float:
    """P(|t| <= bound) for Student's t, a finite sum (Abramowitz and Stegun 1964, 26.7.3-4)."""
    angle = math.atan(bound / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (power - 1) / power
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
