"""The weights of a folder -> those of a model with more layers, positions or tokens.

    layers      a new layer copies an old one: 24 of 12 are the twelve, twice (StackBERT, Gong et
                al. 2019); layers that share their weights need no copies (ALBERT's depths)
    positions   new rows of the table repeat the old ones in turn (Longformer, Beltagy et al. 2020)
    tokens      a new row is the mean of old ones: those of the token's pieces

Positions and tokens do not change what is computed from old inputs; layers do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.families import Family

POSITIONS = "embeddings.position_embeddings.weight"
"""The end of the position table's names in transformers."""


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    """Where the rows of the model's tokens come from; the others keep their initialization."""

    ours: Tensor
    """Ids in the model of tokens that the folder has too [n]."""
    theirs: Tensor
    """Their ids in the folder [n]."""
    new: Tensor
    """Ids in the model of tokens that the folder lacks, but has pieces of [m]."""
    pieces: Tensor
    """The pieces: ids in the folder [k]."""
    owners: Tensor
    """The index in `new` that each piece belongs to [k]."""

    def copy(self, rows: Tensor, given: Tensor) -> None:
        """Set rows of the model's table, or entries of its bias, from the folder's `given`."""
        given = given.to(rows.dtype)
        sums = torch.zeros(len(self.new), *given.shape[1:], dtype=given.dtype)
        sums.index_add_(0, self.owners, given[self.pieces])
        counts = torch.bincount(self.owners, minlength=len(self.new)).to(given.dtype)
        rows[self.ours] = given[self.theirs]
        rows[self.new] = sums / counts.view(-1, *[1] * (given.dim() - 1))


def can_deepen(ours: EncoderConfig, theirs: EncoderConfig) -> bool:
    """Whether a folder's layers can be those of a model with another number of them."""
    if ours.sharing == "all":
        return True
    return ours.layers > theirs.layers and theirs.layers % ours.groups == 0


def source_layers(ours: EncoderConfig, theirs: EncoderConfig) -> list[int]:
    """The folder's layer that each layer of the model copies; groups copy their own in turn."""
    size, their_size = ours.layers // ours.groups, theirs.layers // ours.groups
    return [layer // size * their_size + layer % size % their_size for layer in range(ours.layers)]


def deepened(
    state: Mapping[str, Tensor], own: Family, part: str, ours: EncoderConfig, theirs: EncoderConfig
) -> dict[str, Tensor]:
    """A folder's weights with as many layers as the model; part: encoder or generator."""
    if ours.layers == theirs.layers or ours.sharing == "all":
        return dict(state)
    prefix = own.modules[f"{part}.layers.{{}}.attention_norm"][0].partition("{}")[0]
    by_layer: dict[int, dict[str, Tensor]] = {}
    found = {}
    for name, weight in state.items():
        if match := re.fullmatch(rf"{re.escape(prefix)}(\d+)(\..+)", name):
            by_layer.setdefault(int(match[1]), {})[match[2]] = weight
        else:
            found[name] = weight
    for layer, source in enumerate(source_layers(ours, theirs)):
        weights = by_layer.get(source, {}).items()
        found |= {f"{prefix}{layer}{rest}": weight for rest, weight in weights}
    return found


def lengthened(
    state: Mapping[str, Tensor], ours: EncoderConfig, theirs: EncoderConfig
) -> dict[str, Tensor]:
    """A folder's weights with position tables as long as the model's.

    Rows before the first position, RoBERTa's two, are not repeated. A table whose rows are not
    those of its configuration is left as it is.
    """
    offset, rows = ours.position_offset, theirs.positions + theirs.position_offset
    index = torch.arange(max(rows, ours.positions + offset))
    source = torch.where(index < rows, index, offset + (index - offset) % theirs.positions)
    return {
        name: weight[source] if name.endswith(POSITIONS) and len(weight) == rows else weight
        for name, weight in state.items()
    }
