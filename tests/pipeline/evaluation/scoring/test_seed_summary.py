"""Quantiles and intervals equal scipy's."""

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
