"""The weights of a transformers folder -> an existing model, from which training continues.

Unlike in `conversion`, the model already exists: its encoder must match the folder's or be one that
`growth` makes of it, while heads and token rows that the folder lacks keep their initialization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.config_json import our_config, their_config
from model.hugging_face.conversion import (
    PADDED,
    Model,
    copies_of,
    family,
    logical_parameters,
    view_parameters,
    without_mapping,
)
from model.hugging_face.electra_folders import join_folders
from model.hugging_face.electra_settings import electra_config
from model.hugging_face.families import ELECTRA, Family, model_type_of
from model.hugging_face.growth import EmbeddingRows, can_deepen, deepen, lengthen
from model.hugging_face.head_names import HEADS
from model.hugging_face.sizes import encoder_names
from model.hugging_face.tiling import WIDTHS, why_not_wider, widen
from model.objectives.replaced_tokens import ReplacedTokenModel

Folder = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Weights and configuration."""
FREE = {"dropout", "attention_dropout", "initializer_range", "vocab_size"}
"""Settings that may differ: they concern training, or `EmbeddingRows` handles them."""
GENERATOR_PARTS = ("generator", "head")
"""Parts of a model whose weights are in the folder of ELECTRA's generator."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting of the encoder that differs in the folder."""

    name: str
    """The setting of `EncoderConfig`."""
    theirs: object
    ours: object


def encoders(
    model: Model, theirs: Mapping[str, Any], *, generator: bool = False
) -> tuple[EncoderConfig, EncoderConfig]:
    """The encoder of a model as its folder describes it, and that of a folder's configuration.

    A folder stores shared layers as copies and its configuration does not say so; `take_over`
    compares them. generator: True if it is the configuration of ELECTRA's generator. Raises
    ValueError for a folder of another family, or with settings that we do not support.
    """
    own = family(model)
    if (found_type := model_type_of(theirs)) != own.model_type:
        raise ValueError(f"its family is {found_type}, the run's is {own.model_type}")
    found = _their_encoder(own, theirs)
    if isinstance(model, ReplacedTokenModel):
        return model.generator_config if generator else model.config, found
    # Written to a config.json and read back, which loses what a folder does not say on sharing.
    _, exported = our_config(their_config(model.config, model.pair_head is not None))
    return _as_groups(exported, model.config), _as_groups(found, model.config)


def differences(
    model: Model,
    theirs: Mapping[str, Any],
    *,
    generator: bool = False,
    more_positions: bool = False,
    wider: bool = False,
) -> list[Difference]:
    """Settings that keep a folder's weights from being those of a model, see `encoders`.

    More layers than the folder's are none, see `growth`; nor are more positions if `more_positions`
    says so, or any number of them without a table, nor are more units if `wider` says so, see
    `tiling`.
    """
    ours, found = encoders(model, theirs, generator=generator)
    grown = set(FREE)
    if can_deepen(ours if generator else model.config, found):
        grown.add("layers")
    if wider and not why_not_wider(ours, found):
        grown |= WIDTHS
    has_table = ours.position_kind == "learned"
    if not has_table or (more_positions and ours.positions > found.positions):
        grown.add("positions")
    own_values = asdict(ours)
    return [
        Difference(name, value, own_values[name])
        for name, value in asdict(found).items()
        if name not in grown and value != own_values[name]
    ]


