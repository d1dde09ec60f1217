"""The layers: neighbours change nothing, dropout is for training, GELU is the requested one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.layers import Embeddings, Layer, Reach, set_dropout
from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import lay_out, pieces_of
from tests.model.conftest import TOY


def test_other_pieces_do_not_reach_tokens() -> None:
    torch.manual_seed(0)
    layer, pieces = Layer(TOY), pieces_of([25, 15])
    reach = Reach(pieces, lay_out(pieces.cu_seqlens, TOY.heads))
    hidden = torch.randn(40, 48)
    other = hidden.clone()
    other[25:] = 9.0
    assert torch.equal(layer(hidden, reach)[:25], layer(other, reach)[:25])
    assert torch.equal(layer(hidden, Reach(pieces))[:25], layer(other, Reach(pieces))[:25])
    one = Reach(pieces_of([40]))
    assert not torch.equal(layer(hidden, one)[:25], layer(other, one)[:25])


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    pieces = pieces_of([40, 40])
    given = torch.randn(80, 48), Reach(pieces, lay_out(pieces.cu_seqlens, TOY.heads))
    for share in ("dropout", "attention_dropout"):
        layer = Layer(replace(TOY, **{share: 0.3}))
        assert not torch.equal(layer(*given), layer(*given)), share
        layer.eval()
        assert torch.equal(layer(*given), layer(*given)), share


def test_traps_30_first_token_takes_the_row_of_the_offset() -> None:
    embeddings = Embeddings(TOY)
    embeddings(torch.zeros(3, dtype=torch.int64), torch.arange(3)).square().sum().backward()
    used = embeddings.positions.weight.grad.abs().sum(1).nonzero().flatten()  # type: ignore[union-attr]
    assert used.tolist() == [2, 3, 4]


def test_segments_have_vectors_of_their_own() -> None:
    """Embeddings are summed before the norm; a table of one row ignores segments."""
    torch.manual_seed(0)
    ids, segments = torch.randint(5, 300, (12,)), torch.tensor([0, 0, 1, 1, 1, 0] + [0] * 6)
    places = torch.arange(6).repeat(2)
    two = Embeddings(replace(TOY, segment_types=2))
    shown = two(ids, places, segments)
    first = shown - two(ids, places)
    assert torch.equal(first.abs().sum(-1) > 0, segments > 0)
    placed = two.positions(places + TOY.position_offset)
    whole = two.norm(two.words(ids) + placed + two.segments(segments))
    torch.testing.assert_close(shown, whole)
    one = Embeddings(replace(TOY, segment_types=1))
    assert torch.equal(one(ids, places, segments), one(ids, places))


@pytest.mark.parametrize("shares", [(0.4, 0.2), (0.0, 0.2), (0.4, 0.0)])
def test_a_whole_model_gets_other_probabilities(shares: tuple[float, float]) -> None:
    """As if it had been built with them."""
    hidden, attention = shares
    dropping = replace(TOY, dropout=hidden, attention_dropout=attention)
    changed, built = (MaskedLanguageModel(config, seed=0) for config in (TOY, dropping))
    set_dropout(changed, hidden, attention)
    given, found = (torch.arange(5, 37).repeat(4), pieces_of([32] * 4)), []
    for model in (changed, built):
        torch.manual_seed(3)
        found.append(model.encoder(*given))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    set_dropout(changed, 0.0, 0.0)
    torch.testing.assert_close(changed.encoder(*given), changed.eval().encoder(*given))
