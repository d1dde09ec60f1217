"""RoBERTa's table of weights in both directions; logits and gradients: test_families."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from model.hugging_face.conversion import from_hugging_face, logical_parameters, to_hugging_face
from model.objectives.masked_language import MaskedLanguageModel
from tests.model.conftest import (
    TOY,
    assert_each_number_has_one_name,
    assert_same_weights,
    theirs_of,
    toy_model,
)


@pytest.mark.parametrize("design", [{}, {"norm": "pre", "gated": True, "embedding_width": 24}])
def test_every_number_is_in_one_logical_parameter(design: dict[str, Any]) -> None:
    """Also of a model that transformers has no class for."""
    model = MaskedLanguageModel(replace(TOY, **design), seed=0)
    assert_each_number_has_one_name(model)


def test_names_are_those_of_transformers_and_vectors_neither_decay_nor_adapt() -> None:
    model = toy_model()
    theirs = theirs_of(*to_hugging_face(model))
    pieces = logical_parameters(model)
    shapes = {name: tuple(parameter.shape) for name, parameter in theirs.named_parameters()}
    assert {piece.name: piece.shape for piece in pieces} == shapes
    assert all(piece.decay == piece.adapt == (len(piece.shape) == 2) for piece in pieces)
    flags = {piece.name.rsplit("layer.1.")[-1]: piece.decay for piece in pieces}
    assert flags["attention.self.key.weight"] and not flags["attention.self.key.bias"]
    assert not flags["output.LayerNorm.weight"] and not flags["lm_head.bias"]
    assert flags["roberta.embeddings.word_embeddings.weight"]
    assert Counter(piece.decay for piece in pieces) == {True: 16, False: 26}


def test_published_checkpoints_have_parts_that_are_not_needed() -> None:
    model = toy_model()
    state, config = to_hugging_face(model)
    state |= {
        "roberta.pooler.dense.weight": torch.zeros(48, 48),
        "roberta.embeddings.position_ids": torch.arange(42)[None],
    }
    assert_same_weights(from_hugging_face(state, config), model)


def test_each_dropout_keeps_its_name() -> None:
    unequal = replace(TOY, dropout=0.1, attention_dropout=0.125)
    _, config = to_hugging_face(MaskedLanguageModel(unequal, seed=0))
    assert config["hidden_dropout_prob"] == 0.1
    assert config["attention_probs_dropout_prob"] == 0.125


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lm_head.bias": None}, r"missing \['lm_head.bias'\]"),
        ({"lm_head.gain": torch.zeros(1)}, r"unknown \['lm_head.gain'\]"),
        ({"lm_head.layer_norm.bias": torch.zeros(3)}, r"layer_norm.bias has shape \(3,\)"),
        ({"lm_head.decoder.weight": torch.zeros(300, 48)}, "only tied weights"),
    ],
)
def test_traps_34_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    state, config = to_hugging_face(toy_model())
    changed = {name: value for name, value in (state | change).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        from_hugging_face(changed, config)
