"""Parity with transformers' RobertaForMaskedLM in both directions, through the production table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy

from model.attention import AttentionKernel
from model.hugging_face.conversion import from_hugging_face, logical_parameters, to_hugging_face
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from tests.model.conftest import (
    LENGTHS,
    MASK_ID,
    TOY,
    assert_each_number_is_in_one_logical_parameter,
    assert_same_weights,
    in_rows,
    theirs_of,
    toy_batch,
    toy_model,
)

Pair = tuple[MaskedLanguageModel, Any]


def exported() -> Pair:
    """Our weights in transformers' model."""
    model = toy_model()
    return model, theirs_of(*to_hugging_face(model))


def imported() -> Pair:
    """transformers' weights in our model."""
    _, theirs = exported()
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return from_hugging_face(theirs.state_dict(), theirs.config.to_dict()), theirs


def their_logits(theirs: Any, batch: dict[str, Any]) -> Tensor:
    """[T, V], computed in padded rows."""
    ids, mask = in_rows(batch["input_ids_T"], batch["pieces"])
    logits: Tensor = theirs(ids, attention_mask=mask.long()).logits[mask]
    return logits


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("attention", ["row_attention", "padded_attention"])
@pytest.mark.parametrize("pair", [exported, imported])
def test_logits_and_gradients_are_equal(
    pair: Callable[[], Pair], attention: AttentionKernel, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, theirs = pair()
    batch = toy_batch(LENGTHS[rows])
    logits = their_logits(theirs, batch)
    assert logits.std() > 0.5
    with torch.no_grad():
        ours = model.logits(batch["input_ids_T"], batch["pieces"])
    torch.testing.assert_close(ours, logits, rtol=0, atol=1e-5)
    used = batch["positions_K"][:5]
    loss = cross_entropy(logits[used], batch["labels_K"][:5], reduction="sum")
    loss.backward()
    monkeypatch.setattr("model.attention.attention_kernel", lambda *_: attention)
    sums = model(Inputs(**batch, mask_id=MASK_ID))
    sums["mlm_loss"].backward()
    torch.testing.assert_close(sums["mlm_loss"], loss, rtol=1e-5, atol=0)
    own, others = dict(model.named_parameters()), dict(theirs.named_parameters())
    for piece in logical_parameters(model):
        gradient = own[piece.parameter_name].grad.flatten()  # type: ignore[union-attr]
        gradient = gradient[piece.start : piece.start + prod(piece.shape)].view(piece.shape)
        expected = others[piece.name].grad
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4, msg=piece.name)


def test_a_saved_folder_loads(tmp_path: Path) -> None:
    model, theirs = exported()
    theirs.save_pretrained(tmp_path)
    loaded, report = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(report.values()), report
    batch = toy_batch(LENGTHS["short rows"])
    ours = model.eval().logits(batch["input_ids_T"], batch["pieces"])
    torch.testing.assert_close(their_logits(loaded.eval(), batch), ours, rtol=0, atol=1e-5)
    assert loaded.get_input_embeddings().weight.shape[0] == TOY.vocab_size


def test_a_round_trip_is_bit_equal() -> None:
    """Also with parts that published checkpoints have and we do not need."""
    model = MaskedLanguageModel(replace(TOY, dropout=0.1, attention_dropout=0.125), seed=1)
    state, config = to_hugging_face(model)
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.1, 0.125)
    state["roberta.pooler.dense.weight"] = torch.zeros(48, 48)
    state["roberta.embeddings.position_ids"] = torch.arange(42)[None]
    back = from_hugging_face(state, config)
    assert back.config == model.config
    assert_same_weights(model, back)


@pytest.mark.parametrize("design", [{}, {"norm": "pre", "gated": True, "embedding_width": 24}])
def test_every_number_is_in_one_logical_parameter(design: dict[str, Any]) -> None:
    """Also of a model that transformers has no class for."""
    model = MaskedLanguageModel(replace(TOY, **design), seed=0)
    assert_each_number_is_in_one_logical_parameter(model)


def test_names_are_those_of_transformers_and_vectors_neither_decay_nor_adapt() -> None:
    model, theirs = exported()
    pieces = logical_parameters(model)
    shapes = {name: tuple(parameter.shape) for name, parameter in theirs.named_parameters()}
    assert {piece.name: piece.shape for piece in pieces} == shapes
    assert all(piece.decay == piece.adapt == (len(piece.shape) == 2) for piece in pieces)
    flags = {piece.name.rsplit("layer.1.")[-1]: piece.decay for piece in pieces}
    assert flags["attention.self.key.weight"] and not flags["attention.self.key.bias"]
    assert not flags["output.LayerNorm.weight"] and not flags["lm_head.bias"]
    assert flags["roberta.embeddings.word_embeddings.weight"]
    assert Counter(piece.decay for piece in pieces) == {True: 16, False: 26}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lm_head.bias": None}, r"missing \['lm_head.bias'\]"),
        ({"lm_head.gain": torch.zeros(1)}, r"unknown \['lm_head.gain'\]"),
        ({"lm_head.layer_norm.bias": torch.zeros(3)}, r"layer_norm.bias has shape \(3,\)"),
        ({"lm_head.decoder.weight": torch.zeros(300, 48)}, "only tied weights"),
        ({"model_type": "bart"}, "model_type=bart"),
        ({"hidden_act": "relu"}, "hidden_act=relu"),
        ({"attention_probs_dropout_prob": "0.3"}, "attention_probs_dropout_prob='0.3'"),
        ({"attention_probs_dropout_prob": None}, "lacks attention_probs_dropout_prob"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"hidden_size": None}, "lacks hidden_size"),
    ],
)
def test_traps_34_weights_and_settings_that_do_not_fit_are_named(
    change: dict[str, Any], message: str
) -> None:
    state, config = to_hugging_face(toy_model())
    given = state if next(iter(change)).startswith("lm_head") else config
    given |= change
    for name in [name for name, value in change.items() if value is None]:
        del given[name]
    with pytest.raises(ValueError, match=message):
        from_hugging_face(state, config)


@pytest.mark.parametrize("change", [{"activation": "gelu_tanh"}, {"sharing": "all"}])
def test_settings_that_roberta_lacks_are_not_exported(change: dict[str, Any]) -> None:
    model = MaskedLanguageModel(replace(TOY, **change), seed=0)
    with pytest.raises(ValueError, match=next(iter(change))):
        to_hugging_face(model)
