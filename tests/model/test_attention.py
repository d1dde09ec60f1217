"""Every kernel equals textbook attention computed piece by piece, and none mixes pieces."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from model import attention
from model import pieces as pieces_module
from model.attention import (
    attend_from,
    attend_in_pieces,
    attention_kernel,
    flash_attention,
    padded_attention,
    softmax_attention,
)
from model.encoder import Encoder
from model.pieces import Pieces, lay_out, pieces_of
from tests.model.conftest import TOY

HEADS = 2


def textbook(
    projected: Tensor, lengths: list[int], factors: Sequence[Tensor | float] = ()
) -> Tensor:
    """In float64, piece by piece; factors: of each piece's weights, 0 if dropped."""
    mixed = []
    for own, factor in zip(projected.double().split(lengths), factors or repeat(1.0)):
        query, key, value = own.permute(1, 2, 0, 3)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        mixed.append(((scores.softmax(-1) * factor) @ value).transpose(0, 1))
    return torch.cat(mixed)


def in_blocks(projected: Tensor, pieces: Pieces) -> Tensor:
    return attend_in_pieces(projected, pieces, lay_out(pieces.cu_seqlens, HEADS), 0.0)


def as_wide(projected: Tensor, pieces: Pieces) -> Tensor:
    return padded_attention(projected, pieces, 0.0)


