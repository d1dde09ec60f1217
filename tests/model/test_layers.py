"""The layers: both attention paths agree, pads change nothing, GELU is the requested one."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from model.encoder import Encoder
from model.layers import Attention, Embeddings, Layer, attention_kernel, softmax_attention
from tests.model.conftest import TOY


@pytest.mark.parametrize("lengths", [[40, 40], [40, 17]], ids=["full", "short"])
def test_the_dropout_path_agrees_with_torch(lengths: list[int]) -> None:
    torch.manual_seed(0)
    attention = Attention(TOY)
    shown = (torch.arange(40) < torch.tensor(lengths)[:, None])[:, None, None]
    hidden = torch.randn(2, 40, 48)
    expected = attention(hidden, shown)
    attention.dropout.probability = 1e-9  # takes the other path, and rounds to no drop at all
    tokens = shown[:, 0, 0]
    torch.testing.assert_close(attention(hidden, shown)[tokens], expected[tokens])


@pytest.mark.parametrize("shape", ["row", "pads", "pieces"])
def test_attention_in_matrix_products_agrees_with_torch(shape: str) -> None:
    """In float32 to rounding; in bfloat16, where CPUs use it, as near to float64 as torch's."""
    torch.manual_seed(0)
    vectors = torch.randn(3, 2, 4, 40, 16)
    piece = torch.arange(40) // 13
    shown = {
        "row": None,
        "pads": (torch.arange(40) < torch.tensor([40, 17])[:, None])[:, None, None],
        "pieces": (piece[:, None] == piece)[None, None].expand(2, 1, 40, 40),
    }[shape]

    def mixed_and_gradient(attend: object, dtype: torch.dtype) -> torch.Tensor:
        given = vectors.to(dtype, copy=True).requires_grad_()
        mixed = attend(*given, shown, 0.0)  # type: ignore[operator]
        mixed.square().sum().backward()
        return torch.cat([mixed[None], given.grad]).detach().double()  # type: ignore[list-item]

    torch.testing.assert_close(
        mixed_and_gradient(softmax_attention, torch.float32),
        mixed_and_gradient(F.scaled_dot_product_attention, torch.float32),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip
    exact = mixed_and_gradient(F.scaled_dot_product_attention, torch.float64)
    ours, torchs = (
        (mixed_and_gradient(attend, torch.bfloat16) - exact).square().mean().sqrt()
        for attend in (softmax_attention, F.scaled_dot_product_attention)
    )
    assert ours < 1.5 * torchs


def test_attention_in_matrix_products_drops_weights() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 500, 8)
    mixed = softmax_attention(query, key, torch.ones(1, 1, 500, 1), dropout=0.2)
    assert mixed.mean() == pytest.approx(1, abs=0.01)
    assert mixed.std() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_the_kernel_that_is_named_computes(
    dtype: torch.dtype, dropout: float, in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder in training, on a CPU; `pipeline.training.planning.plan` names it for run.json."""
    used: list[str] = []
    for where, function in (
        ("model.layers.row_attention", "row_attention"),
        ("model.layers.piece_attention", "row_attention"),
        ("model.layers.softmax_attention", "softmax_attention"),
        ("torch.nn.functional.scaled_dot_product_attention", "scaled_dot_product_attention"),
    ):
        module, _, attribute = where.rpartition(".")
        computes = getattr(importlib.import_module(module), attribute)

        def noted(*given: Any, computes: Any = computes, function: str = function) -> Any:
            used.append(function)
            return computes(*given)

        monkeypatch.setattr(where, noted)
    config = replace(TOY, dropout=dropout)
    encoder = Encoder(config).to(dtype).train()
    cu_seqlens = torch.tensor([0, 5, 12, 24], dtype=torch.int32) if in_pieces else None
    encoder(torch.randint(5, 300, (2, 12)), None, cu_seqlens=cu_seqlens)
    assert set(used) == {attention_kernel("cpu", dtype, dropout, in_pieces)}
    assert len(used) == config.layers


def test_pads_do_not_reach_tokens() -> None:
    torch.manual_seed(0)
    layer = Layer(TOY)
    shown = (torch.arange(40) < 25)[None, None, None]
    hidden = torch.randn(1, 40, 48)
    other = hidden.clone()
    other[:, 25:] = 9.0
    assert torch.equal(layer(hidden, shown)[:, :25], layer(other, shown)[:, :25])
    assert not torch.equal(layer(hidden, None)[:, :25], layer(other, None)[:, :25])


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    layer = Layer(replace(TOY, dropout=0.3))
    hidden = torch.randn(2, 40, 48)
    assert not torch.equal(layer(hidden, None), layer(hidden, None))
    layer.eval()
    assert torch.equal(layer(hidden, None), layer(hidden, None))


def test_traps_30_first_token_takes_the_row_of_the_offset() -> None:
    embeddings = Embeddings(TOY)
    embeddings(torch.zeros(1, 3, dtype=torch.int64)).square().sum().backward()
    used = embeddings.positions.weight.grad.abs().sum(1).nonzero().flatten()  # type: ignore[union-attr]
    assert used.tolist() == [2, 3, 4]


def test_segments_have_vectors_of_their_own() -> None:
    """Embeddings are summed before the norm; a table of one row ignores segments."""
    torch.manual_seed(0)
    ids, segments = torch.randint(5, 300, (2, 6)), torch.tensor([[0, 0, 1, 1, 1, 0], [0] * 6])
    two = Embeddings(replace(TOY, segment_types=2))
    shown = two(ids, segments)
    first = shown - two(ids)
    assert torch.equal(first.abs().sum(-1) > 0, segments > 0)
    places = two.positions(torch.arange(6) + TOY.position_offset)
    whole = two.norm(two.words(ids) + places + two.segments(segments))
    torch.testing.assert_close(shown, whole)
    one = Embeddings(replace(TOY, segment_types=1))
    assert torch.equal(one(ids, segments), one(ids))
