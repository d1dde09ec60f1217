"""What a file keeps of each site is estimated from a sample of its pages."""

import numpy as np
import pytest

from pipeline.costs.preparation.site_pages import kept_shares

NEAR = 1.5
ONE_LARGE = [2000] * 5 + [1] * 8000
ZIPF = [5000 // rank for rank in range(1, 5000)]
ALIKE = [20] * 1000
LOGNORMAL = [1 + int(size) for size in np.random.default_rng(1).lognormal(1.5, 1.5, 3000)]


@pytest.mark.parametrize("sizes", [[1] * 5000, ONE_LARGE, ZIPF, LOGNORMAL, ALIKE])
@pytest.mark.parametrize("most", [3, 10, 50])
def test_the_share_that_is_kept(sizes: list[int], most: int) -> None:
    """Of files of 5,000 to 44,000 pages, from 1,000 of them; sizes: pages of each site."""
    pages = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    sampled = [str(page) for page in pages[:1000]]
    truth = np.minimum(sizes, most).sum() / len(pages)
    [shares] = kept_shares([(sampled, len(pages))], most)
    found = np.mean([shares[site] for site in sampled])
    assert truth / NEAR < found < NEAR * truth


def test_a_file_that_is_sampled_whole_is_exact() -> None:
    """And one without pages has no sites."""
    sites = ["a"] * 10 + ["b"] * 3 + ["c"]
    [shares, none] = kept_shares([(sites, 14), ([], 0)], 2)
    assert shares == pytest.approx({"a": 0.2, "b": 2 / 3, "c": 1.0}) and none == {}
