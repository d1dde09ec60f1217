"""Dropout: the right share and scale, and draws that are reproducible from a seed."""

import pytest
import torch

from model.dropout import Dropout, kept_scale, random_int16, threshold


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_drops_its_share_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    ones = torch.ones(1000, 1000, requires_grad=True)
    dropped = Dropout(probability)(ones)
    share = (dropped == 0).float().mean().item()
    # a million draws: the standard deviation of the share is at most 0.0005
    assert share == pytest.approx(probability, abs=0.002)
    assert dropped.max().item() == pytest.approx(1 / (1 - probability), rel=2e-5)
    dropped.sum().backward()
    assert ones.grad is not None and torch.equal(ones.grad, dropped)


def test_scale_is_that_of_the_rounded_probability() -> None:
    kept = 65_536 - (threshold(0.1) + 32_768)
    assert kept * kept_scale(0.1) == pytest.approx(65_536, rel=1e-12)


def test_draws_are_uniform_over_all_16_bits() -> None:
    torch.manual_seed(0)
    draws = random_int16((4, 250_000))
    assert (draws.min().item(), draws.max().item()) == (-32_768, 32_767)
    for place in range(4):  # each of the four numbers of a 64-bit draw
        assert draws.flatten()[place::4].float().mean().item() == pytest.approx(-0.5, abs=150)
    assert random_int16((3, 5)).shape == (3, 5)


def test_a_seed_repeats_it_and_evaluation_has_none() -> None:
    value, dropout = torch.randn(50, 7), Dropout(0.3)
    torch.manual_seed(5)
    first = dropout(value)
    torch.manual_seed(5)
    assert torch.equal(dropout(value), first) and not torch.equal(dropout(value), first)
    assert dropout.eval()(value) is value