def take_over(
    model: Model, folder: Folder, generator: Folder | None, rows: EmbeddingRows | None
) -> tuple[list[str], list[str]]:
    """Copy a folder's weights into a model; call `differences` first.

    generator: the folder of ELECTRA's generator; None if the model has none or starts a new one.
    rows: None if all rows come from the folder. Returns the parts that keep their initialization,
    and the weights of the folder that are not used. Raises ValueError for an incomplete encoder or
    a shape mismatch.
    """
    own = family(model)
    state = without_mapping(own, model.config, encoder_names(folder[0], own))
    if generator is not None:
        assert isinstance(model, ReplacedTokenModel)
        state = join_folders(
            state, generator[0], tied=model.generator is None, own=model.own_embeddings
        )
    state = _grow(model, state, folder[1], None if generator is None else generator[1])
    aliases = {**own.tied, **_shared(model)}
    _check_tied(state, aliases)
    owners = _owners(model)
    pieces = view_parameters(model)
    lacking = sorted(pieces.keys() - state.keys())
    optional = {*HEADS, *(GENERATOR_PARTS if generator is None else ())}
    if wrong := [name for name in lacking if owners[name].split(".")[0] not in optional]:
        more = " and more" if len(wrong) > 3 else ""
        raise ValueError(f"it lacks {', '.join(wrong[:3])}{more}")
    with torch.no_grad():
        for name, piece in pieces.items():
            if name in state:
                _copy(name, piece, state[name], rows if owners[name] in PADDED else None)
    used = pieces.keys() | aliases.keys()
    left = [name for name in state if name not in used and not name.startswith(own.unused)]
    return _parts(lacking, owners), sorted({name.rpartition(".")[0] for name in left})


def _their_encoder(own: Family, theirs: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a configuration."""
    return electra_config(theirs) if own is ELECTRA else our_config(theirs)[1]


def _as_groups(config: EncoderConfig, ours: EncoderConfig) -> EncoderConfig:
    """The same layers as groups of one, if the model's groups are as many: a folder of ALBERT with
    a group for each layer shares nothing, and one layer is a group, too."""
    if ours.sharing == "all" and config.sharing == "none" and config.layers == ours.groups:
        return replace(config, sharing="all", groups=ours.groups)
    return config


def _grow(
    model: Model,
    state: dict[str, Tensor],
    theirs: Mapping[str, Any],
    generator: Mapping[str, Any] | None,
) -> dict[str, Tensor]:
    """A folder's weights with the layers, widths and positions of the model; theirs, generator: the
    configurations of the folder and of its generator."""
    own, found = family(model), _their_encoder(family(model), theirs)
    # Wider before deeper: each layer is tiled once, then copied.
    state = widen(state, own, model.config, found)
    state = deepen(state, own, "encoder", model.config, found)
    if generator is not None and isinstance(model, ReplacedTokenModel):
        fillers = _their_encoder(own, generator)
        state = deepen(state, own, "generator", model.generator_config, fillers)
    return lengthen(state, model.config, found)


def _shared(model: Model) -> dict[str, str]:
    return {} if isinstance(model, ReplacedTokenModel) else copies_of(model.config, family(model))


def _check_tied(state: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    for alias, name in aliases.items():
        if alias in state and name in state and not torch.equal(state[alias], state[name]):
            raise ValueError(f"{alias} differs from {name}, but the run ties them")


def _owners(model: Model) -> dict[str, str]:
    """transformers' name -> our parameter that stores it."""
    return {part.name: part.parameter_name for part in logical_parameters(model)}


def _copy(name: str, piece: Tensor, given: Tensor, rows: EmbeddingRows | None) -> None:
    # A vocabulary may differ in its rows, never in their width.
    expected = given.shape if rows is None else (piece.shape[0], *given.shape[1:])
    if tuple(expected) != tuple(piece.shape):
        raise ValueError(
            f"{name} has shape {tuple(given.shape)}, the run needs {tuple(piece.shape)}"
        )
    if rows is None:
        piece.copy_(given)
    else:
        rows.copy(piece, given)


def _parts(lacking: Sequence[str], owners: Mapping[str, str]) -> list[str]:
    """The parts of the model that the weights belong to, in words."""
    found: dict[str, list[str]] = {}
    for name in lacking:
        part = owners[name].split(".")[0]
        words = f"the head {HEADS[part]}" if part in HEADS else "the generator's encoder"
        found.setdefault(words, []).append(name.rpartition(".")[0])
    return [f"{words} ({', '.join(sorted(set(names)))})" for words, names in found.items()]
