"""The layers: sums are normed for what reads them, dropout is for training."""

from dataclasses import replace
from typing import Literal

import pytest
import torch

from model.layers import Embeddings, Layer, Reach, Stream, set_dropout
from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import lay_out, pieces_of
from tests.model.conftest import TOY


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_sum_is_normed_for_what_reads_it(norm: Literal["post", "pre"]) -> None:
    """In its place, or beside it."""
    torch.manual_seed(0)
    layer, reach = Layer(replace(TOY, norm=norm)).eval(), Reach(pieces_of([9]))
    residual, normed = torch.randn(2, 9, 48)
    between = residual + layer.attention(normed, reach)
    read = layer.attention_norm(between)
    wanted = (read if norm == "post" else between) + layer.feed_forward(read)
    found = layer(Stream(residual, normed), reach)
    torch.testing.assert_close(found.normed_TD, layer.feed_forward_norm(wanted))
    torch.testing.assert_close(found.residual_TD, found.normed_TD if norm == "post" else wanted)


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    pieces = pieces_of([40, 40])
    hidden, reach = torch.randn(80, 48), Reach(pieces, lay_out(pieces.cu_seqlens, TOY.heads))
    given = Stream(hidden, hidden), reach
    for share in ("dropout", "attention_dropout"):
        layer = Layer(replace(TOY, **{share: 0.3}))
        assert not torch.equal(layer(*given).normed_TD, layer(*given).normed_TD), share
        layer.eval()
        assert torch.equal(layer(*given).normed_TD, layer(*given).normed_TD), share


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
