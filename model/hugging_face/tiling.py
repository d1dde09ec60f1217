"""The weights of a folder -> those of a wider model, by tiling (ModernBERT-large from base).

An axis that grows keeps its old numbers in the middle and repeats them to both sides, wrapped
around (AnswerDotAI/ModernBERT src/bert_layers/initialization.py `tile_weight`, after Phi). The
heads of attention are repeated whole, so that none mixes two. Weights that stack matrices, of
query, key and value or of both halves of a gated feed-forward part, are tiled matrix by matrix.
Nothing is scaled: the wider model computes something else, and learns from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.families import Family

Axis = Literal["", "width", "heads", "inner"]
"""Meaning of the rows or the columns of a matrix: hidden units, the units of all heads, those of
the feed-forward part, or something that does not grow."""
WIDTHS = frozenset(("layers", "width", "embedding_width", "heads", "feed_forward"))
"""Settings of an encoder that may be larger than a folder's."""
LAYER = "encoder.layers.{}."
AXES: Mapping[str, tuple[Axis, Axis]] = {
    "encoder.embeddings.words": ("", "width"),
    "encoder.embeddings.positions": ("", "width"),
    "encoder.embeddings.segments": ("", "width"),
    "encoder.embeddings.norm": ("width", ""),
    f"{LAYER}attention.query_key_value": ("heads", "width"),
    f"{LAYER}attention.output": ("width", "heads"),
    f"{LAYER}attention_norm": ("width", ""),
    f"{LAYER}feed_forward.inner": ("inner", "width"),
    f"{LAYER}feed_forward.outer": ("width", "inner"),
    f"{LAYER}feed_forward_norm": ("width", ""),
    "encoder.layers.{last}.feed_forward_norm": ("width", ""),
    "head.dense": ("width", "width"),
    "head.norm": ("width", ""),
    "pair_head.pooler": ("width", "width"),
    "pair_head.classifier": ("", "width"),
}
"""Our module -> the rows of its weight, which are those of its bias, and the columns."""


def is_wider(ours: EncoderConfig, theirs: EncoderConfig) -> bool:
    """True if a model's weights have other sizes than a folder's."""
    return (ours.width, ours.feed_forward) != (theirs.width, theirs.feed_forward)


def why_not_wider(ours: EncoderConfig, theirs: EncoderConfig) -> str:
    """The reason why a folder's weights cannot be tiled for a model, or ""."""
    for name in ("width", "feed_forward", "layers"):
        value, least = getattr(ours, name), getattr(theirs, name)
        if value < least:
            return (
                f"encoder.{name}={value} is below the folder's {least}; add --set encoder.{name}="
                f"{least} or more"
            )
    if not is_wider(ours, theirs):
        return (
            f"encoder.width={ours.width} and encoder.feed_forward={ours.feed_forward} are the "
            "folder's; remove it, or --set one of them to more"
        )
    if any(each.sharing != "none" or each.embedding_width != each.width for each in (ours, theirs)):
        return "only layers without sharing, and embeddings as wide as these, are tiled; remove it"
    size, their_size = ours.width // ours.heads, theirs.width // theirs.heads
    if size != their_size:
        return (
            f"heads of attention are tiled whole: theirs have {their_size} units, encoder.width="
            f"{ours.width} / encoder.heads={ours.heads} is {size}; add --set encoder.heads="
            f"{max(1, ours.width // their_size)}"
        )
    return ""


def widen(
    state: Mapping[str, Tensor], own: Family, ours: EncoderConfig, theirs: EncoderConfig
) -> dict[str, Tensor]:
    """A folder's weights with the widths of the model; see `why_not_wider`."""
    if not is_wider(ours, theirs):
        return dict(state)
    head = theirs.width // theirs.heads
    sources = {
        "width": (_source_units(ours.width, theirs.width, 1), theirs.width),
        "heads": (_source_units(ours.width, theirs.width, head), theirs.width),
        "inner": (_source_units(ours.feed_forward, theirs.feed_forward, 1), theirs.feed_forward),
    }
    modules = {
        name.replace("{next}", "{}"): module
        for module, names in own.modules.items()
        for name in names
    }
    found = {}
    for name, weight in state.items():
        module = own.tied.get(name, name).rpartition(".")[0]  # an alias grows like its owner
        pattern = re.sub(r"\.\d+\.", ".{}.", module, count=1)  # the layer's number
        axes = AXES.get(modules.get(pattern, ""), ("", ""))
        for dimension, axis in enumerate(axes[: weight.dim()]):
            if axis:
                weight = _tile(weight, dimension, *sources[axis])
        found[name] = weight
    return found


def _source_units(new: int, old: int, size: int) -> Tensor:
    """The old unit that each new one copies; size: of the units that stay together."""
    offset = (new // size - old // size) // 2
    groups = (torch.arange(new // size) - offset) % (old // size)
    return (groups[:, None] * size + torch.arange(size)).flatten()


def _tile(weight: Tensor, dimension: int, source: Tensor, old: int) -> Tensor:
    """A weight with one dimension tiled, which may stack several matrices of `old` units."""
    stacked = range(0, weight.shape[dimension], old)  # where each matrix starts
    return weight.index_select(dimension, torch.cat([source + start for start in stacked]))
