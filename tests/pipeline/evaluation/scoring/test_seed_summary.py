"""Quantiles equal scipy's; the interval covers the mean 95 times of 100."""

import numpy as np
import pytest
from scipy import stats

from pipeline.evaluation.scoring.seed_summary import summarize_seeds, t_quantile


def test_quantiles_and_summary() -> None:
    for freedom in (1, 2, 3, 4, 9, 30, 200):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)

    found = summarize_seeds([1.0, 2.0, 6.0])
    assert (found["median"], found["mean"], found["n"]) == (2.0, 3.0, 3)
    low, high = stats.t.interval(0.95, 2, 3.0, stats.sem([1.0, 2.0, 6.0]))
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    assert summarize_seeds([0.5])["standard_deviation"] is None


def test_the_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(0)
    quantile = t_quantile(4)
    draws = rng.normal(size=(20_000, 5))
    half = quantile * draws.std(1, ddof=1) / np.sqrt(5)
    covered = (np.abs(draws.mean(1)) <= half).mean()
    assert covered == pytest.approx(0.95, abs=0.005)  # three standard errors
