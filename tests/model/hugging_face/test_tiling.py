"""Wider models from a folder's weights: the middle, wrapped around, head by head."""

import re
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from model.hugging_face.conversion import to_hugging_face
from model.hugging_face.families import BERT, MODERNBERT
from model.hugging_face.growth import source_layers
from model.hugging_face.tiling import AXES, why_not_wider, widen
from model.hugging_face.warm_start import differences, take_over
from model.objectives.masked_language import MaskedLanguageModel
from tests.model.conftest import TOY, flat
from tests.model.test_rotary import MODERN

BASE = replace(MODERN, layers=4, width=24, embedding_width=24, heads=3, feed_forward=20)
LARGE = replace(BASE, layers=7, width=40, embedding_width=40, heads=5, feed_forward=33)


def around(given: Tensor, new: int) -> Tensor:
    """The reference in words: the old numbers in the middle, then each side from its end."""
    old, left = len(given), (new - len(given)) // 2
    return torch.stack([given[(index - left) % old] for index in range(new)])


def test_an_axis_keeps_its_middle_and_is_wrapped_around() -> None:
    """The heads of 2 units stay whole; the numbers are those of `tile_weight` in ModernBERT."""
    ours = replace(BASE, width=10, embedding_width=10, heads=5, feed_forward=7)
    theirs = replace(BASE, width=4, embedding_width=4, heads=2, feed_forward=4)
    state = {
        "model.final_norm.weight": torch.arange(4),
        "model.layers.3.mlp.Wo.weight": torch.arange(16).view(4, 4),
        "model.layers.0.attn.Wo.weight": torch.arange(4).expand(4, 4),
        "model.layers.12.attn.Wqkv.weight": torch.arange(12)[:, None].expand(12, 4),
        "model.layers.1.mlp.Wi.weight": torch.arange(8)[:, None].expand(8, 4),
        "decoder.bias": torch.arange(9),
    }
    found = widen(state, MODERNBERT, ours, theirs)
    middle = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert found["model.final_norm.weight"].tolist() == middle
    assert found["model.layers.3.mlp.Wo.weight"][:, 0].tolist() == [4 * row + 3 for row in middle]
    assert found["model.layers.3.mlp.Wo.weight"][3].tolist() == [3, 0, 1, 2, 3, 0, 1]
    heads = [2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert found["model.layers.0.attn.Wo.weight"][0].tolist() == heads
    stacked = [4 * part + unit for part in range(3) for unit in heads]
    assert found["model.layers.12.attn.Wqkv.weight"][:, 0].tolist() == stacked
    halves = [4 * part + unit for part in range(2) for unit in [3, 0, 1, 2, 3, 0, 1]]
    assert found["model.layers.1.mlp.Wi.weight"][:, 0].tolist() == halves
    assert found["decoder.bias"].tolist() == list(range(9))
    for own in (BERT, MODERNBERT):
        assert own.modules.keys() - AXES.keys() == {"head"}, "a bias per word does not grow"


def test_a_wider_modernbert() -> None:
    """Query, key, value and both halves apart; each layer from its source; the alias too."""
    source, model = MaskedLanguageModel(BASE, seed=1), MaskedLanguageModel(LARGE, seed=2)
    with torch.no_grad():
        for parameter in source.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
        source.head.bias[BASE.vocab_size :] = 0
    state, config = to_hugging_face(source)
    assert "decoder.weight" in state
    assert differences(model, config) and not differences(model, config, wider=True)
    assert take_over(model, (state, config), None, None) == ([], [])
    table = source.encoder.embeddings.words.weight
    assert torch.equal(model.encoder.embeddings.words.weight, around(table.T, 40).T)
    assert torch.equal(model.head.bias, source.head.bias)
    dense = around(around(source.head.dense.weight, 40).T, 40).T
    assert torch.equal(model.head.dense.weight, dense)
    origins = source_layers(LARGE, BASE)
    for layer, origin in zip(model.encoder.layers, origins, strict=True):
        old = source.encoder.layers[origin]
        projection = old.attention.query_key_value.weight.view(3, 3, 8, 24)
        wide = around(around(projection.transpose(0, 1), 5).transpose(0, 1).flatten(0, 2).T, 40).T
        assert torch.equal(layer.attention.query_key_value.weight, wide)
        halves = old.feed_forward.inner.weight.view(2, 20, 24)
        wide = torch.cat([around(around(half, 33).T, 40).T for half in halves])
        assert torch.equal(layer.feed_forward.inner.weight, wide)
        wide = around(around(old.feed_forward.outer.weight, 40).T, 33).T
        assert torch.equal(layer.feed_forward.outer.weight, wide)
        assert torch.equal(layer.attention_norm.weight, around(old.attention_norm.weight, 40))
    norms = [source.encoder.embeddings.norm]  # before a layer's attention, and the last
    norms += [layer.feed_forward_norm for layer in source.encoder.layers]
    for layer, origin in zip(model.encoder.layers, [*origins[1:], BASE.layers], strict=True):
        assert torch.equal(layer.feed_forward_norm.weight, around(norms[origin].weight, 40))
    ids = torch.randint(5, 300, (2, 9), generator=torch.Generator().manual_seed(0))
    assert model.eval().logits(*flat(ids)).isfinite().all()


def test_bert_s_layers_too() -> None:
    """Its query, key and value are matrices of their own, with biases."""
    small = replace(TOY, position_offset=0, segment_types=2, layers=2)
    wide = replace(small, width=72, embedding_width=72, heads=6, feed_forward=100, layers=3)
    source = MaskedLanguageModel(small, seed=1, pair_weight=1.0)
    model = MaskedLanguageModel(wide, seed=2, pair_weight=1.0)
    folder = to_hugging_face(source)
    assert not differences(model, folder[1], wider=True)
    assert take_over(model, folder, None, None) == ([], [])
    assert source_layers(wide, small) == [0, 1, 1]
    pooler = around(around(source.pair_head.pooler.weight, 72).T, 72).T  # type: ignore[union-attr]
    assert torch.equal(model.pair_head.pooler.weight, pooler)  # type: ignore[union-attr]


def test_what_is_not_tiled() -> None:
    same = {"width": 24, "embedding_width": 24, "heads": 3, "feed_forward": 20}
    changes: dict[str, Any]
    for changes, said in (
        ({"width": 16}, r"width=16 .* 24; add --set encoder\.width=24"),
        ({"layers": 3}, "layers=3 .* 4"),
        (same, "width=24 and encoder.feed_forward=20 are the folder's"),
        ({"heads": 4}, "8 units, encoder.width=40"),
        ({"embedding_width": 8}, "only layers without sharing"),
    ):
        assert re.search(said, why_not_wider(replace(LARGE, **changes), BASE)), changes
