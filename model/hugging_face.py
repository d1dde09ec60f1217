"""Our parameters <-> transformers' names: one table, for both directions and for optimizers.

We store some of transformers' matrices as one (query, key, value) and pad the vocabulary. Both
differences are spelled out once, as `LogicalParameter`s: contiguous pieces of our parameters under
transformers' names and shapes. Weights move by them, and so do optimizers and checkpoints, whose
result must not depend on how we store a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from model.config import EncoderConfig
from model.objectives import MaskedLanguageModel

ROBERTA = {
    "encoder.embeddings.words": ("roberta.embeddings.word_embeddings",),
    "encoder.embeddings.positions": ("roberta.embeddings.position_embeddings",),
    "encoder.embeddings.segments": ("roberta.embeddings.token_type_embeddings",),
    "encoder.embeddings.norm": ("roberta.embeddings.LayerNorm",),
    "encoder.layers.{}.attention.query_key_value": (
        "roberta.encoder.layer.{}.attention.self.query",
        "roberta.encoder.layer.{}.attention.self.key",
        "roberta.encoder.layer.{}.attention.self.value",
    ),
    "encoder.layers.{}.attention.output": ("roberta.encoder.layer.{}.attention.output.dense",),
    "encoder.layers.{}.attention_norm": ("roberta.encoder.layer.{}.attention.output.LayerNorm",),
    "encoder.layers.{}.feed_forward.inner": ("roberta.encoder.layer.{}.intermediate.dense",),
    "encoder.layers.{}.feed_forward.outer": ("roberta.encoder.layer.{}.output.dense",),
    "encoder.layers.{}.feed_forward_norm": ("roberta.encoder.layer.{}.output.LayerNorm",),
    "head": ("lm_head",),
    "head.dense": ("lm_head.dense",),
    "head.norm": ("lm_head.layer_norm",),
}
"""Our module -> theirs; several when ours stacks their rows. `weight` and `bias` are alike."""

PADDED = ("encoder.embeddings.words.weight", "head.bias")
"""Our parameters whose first dimension is the padded vocabulary."""

TIED = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
"""Second names that transformers has for a parameter."""

UNUSED = ("roberta.pooler.", "roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids")
"""Beginnings of names in published checkpoints that masked language modelling does not use."""

CONFIG = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "segment_types": "type_vocab_size",
    "initializer_range": "initializer_range",
}
"""Our setting -> theirs, where it is the same number; the rest is in `_config` and its inverse."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogicalParameter:
    """A parameter as transformers has it: a contiguous piece of one of ours."""

    name: str
    """Its name in transformers."""
    parameter_name: str
    """The name in `named_parameters` of our parameter that stores it."""
    start: int
    """Where it starts in our parameter, flattened."""
    shape: tuple[int, ...]
    """Its shape in transformers; it fills prod(shape) numbers from `start`."""
    decay: bool
    """Whether weight decay is for it: matrices and embeddings, not biases and LayerNorm."""
    adapt: bool
    """Whether LAMB scales its update by its norm: the same ones."""


def logical_parameters(model: MaskedLanguageModel) -> list[LogicalParameter]:
    """Every parameter once, in the model's order; rows that pad the vocabulary are in none.

    To be asked before an engine partitions the parameters: it reads their shapes.
    """
    found = []
    for parameter_name, parameter in model.named_parameters():
        names = _their_names(parameter_name)
        padded = parameter_name in PADDED
        rows = model.config.vocab_size if padded else parameter.shape[0] // len(names)
        shape = (rows, *parameter.shape[1:])
        for index, name in enumerate(names):
            matrix = len(shape) > 1
            found.append(
                LogicalParameter(
                    name=name,
                    parameter_name=parameter_name,
                    start=index * prod(shape),
                    shape=shape,
                    decay=matrix,
                    adapt=matrix,
                )
            )
    return found


