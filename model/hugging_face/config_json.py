"""The settings of a model of masked words <-> the config.json of its folder. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.config import EncoderConfig
from model.hugging_face.families import (
    MODERNBERT,
    Family,
    family_named,
    family_of,
    model_type_of,
)
from model.hugging_face.modern_settings import SHARES as MODERN_SHARES
from model.hugging_face.modern_settings import modern_config, their_modern_config

COMMON = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "segment_types": "type_vocab_size",
    "initializer_range": "initializer_range",
}
"""Our setting -> theirs, for settings with the same value in every family; the rest is below."""
SHARES = ("dropout", "attention_dropout", "layer_norm_eps", "initializer_range")
"""Settings that may be 0 and need not be whole numbers."""

POOLING = "classifier_pooling"
"""ModernBERT's setting of what its task heads read; pretraining has no use for it."""
CLASSIFIER_DROPOUT = 0.1
"""Dropout of ALBERT's classifiers in all its published folders; pretraining has none there."""


def their_config(config: EncoderConfig, pairs: bool) -> dict[str, Any]:
    """transformers' configuration of a model; raises ValueError if it has no class for it.

    Ids of special tokens are RoBERTa's or BERT's; callers with a tokenizer set their own.
    """
    family = family_of(config, pairs)
    if family is MODERNBERT:
        return their_modern_config(config)
    theirs = {
        "architectures": [family.pair_architecture if pairs else family.architecture],
        "model_type": family.model_type,
        **{name: getattr(config, ours) for ours, name in COMMON.items()},
        "hidden_act": family.activations[config.activation],
        "max_position_embeddings": config.positions + config.position_offset,
        "pad_token_id": config.position_offset - 1 if family.after_pad else 0,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        **family.settings,
    }
    if family.factorised:
        theirs |= {
            "embedding_size": config.embedding_width,
            "num_hidden_groups": config.groups if config.sharing == "all" else config.layers,
            "classifier_dropout_prob": CLASSIFIER_DROPOUT,
        }
    return theirs


def with_dropout(theirs: Mapping[str, Any], dropout: float) -> dict[str, Any]:
    """A configuration with another dropout of the encoder."""
    names = MODERN_SHARES if theirs["model_type"] == MODERNBERT.model_type else COMMON
    return {**theirs, names["dropout"]: dropout, names["attention_dropout"]: dropout}


def with_pooling(theirs: Mapping[str, Any], pooling: str) -> dict[str, Any]:
    """A configuration that says what stands for a row in a task's head: `cls` or `mean`, where its
    family has the choice."""
    is_modern = theirs["model_type"] == MODERNBERT.model_type
    return {**theirs, **({POOLING: pooling} if is_modern else {})}


MOST_LAYERS = 10_000
"""Layers of a configuration: shared weights can be used any number of times."""


def check_numbers(theirs: Mapping[str, Any]) -> None:
    """Raise ValueError unless sizes are whole numbers above 0, and shares numbers."""
    sizes = ("embedding_size", "num_hidden_groups", "max_position_embeddings")
    for ours, name in [*COMMON.items(), *((name, name) for name in sizes)]:
        value = theirs.get(name, 1)
        # JSON's true is an int in Python.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        share = ours in SHARES
        if not number or not (0 <= value < 1e9 if share else isinstance(value, int) and value > 0):
            raise ValueError(
                f"{name}={value!r} cannot be loaded; it must be "
                f"{'a number in [0, 1e9)' if share else 'a whole number above 0'}"
            )
    if theirs.get("num_hidden_layers", 1) > MOST_LAYERS:
        raise ValueError(
            f"num_hidden_layers={theirs['num_hidden_layers']} cannot be loaded; it must be at most "
            f"{MOST_LAYERS:,}"
        )
    if theirs.get("hidden_size", 1) % theirs.get("num_attention_heads", 1):
        raise ValueError(
            f"num_attention_heads={theirs['num_attention_heads']} cannot be loaded; it must divide "
            f"hidden_size={theirs['hidden_size']}"
        )
    pad = theirs.get("pad_token_id", 0)
    if not isinstance(pad, int) or pad < 0:
        raise ValueError(f"pad_token_id={pad!r} cannot be loaded; it must be a whole number")
    if not isinstance(theirs.get("hidden_act", ""), str):
        raise ValueError(f"hidden_act={theirs['hidden_act']!r} cannot be loaded; it must be text")


def our_config(theirs: Mapping[str, Any]) -> tuple[Family, EncoderConfig]:
    """The inverse of `their_config`; raises ValueError for settings missing or not supported."""
    family = family_named(model_type_of(theirs))
    if family is MODERNBERT:
        return family, modern_config(theirs)
    # Folders from 2019, such as BioBERT's and SpanBERT's, omit these and rely on class defaults.
    theirs = {"layer_norm_eps": 1e-12, "pad_token_id": int(family.after_pad), **theirs}
    needed = {*COMMON.values(), "max_position_embeddings", "hidden_act", "pad_token_id"}
    needed |= {"embedding_size", "num_hidden_groups"} if family.factorised else set()
    if lacking := sorted(needed - theirs.keys()):
        raise ValueError(f"the configuration lacks {', '.join(lacking)}")
    check_numbers(theirs)
    fixed = {
        "tie_word_embeddings": True,
        "is_decoder": False,
        **family.settings,
    }
    for name, value in fixed.items():
        if theirs.get(name, value) != value:
            raise ValueError(f"{name}={theirs[name]} cannot be loaded; it must be {value}")
    activations = {name: ours for ours, name in family.activations.items()}
    if theirs["hidden_act"] not in activations:
        raise ValueError(
            f"hidden_act={theirs['hidden_act']} cannot be loaded; it must be "
            f"{' or '.join(activations)}"
        )
    offset = theirs["pad_token_id"] + 1 if family.after_pad else 0
    if theirs["max_position_embeddings"] <= offset:
        raise ValueError(
            f"pad_token_id={theirs['pad_token_id']} cannot be loaded: the position table has "
            f"max_position_embeddings={theirs['max_position_embeddings']} rows, and positions "
            "start after the pad id"
        )
    layers = theirs["num_hidden_layers"]
    groups = theirs["num_hidden_groups"] if family.factorised else layers
    if layers % groups:
        raise ValueError(
            f"num_hidden_groups={groups} cannot be loaded: {layers} layers are not a multiple of it"
        )
    size = theirs["embedding_size" if family.factorised else "hidden_size"]
    # ALBERT with neither shares in groups of one layer: without sharing it would be a BERT.
    alone = groups == layers and not (family.factorised and size == theirs["hidden_size"])
    return family, EncoderConfig(
        **{ours: theirs[name] for ours, name in COMMON.items()},
        embedding_width=size,
        sharing="none" if alone else "all",
        groups=1 if alone else groups,
        activation=activations[theirs["hidden_act"]],  # type: ignore[arg-type]
        positions=theirs["max_position_embeddings"] - offset,
        position_offset=offset,
    )
