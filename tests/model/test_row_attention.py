"""Attention by rows equals the textbook formula and its gradient, with and without dropout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from model import row_attention as module
from model.dropout import kept_scale
from model.row_attention import piece_attention, row_attention


def textbook(projected: Tensor, lengths: list[int], factors: Tensor) -> Tensor:
    """Softmax over a row's own tokens, each weight times its factor (0 if dropped)."""
    query, key, value = projected.permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    pads = torch.arange(scores.shape[-1]) >= torch.tensor(lengths)[:, None]
    weights = scores.masked_fill(pads[:, None, None], -math.inf).softmax(-1) * factors
    return (weights @ value).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("group_bytes", [1, 16 << 20], ids=["row by row", "one group"])
@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 2, 5]], ids=["full", "short"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_equals_the_formula(
    monkeypatch: pytest.MonkeyPatch, group_bytes: int, lengths: list[int], dropout: float
) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", group_bytes)
    groups: list[Tensor] = []
    mark = module._mark_dropped

    def watched(weights: Tensor, below: int) -> None:
        mark(weights, below)
        groups.append(torch.where(torch.signbit(weights), 0.0, kept_scale(dropout)))

    monkeypatch.setattr(module, "_mark_dropped", watched)
    torch.manual_seed(3)
    projected = torch.randn(3, 9, 3, 2, 4, requires_grad=True)
    mixed = row_attention(projected, lengths, dropout)
    tokens = torch.arange(9) < torch.tensor(lengths)[:, None]
    direction = torch.randn(mixed.shape) * tokens[:, :, None]
    (gradient,) = torch.autograd.grad((mixed * direction).sum(), projected)
    factors = torch.ones(3, 2, 9, 9)
    for row, factor in enumerate(factor for group in groups for factor in group):
        factors[row, :, : factor.shape[-1], : factor.shape[-1]] = factor
    expected = textbook(projected, lengths, factors)
    (expected_gradient,) = torch.autograd.grad((expected * direction).sum(), projected)
    torch.testing.assert_close(mixed[tokens], expected[tokens], rtol=0, atol=2e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_piece_of_a_row_equals_a_row_of_its_own(dropout: float) -> None:
    """With the same random numbers, including the gradient; outputs outside of pieces are 0."""
    pieces = [(0, 0, 4), (0, 4, 5), (1, 0, 3), (1, 3, 1)]
    projected = torch.randn(2, 9, 3, 2, 4, generator=torch.Generator().manual_seed(3))
    whole, apart = projected.clone().requires_grad_(), projected.clone().requires_grad_()
    torch.manual_seed(4)
    mixed = piece_attention(whole, pieces, dropout)
    torch.manual_seed(4)
    expected = torch.zeros(2, 9, 8)
    for row, first, length in pieces:
        part = row, slice(first, first + length)
        expected[part] = row_attention(apart[part][None], [length], dropout)[0]
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-6)
    direction = torch.randn(mixed.shape)
    (gradient,) = torch.autograd.grad((mixed * direction).sum(), whole)
    (expected_gradient,) = torch.autograd.grad((expected * direction).sum(), apart)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-6)


def test_drops_a_tenth_of_the_weights() -> None:
    torch.manual_seed(0)
    weights = torch.rand(1000, 1000)
    before = weights.clone()
    module._mark_dropped(weights, -32_768 + 6_554)
    assert torch.signbit(weights).float().mean().item() == pytest.approx(0.1, abs=0.002)
    assert torch.equal(weights.abs(), before)
