"""The weights of a folder -> those of a model with more layers, positions or tokens.

    layers      a new layer copies an old one: 24 of 12 are the twelve, twice (StackBERT, Gong et
                al. 2019); layers that share their weights need no copies (ALBERT's depths). In a
                model that is wider, too, old layers are spread over the new ones, see `tiling`
    positions   new rows of the table repeat the old ones in turn (Longformer, Beltagy et al. 2020)
    tokens      a new row is the mean of old ones: those of the token's pieces

Positions and tokens do not change what is computed from old inputs; layers do.

A copy attends as far as its source does. ModernBERT's recipe, layer i of 28 from round(22 i / 28),
gives 12 of 28 layers weights of the other kind, trained with a window or without; here a layer
copies the nearest of its own kind, and all 22 are copied. The first layer has no LayerNorm before
its attention, which reads what the embeddings' gives: its copies take that one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.families import Family
from model.hugging_face.tiling import is_wider

POSITIONS = "embeddings.position_embeddings.weight"
"""The end of the position table's names in transformers."""


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    """Sources of the rows of the model's tokens; other rows keep their initialization."""

    ours: Tensor
    """Ids in the model of tokens that the folder has too [n]."""
    theirs: Tensor
    """Their ids in the folder [n]."""
    new: Tensor
    """Ids in the model of tokens that the folder lacks, but has pieces of [m]."""
    pieces: Tensor
    """The pieces: ids in the folder [k]."""
    owners: Tensor
    """For each piece, the index in `new` of its token [k]."""

    def copy(self, rows: Tensor, given: Tensor) -> None:
        """Set rows of the model's table, or entries of its bias, from the folder's `given`."""
        given = given.to(rows.dtype)
        sums = torch.zeros(len(self.new), *given.shape[1:], dtype=given.dtype)
        sums.index_add_(0, self.owners, given[self.pieces])
        counts = torch.bincount(self.owners, minlength=len(self.new)).to(given.dtype)
        rows[self.ours] = given[self.theirs]
        rows[self.new] = sums / counts.view(-1, *[1] * (given.dim() - 1))


def can_deepen(ours: EncoderConfig, theirs: EncoderConfig) -> bool:
    """True if a folder's layers can become those of a model with another number of layers."""
    if ours.sharing == "all":
        return True
    kinds = theirs.global_every if theirs.window else 1  # a copy keeps its source's kind
    return ours.layers > theirs.layers and theirs.layers % (ours.groups * kinds) == 0


def source_layers(ours: EncoderConfig, theirs: EncoderConfig) -> list[int]:
    """The folder's layer that each layer of the model copies.

    Groups copy their own in turn. In a wider model a layer copies the one at the same share of the
    depth, or the nearest one before or after it that attends as far.
    """
    if is_wider(ours, theirs):
        return [_nearest(layer, ours, theirs) for layer in range(ours.layers)]
    size, their_size = ours.layers // ours.groups, theirs.layers // ours.groups
    return [layer // size * their_size + layer % size % their_size for layer in range(ours.layers)]


def _nearest(layer: int, ours: EncoderConfig, theirs: EncoderConfig) -> int:
    """The folder's layer of the same kind that is nearest to a layer's share of the depth."""
    alike = [
        source
        for source in range(theirs.layers)
        if (theirs.reach(source) is None) == (ours.reach(layer) is None)
    ]
    # In whole numbers, so that no rounding decides ties: the lower layer wins.
    return min(alike, key=lambda source: abs(source * ours.layers - layer * theirs.layers))


def deepen(
    state: Mapping[str, Tensor], own: Family, part: str, ours: EncoderConfig, theirs: EncoderConfig
) -> dict[str, Tensor]:
    """A folder's weights with as many layers as the model; part: encoder or generator."""
    if ours.layers == theirs.layers or ours.sharing == "all":
        return dict(state)
    prefix = own.modules[f"{part}.layers.{{}}.attention_norm"][0].partition("{}")[0]
    norm = own.modules[f"{part}.layers.{{}}.feed_forward_norm"][0].partition("{next}")[2]
    by_layer: dict[int, dict[str, Tensor]] = {}
    found = {}
    for name, weight in state.items():
        if match := re.fullmatch(rf"{re.escape(prefix)}(\d+)(\..+)", name):
            by_layer.setdefault(int(match[1]), {})[match[2]] = weight
        else:
            found[name] = weight
    for layer, source in enumerate(source_layers(ours, theirs)):
        # A layer that the folder lacks is reported by `take_over`.
        weights = by_layer.get(source, {})
        # See the module: layer 0 reads the embeddings' norm instead of one of its own.
        if ours.norm == "pre" and layer and not source:
            first = f"{own.modules[f'{part}.embeddings.norm'][0]}."
            kinds = [name.removeprefix(first) for name in state if name.startswith(first)]
            weights = weights | {f"{norm}.{kind}": state[first + kind] for kind in kinds}
        found |= {f"{prefix}{layer}{rest}": weight for rest, weight in weights.items()}
    return found


def lengthen(
    state: Mapping[str, Tensor], ours: EncoderConfig, theirs: EncoderConfig
) -> dict[str, Tensor]:
    """A folder's weights with position tables as long as the model's.

    Rows before the first position, RoBERTa's two, are not repeated. A table whose rows are not
    those of its configuration is left as it is.
    """
    offset, rows = ours.position_offset, theirs.positions + theirs.position_offset
    index = torch.arange(max(rows, ours.positions + offset))
    # A table that is longer than the model's keeps its rows.
    source = torch.where(index < rows, index, offset + (index - offset) % theirs.positions)
    return {
        name: weight[source] if name.endswith(POSITIONS) and len(weight) == rows else weight
        for name, weight in state.items()
    }
