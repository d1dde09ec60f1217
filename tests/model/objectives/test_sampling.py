"""Words are sampled by their probabilities, the same on any device, and robust to rounding."""

import math

import pytest
import torch

from model.objectives.sampling import first_word, race, waiting_times

GOLDEN, LOW = 0x9E3779B97F4A7C15, (1 << 64) - 1


def slow_times(seed: int, count: int) -> list[float]:
    """splitmix64 in Python's integers, and the logarithm of its highest 23 bits."""
    found = []
    for number in range(1, count + 1):
        word = (seed + number * GOLDEN) & LOW
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & LOW
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & LOW
        word ^= word >> 31
        found.append(-math.log(((word >> 41) + 0.5) / 2**23))
    return found


def test_waiting_times_are_those_of_the_counter() -> None:
    seeds = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 123456789])
    times = waiting_times(seeds, 50)
    for seed, row in zip(seeds.tolist(), times.tolist()):
        assert row == pytest.approx(slow_times(seed & LOW, 50), rel=1e-5)
    assert waiting_times(torch.arange(100_000), 20).min() > 0


@pytest.mark.parametrize("words", [1, 2, 5, 100, 300])
def test_words_are_sampled_in_proportion_to_their_weights(words: int) -> None:
    """Chi squared test: its standard deviation is sqrt(2 x degrees of freedom)."""
    torch.manual_seed(words)
    weights = torch.randn(words).exp() * 7
    weights[words // 2] *= 10
    draws = 200_000
    sampled = first_word(weights.expand(draws, -1), race(torch.arange(draws) * 977, len(weights)))
    counts = sampled.bincount(minlength=words)
    assert len(counts) == words
    expected = weights / weights.sum() * draws
    distance = float(((counts - expected) ** 2 / expected).sum())
    assert distance < words - 1 + 4 * math.sqrt(2 * words) + 1e-9


def test_words_without_weight_are_never_drawn() -> None:
    weights = torch.zeros(5000, 50)
    weights[:, [7, 49]] = torch.tensor([1e-30, 3e-30])
    sampled = first_word(weights, race(torch.arange(5000), 50))
    assert set(sampled.tolist()) == {7, 49}
    assert 0.72 < (sampled == 49).float().mean() < 0.78


def test_rounding_changes_no_draw() -> None:
    """A search in 2,048 cumulative probabilities would change several samples in a thousand."""
    torch.manual_seed(0)
    logits = torch.randn(4000, 2048) * 2
    noise = 1 + 2e-7 * torch.randn(4000, 2048)
    waits = race(torch.arange(4000) * 31, 2048)
    one, two = (first_word(part.exp(), waits) for part in (logits, logits * noise))
    assert int((one != two).sum()) <= 1
