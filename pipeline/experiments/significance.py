"""Differences between arms over seeds, with the smallest that could have been seen.

An arm and the baseline share their seeds, so the seeds' differences are compared: the arm's score
minus the baseline's with the same seed. What the seed decides (initial weights, order, dropout) is
then part of both and mostly cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist, fmean, stdev

import numpy as np
import numpy.typing as npt

from pipeline.evaluation.scoring.seed_summary import CONFIDENCE, t_quantile, t_within

POWER = 0.8
"""Share of experiments that find the smallest difference that is called visible."""
MIN_BOOTSTRAP_SEEDS = 10
"""With fewer, resampled seeds are too few for an interval of their own."""
RESAMPLES = 2_000
_STEPS = 2_000  # even, for Simpson's rule
_BATCH = 64  # resamples per product; all at once would be 2,000 x examples of float64
_ROUNDING = 1e-9  # relative: a smaller spread is that of equal differences


@dataclass(frozen=True)
class PairedDifference:
    """Arm minus baseline over n seeds, in the score's unit."""

    mean: float
    standard_deviation: float
    """Spread of the seeds' differences, with n - 1."""
    low: float
    high: float
    """The 95 % interval of the mean, by Student's t."""
    p: float
    """Two-sided p-value of no difference, before any correction for the number of rows."""
    visible: float | None
    """The smallest true difference that 80 % of such experiments would have found, if no other row
    of the table has one; None if all seeds differ alike, as the spread is then not known."""
    seeds: int


def paired_difference(
    baseline: Sequence[float], arm: Sequence[float], rows: int = 1
) -> PairedDifference:
    """Student's paired t over seeds; position i of both holds the scores of seed i.

    rows: p-values that `holm` will correct together, for `visible`. Equal differences have no t, so
    p is that of the sign test. Raises ValueError for fewer than two seeds or unequal numbers.
    """
    differences = [b - a for a, b in zip(baseline, arm, strict=True)]
    seeds = len(differences)
    if seeds < 2:
        raise ValueError(f"an interval needs two seeds or more, not {seeds}")
    mean, spread = fmean(differences), stdev(differences)
    error = spread / math.sqrt(seeds)
    half = t_quantile(seeds - 1) * error
    visible = None
    if spread > _ROUNDING * abs(mean):
        p = 1 - t_within(abs(mean) / error, seeds - 1)
        visible = visible_effect(seeds, rows) * spread
    else:
        p = 2.0 ** (1 - seeds) if mean else 1.0
    return PairedDifference(mean, spread, mean - half, mean + half, p, visible, seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, in the given order (Holm 1979).

    A row is significant if its adjusted value is at most 0.05; then one of any number of rows
    without an effect is called significant in at most 5 % of tables.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    ranked = sorted(range(len(p_values)), key=lambda row: p_values[row])
    for rank, row in enumerate(ranked):
        # a running maximum: a larger p must not end up with a smaller adjusted one
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[row]))
        adjusted[row] = largest
    return adjusted


@cache
def visible_effect(seeds: int, rows: int = 1) -> float:
    """The true difference that POWER of all paired t tests find, if only this row has one.

    rows: of a table corrected by `holm`, whose strictest step counts. In standard deviations of the
    seeds' differences: 1.68 for five seeds and one row, 1.00 for ten.
    """
    quantile = _quantile(seeds - 1, 1 - (1 - CONFIDENCE) / rows)
    low, high = 0.0, 10_000.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        found = _power(middle * math.sqrt(seeds), seeds - 1, quantile)
        low, high = (middle, high) if found < POWER else (low, middle)
    return high  # the end that has the power


def _quantile(freedom: int, level: float) -> float:
    """q with P(|t| <= q) = level."""
    low, high = 0.0, 1.0
    while t_within(high, freedom) < level:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < level else (low, middle)
    return high


def _power(shift: float, freedom: int, quantile: float) -> float:
    """P(|t'| > quantile) for the noncentral t' = (z + shift) / u, u^2 freedom ~ chi^2.

    Integrated over u by Simpson's rule.
    """
    # in logarithms, as both factors overflow with hundreds of seeds
    logarithm = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    normal = NormalDist()
    # u has a mean near 1 and a spread of about 1 / sqrt(2 freedom): the rest is beyond 14 of these
    most = 1 + 10 / math.sqrt(freedom)
    width = most / _STEPS
    missed = 0.0
    for step in range(1, _STEPS + 1):  # at u = 0 `within` is 0
        u = step * width
        density = math.exp(logarithm + (freedom - 1) * math.log(u) - freedom * u * u / 2)
        within = normal.cdf(quantile * u - shift) - normal.cdf(-quantile * u - shift)
        missed += (1 if step == _STEPS else 4 if step % 2 else 2) * density * within
    return 1 - missed * width / 3


def multi_bootstrap(
    baseline: npt.ArrayLike,
    arm: npt.ArrayLike,
    rng: np.random.RandomState,
    resamples: int = RESAMPLES,
) -> npt.NDArray[np.float64]:
    """Differences of mean scores, arm minus baseline, in resamples of seeds and examples.

    baseline, arm: scores [seeds, examples] with equal rows' seeds and equal columns' examples.
    Both are resampled with replacement, the same way for both arms (Sellam et al. 2022, "The
    MultiBERTs", section 3, paired). Draws the seeds, then the examples, of one resample after the
    other. Raises ValueError for unequal shapes.
    """
    base, other = np.asarray(baseline, np.float64), np.asarray(arm, np.float64)
    if base.shape != other.shape or base.ndim != 2 or not base.size:
        raise ValueError(f"shapes [seeds, examples] differ: {base.shape} and {other.shape}")
    difference = other - base
    seeds, examples = difference.shape
    found = np.empty(resamples)
    for start, stop in pairwise([*range(0, resamples, _BATCH), resamples]):
        by_seed = np.zeros((stop - start, seeds))
        by_example = np.zeros((stop - start, examples))
        for row in range(stop - start):
            by_seed[row] = np.bincount(rng.choice(seeds, seeds), minlength=seeds)
            by_example[row] = np.bincount(rng.choice(examples, examples), minlength=examples)
        # how often each is drawn, as weights: gathered rows would copy the matrix for each resample
        found[start:stop] = ((by_seed @ difference) * by_example).sum(1) / difference.size
    return found


def interval(samples: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The central 95 % of bootstrap samples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)
