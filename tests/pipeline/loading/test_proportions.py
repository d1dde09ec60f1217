"""Counts follow weights: they add up, never fall, stay near the shares and are exact in the end."""

import numpy as np
import pytest

from pipeline.base.errors import ConfigError
from pipeline.loading.proportions import WHOLE, Proportions, shares_of


def test_shares_round_by_the_largest_remainder() -> None:
    assert shares_of((3.0, 1.0)).tolist() == [WHOLE // 4 * 3, WHOLE // 4]
    assert shares_of((2.0, 1.0)).tolist() == [1_431_655_765, 715_827_883]
    assert shares_of((1.0, 1e9)).tolist() == [2, WHOLE - 2]
    for wrong, said in (
        ((1.0, 0.0), "must be positive numbers"),
        ((1.0, -1.0), "must be positive numbers"),
        ((1.0, float("nan")), "must be positive numbers"),
        ((1e308, 1e308), r"\[1e\+308, 1e\+308\] have an infinite sum"),
        ((1.0, 1e10), r"1 of \[1.0, 10000000000.0\] is below 1/2147483648 of"),
        ((*[1.0] * 19, 0.0), r"1.0, 1.0, \.\.\. \(20 in all\)\] must be positive"),
    ):
        with pytest.raises(ConfigError, match=said):
            shares_of(wrong)


@pytest.mark.parametrize("datasets", [1, 2, 3, 7, 300])
def test_counts_follow_the_shares(datasets: int) -> None:
    rng = np.random.default_rng(datasets)
    shares = shares_of(tuple((rng.random(datasets) ** 4 + 1e-6).tolist()))
    proportions = Proportions(shares)
    levels = (datasets - 1).bit_length()
    before = proportions.counts(0)
    assert not before.any()
    for samples in (*range(1, 500), 10**6, 10**9):
        counts = proportions.counts(samples)
        assert counts.sum() == samples and (counts >= before).all()
        exact = samples * (shares.astype(np.float64) / WHOLE)
        assert np.abs(counts - exact).max() <= levels / 2
        before = counts
    for whole in (1, 3, 1 << 30):
        assert np.array_equal(proportions.counts(whole * WHOLE), whole * shares)


def test_a_quarter_is_every_fourth_sample() -> None:
    """Quotas that divide a cycle of 4,096 are the same in every cycle, however late."""
    proportions = Proportions(shares_of((3.0, 1.0)))
    for cycle in (0, 1, 10**9):
        ends = [proportions.counts((cycle + at) * 4096) for at in (0, 1)]
        assert (ends[1] - ends[0]).tolist() == [3072, 1024]
