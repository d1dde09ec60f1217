"""Dropout: the right share and scale, and draws that are reproducible from a seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.dropout import Dropout, kept_scale, random_int16, set_dropout, threshold
from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.recipes import recipe
from pipeline.training.planning.plan import encoder_config


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


def test_a_whole_model_gets_another_probability() -> None:
    """Embeddings, hidden units and attention weights, as if it had been built with it."""
    run = recipe("bert_tiny")
    config = encoder_config(run)
    changed, built = (
        MaskedLanguageModel(replace(config, dropout=share), seed=0) for share in (0.0, 0.4)
    )
    set_dropout(changed, 0.4)
    given, found = (torch.arange(5, 37).repeat(4), pieces_of([32] * 4)), []
    for model in (changed, built):
        torch.manual_seed(3)
        found.append(model.encoder(*given))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    set_dropout(changed, 0.0)
    torch.testing.assert_close(changed.encoder(*given), changed.eval().encoder(*given))
