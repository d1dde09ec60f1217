"""Attention by rows equals the textbook formula and its gradient, with dropout."""

import pytest
import torch
from torch import Tensor

from model import pieces as pieces_module
from model import row_attention as module
from model.dropout import kept_scale
from model.pieces import lay_out, pieces_of
from model.row_attention import row_attention
from tests.model.test_attention import textbook


@pytest.mark.parametrize("group_bytes", [1, 1500, 16 << 20], ids=["row by row", "some", "one"])
@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 2, 5, 1]], ids=["equal", "mixed"])
def test_equals_the_formula_of_what_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch, group_bytes: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(pieces_module, "GROUP_BYTES", group_bytes)
    groups: list[Tensor] = []
    mark = module._mark_dropped

    def watched(weights: Tensor, below: int) -> None:
        mark(weights, below)
        groups.append(torch.where(torch.signbit(weights), 0.0, kept_scale(0.4)))

    monkeypatch.setattr(module, "_mark_dropped", watched)
    torch.manual_seed(3)
    projected = torch.randn(sum(lengths), 3, 2, 4, requires_grad=True)
    layout = lay_out(pieces_of(lengths).cu_seqlens, 2)
    mixed = layout.returned(row_attention(layout.gathered(projected), layout.blocks, 0.4))
    direction = torch.randn(mixed.shape)
    (gradient,) = torch.autograd.grad((mixed * direction).sum(), projected)
    factors = [torch.ones(2, length, length) for length in lengths]
    order = range(len(lengths)) if layout.order is None else layout.order.tolist()
    assert sum(map(len, groups)) == len(lengths)
    for piece, factor in zip(order, (factor for group in groups for factor in group)):
        factors[piece] = factor[:, : lengths[piece], : lengths[piece]]
    expected = textbook(projected, lengths, factors)
    (expected_gradient,) = torch.autograd.grad((expected * direction).sum(), projected)
    torch.testing.assert_close(mixed.double(), expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)


def test_drops_a_tenth_of_the_weights() -> None:
    torch.manual_seed(0)
    weights = torch.rand(1000, 1000)
    before = weights.clone()
    module._mark_dropped(weights, -32_768 + 6_554)
    assert torch.signbit(weights).float().mean().item() == pytest.approx(0.1, abs=0.002)
    assert torch.equal(weights.abs(), before)
