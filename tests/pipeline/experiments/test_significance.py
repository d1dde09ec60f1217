"""Equal to scipy and to plain loops, which have errors and power as is said."""

import numpy as np
import pytest
from scipy import stats

from pipeline.experiments.significance import (
    POWER,
    holm,
    interval,
    multi_bootstrap,
    paired_difference,
    visible_effect,
)


def test_the_paired_difference_equals_scipys() -> None:
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 5, 10, 25):
        baseline, arm = rng.normal(size=(2, seeds)).tolist()
        found = paired_difference(baseline, arm)
        expected = stats.ttest_rel(arm, baseline)
        assert found.p == pytest.approx(expected.pvalue, abs=1e-12)
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
        assert found.mean == pytest.approx(np.mean(arm) - np.mean(baseline))
        spread = np.subtract(arm, baseline).std(ddof=1)
        assert found.visible == pytest.approx(visible_effect(seeds) * spread)


def test_equal_differences_have_no_spread_and_one_seed_no_interval() -> None:
    """There is no t; all of two, or of six, have the same sign."""
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p == 1
    assert paired_difference([1.0, 2.0], [1.5, 2.5]).p == 0.5
    assert paired_difference([0.0, 0.2], [0.1, 0.30000000000000004]).p == 0.5
    assert paired_difference([1.0] * 6, [2.0] * 6).p == 2**-5
    for arm in ([1.0, 2.0], [1.5, 2.5]):
        assert paired_difference([1.0, 2.0], arm).visible is None
    for baseline, arm in (([1.0], [2.0]), ([1.0, 2.0], [2.0])):
        with pytest.raises(ValueError):
            paired_difference(baseline, arm)


def test_holm() -> None:
    """The example of the procedure: 4 x .005, 3 x .01, 2 x .03, and never less than one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (holm([0.5, 0.6]), holm([])) == ([1.0, 1.0], [])


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 25])
def test_the_visible_effect_has_the_power_that_scipy_computes(seeds: int, rows: int) -> None:
    effect = visible_effect(seeds, rows) * np.sqrt(seeds)
    quantile = stats.t.ppf(1 - 0.025 / rows, seeds - 1)
    below = np.nan_to_num(stats.nct.cdf(-quantile, seeds - 1, effect))  # nan: too small for scipy
    power = stats.nct.sf(quantile, seeds - 1, effect) + below
    assert power == pytest.approx(POWER, abs=1e-4)


def test_the_multi_bootstrap_equals_plain_loops() -> None:
    """As the paper describes it: mean over seeds of scores of each."""
    rng = np.random.default_rng(3)
    baseline = (rng.random((10, 50)) < 0.6).astype(float)
    arm = (rng.random((10, 50)) < 0.7).astype(float)
    found = multi_bootstrap(baseline, arm, np.random.RandomState(4), 150)
    draws, expected = np.random.RandomState(4), []
    for _ in range(150):
        seeds = draws.choice(list(range(10)), size=10, replace=True)
        chosen = draws.choice(50, size=50, replace=True)
        scores = [np.mean([row[seed, chosen].mean() for seed in seeds]) for row in (baseline, arm)]
        expected.append(scores[1] - scores[0])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert interval(found) == pytest.approx(np.quantile(expected, [0.025, 0.975]))
    with pytest.raises(ValueError, match=r"\(10, 50\) and \(10, 49\)"):
        multi_bootstrap(baseline, arm[:, 1:], np.random.RandomState(0))
