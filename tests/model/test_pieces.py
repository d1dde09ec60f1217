"""Pieces and blocks by hand."""

import pytest
import torch

from model import pieces as module
from model.pieces import lay_out, piece_of, pieces_of, positions_in_pieces


def test_pieces_by_hand() -> None:
    """Also with empty pieces at the end."""
    pieces = pieces_of([2, 3, 1, 0, 0])
    assert pieces.cu_seqlens.tolist() == [0, 2, 5, 6, 6, 6] and pieces.longest == 3
    assert pieces.cu_seqlens.dtype == torch.int32
    assert piece_of(pieces.cu_seqlens, 6).tolist() == [0, 0, 1, 1, 1, 2]
    assert positions_in_pieces(pieces.cu_seqlens, 6).tolist() == [0, 1, 0, 1, 2, 0]
    away = pieces.to("meta")
    assert away.cu_seqlens.device.type == "meta" and away.longest == 3


@pytest.mark.parametrize("lengths", [[3, 3, 3, 3, 3], [3] * 5 + [0, 0]])
def test_equal_pieces_are_views(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 2 * 4 * 3**2 * 2)  # two rows of two heads
    layout = lay_out(pieces_of(lengths).cu_seqlens, 2)
    assert [tuple(block) for block in layout.blocks] == [(0, [3, 3]), (6, [3, 3]), (12, [3])]
    assert layout.order is layout.taken is layout.places is None
    values = torch.arange(15)
    assert layout.gathered(values) is values and layout.returned(values) is values
    assert layout.blocks[1].of(values).tolist() == [[6, 7, 8], [9, 10, 11]]
    assert layout.blocks[1].shown() is None
    monkeypatch.setattr(module, "GROUP_BYTES", 1)  # too long to share a block
    layout = lay_out(pieces_of([2, 4, 3]).cu_seqlens, 2)
    assert [tuple(block) for block in layout.blocks] == [(0, [2]), (2, [4]), (6, [3])]
    assert layout.taken is None


def test_mixed_pieces_by_hand() -> None:
    """Tokens 0 1 | 2 3 4 5 | 6 | 7 8 9: the longest come first, and one token is less than half of
    four, so it has a block of its own."""
    layout = lay_out(pieces_of([2, 4, 1, 3, 0]).cu_seqlens, 2)
    assert [tuple(block) for block in layout.blocks] == [(0, [4, 3, 2]), (12, [1])]
    assert layout.order is not None and layout.order.tolist() == [1, 3, 0, 2]
    tokens = torch.arange(10.0).requires_grad_()
    placed = layout.gathered(tokens)
    assert placed.tolist() == [2, 3, 4, 5, 7, 8, 9, 9, 0, 1, 1, 1, 6]
    shown = layout.blocks[0].shown()
    assert shown is not None
    assert shown.int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]
    assert layout.blocks[1].shown() is None
    back = layout.returned(placed)
    assert torch.equal(back, tokens)
    (back * torch.arange(10.0)).sum().backward()
    assert tokens.grad is not None and tokens.grad.tolist() == list(range(10))