@pytest.mark.parametrize("group_bytes", [1, 700, 16 << 20], ids=["rows", "blocks", "one block"])
@pytest.mark.parametrize(
    ("attend", "kind", "tolerance"),
    [
        (in_blocks, torch.float32, 1e-5),
        (in_blocks, torch.float64, 1e-12),
        (in_blocks, torch.bfloat16, 0.05),
        (as_wide, torch.float32, 1e-5),
        (as_wide, torch.float64, 1e-12),
    ],
)
def test_values_and_gradients_are_those_of_the_textbook(
    attend: Callable[[Tensor, Pieces], Tensor], kind: torch.dtype, tolerance: float,
    group_bytes: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also without a gradient, where float32 takes torch's kernel."""
    monkeypatch.setattr(pieces_module, "GROUP_BYTES", group_bytes)
    torch.manual_seed(0)
    for lengths in ([6, 6, 6], [9, 2, 5, 1, 8, 7], [1, 1, 1], [9], [9, 2, 5, 0, 0]):
        given = torch.randn(sum(lengths), 3, HEADS, 4).to(kind).requires_grad_()
        mixed, expected = attend(given, pieces_of(lengths)), textbook(given, lengths)
        direction = torch.randn(mixed.shape).to(kind)
        (gradient,) = torch.autograd.grad((mixed * direction).sum(), given)
        (wanted,) = torch.autograd.grad((expected * direction.double()).sum(), given)
        with torch.no_grad():
            alone = attend(given, pieces_of(lengths)).double()
        found, theirs = (mixed.double(), gradient, alone), (expected, wanted, expected)
        torch.testing.assert_close(found, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [[6, 6, 6], [3, 9, 2, 8]], ids=["equal", "mixed"])
def test_one_query_of_each_piece_has_the_values_it_has_among_all(
    lengths: list[int], kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces_module, "GROUP_BYTES", 1500)
    torch.manual_seed(0)
    given, pieces = torch.randn(sum(lengths), 3, HEADS, 4).to(kind), pieces_of(lengths)
    places = pieces.cu_seqlens[:-1].long() + torch.tensor([1, 2, 0, 3])[: len(lengths)]
    expected = textbook(given, lengths)[places]
    tolerance = 1e-5 if kind == torch.float32 else 0.05
    for layout in (lay_out(pieces.cu_seqlens, HEADS), None):
        found = attend_from(places, given, pieces, layout)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


class Watched(TorchDispatchMode):
    """Most elements of any tensor that an operator returns, and the operators' arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.elements, self.arguments = 0, defaultdict[Any, list[Any]](list)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.arguments[func.overloadpacket].append(args)
        result = func(*args, **(kwargs or {}))
        for part in tree_leaves(result):
            if torch.is_tensor(part):
                self.elements = max(self.elements, part.numel())
        return result


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("attend", [in_blocks, as_wide])
@pytest.mark.parametrize("lengths", [[32] * 64, [24, 40] * 32], ids=["equal", "mixed"])
def test_no_kernel_forms_scores_between_all_tokens(
    lengths: list[int], attend: Callable[[Tensor, Pieces], Tensor], kind: torch.dtype
) -> None:
    """2,048 tokens: largest is the block of all pieces as wide as the longest, forward and
    backward, not [T, T], which is at least 20 times as much."""
    given = torch.randn(2048, 3, HEADS, 4).to(kind).requires_grad_()
    with Watched() as largest:
        attend(given, pieces_of(lengths)).sum().backward()
        with torch.no_grad():
            attend(given, pieces_of(lengths))
    wide = max(lengths)
    assert 0 < largest.elements <= len(lengths) * max(HEADS * wide**2, wide * 3 * HEADS * 4)
    assert largest.elements < 2048**2 / 20


def test_flash_attention_takes_the_bounds_and_drops() -> None:
    """On the meta device; a CPU cannot compute it."""
    given = torch.empty(17, 3, HEADS, 8, dtype=torch.bfloat16, device="meta", requires_grad=True)
    pieces = Pieces(pieces_of([9, 2, 6]).cu_seqlens.to("meta"), 9)
    with Watched() as watched:
        for mixed in (
            flash_attention(*given.unbind(1), pieces, 0.1),
            attend_in_pieces(given, pieces, None, 0.1),
        ):
            assert mixed.shape == (17, HEADS, 8) and mixed.dtype == torch.bfloat16
            mixed.sum().backward()
    assert given.grad is not None and given.grad.shape == given.shape
    calls = watched.arguments[torch.ops.aten._flash_attention_forward]
    assert len(calls) == 2
    for args in calls:
        assert [part.shape for part in args[:3]] == [(17, HEADS, 8)] * 3
        assert args[3] is pieces.cu_seqlens and args[4] is pieces.cu_seqlens
        assert args[5:10] == (9, 9, 0.1, False, False)


def test_kernels_by_device_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    meta = torch.device("meta")
    for device, dtype, size, recorded, kernel in (
        ("cpu", torch.float32, 64, True, "row_attention"),
        ("cpu", torch.float32, 64, False, "scaled_dot_product_attention"),
        ("cpu", torch.float64, 64, True, "scaled_dot_product_attention"),
        ("cpu", torch.bfloat16, 64, True, "softmax_attention"),
        ("meta", torch.bfloat16, 64, True, "flash_attention"),
        ("meta", torch.float32, 64, True, "padded_attention"),
        ("meta", torch.bfloat16, 12, True, "padded_attention"),
        ("meta", torch.bfloat16, 264, True, "padded_attention"),
    ):
        assert attention_kernel(torch.device(device), dtype, size, recorded) == kernel
    monkeypatch.setattr(attention, "_capability", lambda device: (7, 5))  # of a T4
    assert attention_kernel(meta, torch.float16, 64, True) == "padded_attention"


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("lengths", [[12, 12], [6, 6, 12]])
def test_the_kernel_that_is_named_computes(
    dtype: torch.dtype, dropout: float, lengths: list[int], recorded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An encoder in training, on a CPU."""
    kernels = attention._BY_NAME | {"row_attention": attention.row_attention}
    watched = {name: Mock(wraps=computes) for name, computes in kernels.items()}
    monkeypatch.setattr(attention, "row_attention", watched["row_attention"])
    monkeypatch.setattr(attention, "_BY_NAME", watched)
    config = replace(TOY, attention_dropout=dropout)
    encoder = Encoder(config).to(dtype).train()
    with torch.set_grad_enabled(recorded):
        encoder(torch.randint(5, 300, (24,)), pieces_of(lengths))
    named = attention_kernel(torch.device("cpu"), dtype, 12, recorded)
    calls = {name: kernel.call_count for name, kernel in watched.items() if kernel.called}
    assert calls == {named: config.layers}


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
