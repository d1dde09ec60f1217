"""Wider models from a folder's weights: the middle, wrapped around, head by head."""

import re
from dataclasses import replace
from typing import Any

import torch

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


def test_an_axis_keeps_its_middle_and_is_wrapped_around() -> None:
    """The heads of 2 units stay whole; the numbers are those of `tile_weight` in ModernBERT."""
    ours = replace(BASE, width=10, embedding_width=10, heads=5, feed_forward=7)
    theirs = replace(BASE, width=4, embedding_width=4, heads=2, feed_forward=4)
    state = {
        "model.final_norm.weight": torch.arange(4),
        "model.layers.3.mlp.Wo.weight": torch.arange(16).view(4, 4),
        "model.layers.0.attn.Wo.weight": torch.arange(16).view(4, 4),
        "model.layers.12.attn.Wqkv.weight": torch.arange(48).view(12, 4),
        "model.layers.1.mlp.Wi.weight": torch.arange(32).view(8, 4),
        "model.embeddings.tok_embeddings.weight": torch.arange(4).expand(3, 4),
        "head.dense.weight": torch.arange(16).view(4, 4),
        "decoder.bias": torch.arange(9),
    }
    found = widen(state, MODERNBERT, ours, theirs)
    middle = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    heads, inner = [2, 3, 0, 1, 2, 3, 0, 1, 2, 3], [3, 0, 1, 2, 3, 0, 1]

    def tiled(rows: list[int], columns: list[int]) -> list[list[int]]:
        return [[4 * row + column for column in columns] for row in rows]

    assert found["model.final_norm.weight"].tolist() == middle
    assert found["model.layers.3.mlp.Wo.weight"].tolist() == tiled(middle, inner)
    assert found["model.layers.0.attn.Wo.weight"].tolist() == tiled(middle, heads)
    stacked = [4 * part + unit for part in range(3) for unit in heads]
    assert found["model.layers.12.attn.Wqkv.weight"].tolist() == tiled(stacked, middle)
    halves = [4 * part + unit for part in range(2) for unit in inner]
    assert found["model.layers.1.mlp.Wi.weight"].tolist() == tiled(halves, middle)
    assert found["model.embeddings.tok_embeddings.weight"].tolist() == [middle] * 3
    assert found["head.dense.weight"].tolist() == tiled(middle, middle)
    assert found["decoder.bias"].tolist() == list(range(9))
    pooler = "bert.pooler.dense.weight"
    found = widen({pooler: torch.arange(16).view(4, 4)}, BERT, ours, theirs)
    assert found[pooler].tolist() == tiled(middle, middle)
    for own in (BERT, MODERNBERT):
        assert own.modules.keys() - AXES.keys() == {"head"}, "a bias per word does not grow"


def test_a_wider_modernbert() -> None:
    """Each layer from its source; the alias too."""
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
    wide, origins = widen(state, MODERNBERT, LARGE, BASE), source_layers(LARGE, BASE)
    for name, weight in to_hugging_face(model)[0].items():
        origin = re.sub(r"layers\.(\d+)", lambda found: f"layers.{origins[int(found[1])]}", name)
        # the first layer has no norm before its attention: a copy of it takes the embeddings'
        origin = origin.replace("layers.0.attn_norm", "embeddings.norm")
        assert torch.equal(weight, wide[origin]), name
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
    found, tiled = to_hugging_face(model)[0], widen(folder[0], BERT, wide, small)
    for name, weight in tiled.items():
        assert torch.equal(found[name], weight), name


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