def to_hugging_face(model: MaskedLanguageModel) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights (copies) and configuration of transformers' RobertaForMaskedLM.

    ValueError when that class cannot be configured to compute what this model computes.
    """
    config = _config(model.config)
    pieces = _pieces(model)
    state = {name: piece.detach().clone() for name, piece in pieces.items()}
    return state | {alias: state[name] for alias, name in TIED.items()}, config


def from_hugging_face(
    state: Mapping[str, Tensor], config: Mapping[str, Any]
) -> MaskedLanguageModel:
    """A model with the weights and configuration of transformers' RobertaForMaskedLM.

    ValueError names weights that are missing, unknown or of another shape, and settings that this
    model does not have.
    """
    model = MaskedLanguageModel(_our_config(config), seed=0)
    pieces = _pieces(model)
    known = pieces.keys() | TIED.keys()
    unknown = sorted(name for name in state if name not in known and not name.startswith(UNUSED))
    missing = sorted(pieces.keys() - state.keys())
    if unknown or missing:
        raise ValueError(f"weights do not fit: missing {missing}, unknown {unknown}")
    for alias, name in TIED.items():
        if alias in state and not torch.equal(state[alias], state[name]):
            raise ValueError(f"{alias} is not {name}; only tied weights can be loaded")
    with torch.no_grad():
        for name, piece in pieces.items():
            if state[name].shape != piece.shape:
                ours, theirs = tuple(piece.shape), tuple(state[name].shape)
                raise ValueError(f"{name} has shape {theirs}, the configuration means {ours}")
            piece.copy_(state[name])
    return model


def _pieces(model: MaskedLanguageModel) -> dict[str, Tensor]:
    """Views of the model's parameters under transformers' names."""
    parameters = dict(model.named_parameters())
    return {
        logical.name: parameters[logical.parameter_name]
        .flatten()[logical.start : logical.start + prod(logical.shape)]
        .view(logical.shape)
        for logical in logical_parameters(model)
    }


def _their_names(parameter_name: str) -> list[str]:
    module, _, kind = parameter_name.rpartition(".")
    parts = module.split(".")
    layer = next((part for part in parts if part.isdigit()), "")
    pattern = ".".join("{}" if part == layer else part for part in parts)
    return [f"{theirs.format(layer)}.{kind}" for theirs in ROBERTA[pattern]]


def _config(config: EncoderConfig) -> dict[str, Any]:
    if config.activation != "gelu":
        raise ValueError(f"activation={config.activation}: RoBERTa's head in transformers has gelu")
    if config.position_offset < 1:
        raise ValueError("position_offset=0: RoBERTa in transformers starts after the pad's row")
    return {
        "architectures": ["RobertaForMaskedLM"],
        "model_type": "roberta",
        **{theirs: getattr(config, ours) for ours, theirs in CONFIG.items()},
        "attention_probs_dropout_prob": config.dropout,
        "hidden_act": "gelu",
        "max_position_embeddings": config.positions + config.position_offset,
        "pad_token_id": config.position_offset - 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
    }


def _our_config(config: Mapping[str, Any]) -> EncoderConfig:
    needed = {*CONFIG.values(), "attention_probs_dropout_prob", "max_position_embeddings"}
    lacking = sorted({*needed, "hidden_act", "model_type", "pad_token_id"} - config.keys())
    if lacking:
        raise ValueError(f"the configuration lacks {', '.join(lacking)}")
    fixed = {
        "model_type": "roberta",
        "hidden_act": "gelu",
        "attention_probs_dropout_prob": config["hidden_dropout_prob"],
        "tie_word_embeddings": True,
        "is_decoder": False,
    }
    for name, value in fixed.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}={config[name]} cannot be loaded; this model has {value}")
    offset = config["pad_token_id"] + 1
    return EncoderConfig(
        **{ours: config[theirs] for ours, theirs in CONFIG.items()},
        activation="gelu",
        positions=config["max_position_embeddings"] - offset,
        position_offset=offset,
    )
