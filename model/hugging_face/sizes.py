"""A configuration's sizes against the shapes of its folder's weights, before a model is built.

A model takes the memory that its configuration asks for, which may be more than any machine has;
the weights of a folder are no larger than their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from model.config import EncoderConfig
from model.hugging_face.families import BOUNDARY_PREFIX, Family

NAMED = 3
"""Weights that a message names."""
_Weight = TypeVar("_Weight")


class Shaped(Protocol):
    """A weight, or what a file's header says of one."""

    @property
    def shape(self) -> Sequence[int]:
        """Its dimensions."""


def check_sizes(
    own: Family, config: EncoderConfig, theirs: Mapping[str, Any], state: Mapping[str, Shaped]
) -> None:
    """Raise ValueError unless the encoder's tables and layers have the configured sizes.

    config: that of `theirs`, a configuration of transformers; state: see `encoder_names`.
    """
    embedding = "embedding_size" if "embedding_size" in theirs else "hidden_size"
    for ours, settings in {
        "embeddings.words": ("vocab_size", embedding),
        "embeddings.positions": ("max_position_embeddings", embedding),
        "embeddings.segments": ("type_vocab_size", embedding),
        "layers.{}.feed_forward.inner": ("intermediate_size", "hidden_size"),
    }.items():
        if f"encoder.{ours}" not in own.modules:
            continue
        name = own.modules[f"encoder.{ours}"][0].format(0) + ".weight"
        if name not in state:
            raise ValueError(f"weights do not fit: missing {name}")
        shape = tuple(state[name].shape)
        for setting, size in zip(settings, (*shape, 0, 0), strict=False):  # 0: no such dimension
            # A gate doubles the rows.
            wanted = theirs[setting] * (1 + (setting == "intermediate_size" and config.gated))
            if wanted != size or len(shape) != 2:
                raise ValueError(
                    f"{name} has shape {shape}, the configuration has {setting}={theirs[setting]}"
                )
    # With shared weights a folder has one layer per group.
    layers = config.layers if config.sharing == "none" else config.groups
    pattern = own.modules["encoder.layers.{}.feed_forward.inner"][0] + ".weight"
    before, after = pattern.split("{}")
    stored = sum(name.startswith(before) and name.endswith(after) for name in state)
    if layers != stored:
        setting = "num_hidden_layers" if config.sharing == "none" else "num_hidden_groups"
        raise ValueError(
            f"{pattern.format('N')} occurs {stored} times, the configuration has {setting}={layers}"
        )


def encoder_names(state: Mapping[str, _Weight], own: Family) -> dict[str, _Weight]:
    """A folder's weights, or what stands for them, under today's names with the encoder's prefix.

    Folders that were saved without heads, such as `BertModel`'s, have none.
    """
    state = {todays_name(name): weight for name, weight in state.items()}
    if any(name.startswith(own.prefix) for name in state):
        return state
    return {
        name if name.startswith(BOUNDARY_PREFIX) else own.prefix + name: weight
        for name, weight in state.items()
    }


def todays_name(name: str) -> str:
    """A weight's current name: BERT's first folders use TensorFlow's names for LayerNorm."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def named(names: Iterable[str]) -> str:
    """The first names of many, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    return f"{found[:NAMED]}{more}"
