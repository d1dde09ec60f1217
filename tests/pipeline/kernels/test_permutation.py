"""The keyed bijection: exhaustive at small sizes, sampled at large ones, uniform in bounds."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from pipeline.kernels.permutation import MAX_COUNT, bijection


def test_every_index_has_one_image() -> None:
    for count, seed in product(range(1, 301), (0, 1, 2**62 + 11)):
        images = bijection(np.arange(count), count, seed)
        assert np.array_equal(np.sort(images), np.arange(count)), count
    for count in (10**10, MAX_COUNT, MAX_COUNT - 1):
        indices = np.unique(np.random.default_rng(0).integers(0, count, 300_000))
        images = bijection(indices, count, 7)
        assert images.min() >= 0 and images.max() < count
        assert len(np.unique(images)) == len(indices)


def test_an_image_depends_only_on_the_key_and_is_fixed() -> None:
    """A new order under the same seed breaks every run's resume: increase ORDER_VERSION."""
    together = bijection(np.arange(1000), 1000, 5, 3)
    alone = [int(bijection(np.array([index]), 1000, 5, 3)[0]) for index in range(1000)]
    assert together.tolist() == alone
    assert bijection(np.arange(10), 10, 0).tolist() == [6, 0, 5, 8, 7, 2, 4, 9, 1, 3]
    assert bijection(np.arange(3), 10**10, 123, 4).tolist() == [4268771799, 4457226358, 1203293293]


def test_keys_give_unrelated_permutations() -> None:
    indices = np.arange(10_000)
    first = bijection(indices, 10_000, 1, 1)
    for other in (bijection(indices, 10_000, 1, 2), bijection(indices, 10_000, 2, 1)):
        assert (first == other).sum() < 12  # 1 expected; 12 has probability below 1e-9
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05  # 5 standard deviations


@pytest.mark.parametrize("count", [2, 3, 4, 9, 25, 64, 257])
def test_images_are_uniform(count: int) -> None:
    """Chi-square of the images of two indices, and of their difference, over 10,000 keys."""
    indices = np.array([0, count - 1])
    images = np.array([bijection(indices, count, 7, number) for number in range(10_000)])
    assert abs(deviation(images[:, 0], count)) < 5
    assert abs(deviation(images[:, 1], count)) < 5
    if count > 2:
        assert abs(deviation((images[:, 1] - images[:, 0]) % count - 1, count - 1)) < 5


def test_small_permutations_are_equally_likely() -> None:
    seen = Counter(tuple(bijection(np.arange(4), 4, seed).tolist()) for seed in range(12_000))
    assert len(seen) == 24
    assert min(seen.values()) > 380 and max(seen.values()) < 620  # 500 +- 5.5 deviations


def deviation(values: np.ndarray, count: int) -> float:
    """Chi-square against the uniform distribution, in standard deviations from its mean."""
    expected = len(values) / count
    statistic = ((np.bincount(values, minlength=count) - expected) ** 2 / expected).sum()
    return float((statistic - (count - 1)) / np.sqrt(2 * (count - 1)))
