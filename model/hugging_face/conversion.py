"""Our parameters <-> transformers' names: one table for both directions and for optimizers.

We store some of transformers' matrices as one (query, key, value) and pad the vocabulary. Each
`LogicalParameter` describes a contiguous piece of one of our parameters under transformers' name
and shape. Weight conversion, optimizers and checkpoints all work on these pieces, so their results
do not depend on how we store a matrix. The names are in `families`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from model.config import EncoderConfig
from model.encoder import initialize, shared_from
from model.hugging_face.config_json import our_config, their_config
from model.hugging_face.families import (
    ALBERT,
    BOUNDARY_HEAD,
    BOUNDARY_PREFIX,
    ELECTRA,
    MAPPING,
    NAMES_WITHOUT_CLASS,
    Family,
    Names,
    family_of,
)
from model.hugging_face.loss_record import loss_entry, recorded_part
from model.hugging_face.sizes import check_sizes, named, todays_name
from model.objectives.masked_language import LossPart, MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel

Model = MaskedLanguageModel | ReplacedTokenModel
"""Any model that can be converted."""

PADDED = (
    "encoder.embeddings.words.weight", "generator.embeddings.words.weight", "head.bias",
    "boundary_head.bias", "restoring.words.bias",
)  # fmt: skip
"""Our parameters whose first dimension is the padded vocabulary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogicalParameter:
    """A parameter of transformers: a contiguous piece of one of ours."""

    name: str
    """Its name in transformers."""
    parameter_name: str
    """Name of our parameter that stores it, as in `named_parameters`."""
    start: int
    """Offset of its first number in our flattened parameter."""
    shape: tuple[int, ...]
    """Its shape in transformers; it takes prod(shape) numbers from `start`."""
    decay: bool
    """True if weight decay applies: to matrices and embeddings, not to biases and LayerNorm."""
    adapt: bool
    """True if LAMB's trust ratio scales its update: that of the same parameters."""


def family(model: Model) -> Family:
    """The family of a model; raises ValueError if transformers has no class for it."""
    if isinstance(model, ReplacedTokenModel):
        return ELECTRA
    return family_of(model.config, model.pair_head is not None)


def logical_parameters(model: Model) -> list[LogicalParameter]:
    """Every parameter once, in the model's order; padding rows of the vocabulary are skipped.

    Call this before an engine partitions the parameters: it reads their shapes. Names are
    transformers', or `NAMES_WITHOUT_CLASS` if it has no class for the model.
    """
    try:
        modules = family(model).modules
    except ValueError:
        modules = NAMES_WITHOUT_CLASS
    return named_parameters(modules, model, model.config)


def named_parameters(
    modules: Names, module: nn.Module, config: EncoderConfig
) -> list[LogicalParameter]:
    """The logical parameters of any module; modules: see `Family`; config: of its encoder."""
    found = []
    for parameter_name, parameter in module.named_parameters():
        names = _their_names(modules, parameter_name, config.layers)
        padded = parameter_name in PADDED
        # Ours may stack several of theirs, of equal shapes.
        rows = config.vocab_size if padded else parameter.shape[0] // len(names)
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
    """Copies of the weights, and the configuration, of the model's class in transformers.

    Raises ValueError if no class can be configured to compute what this model computes.
    """
    config = their_config(model.config, model.pair_head is not None)
    state = {name: piece.detach().clone() for name, piece in view_parameters(model).items()}
    aliases = {**family(model).tied, **copies_of(model.config, family(model))}
    state |= identity_mapping(model.config, family(model))
    state |= {alias: state[name].clone() for alias, name in aliases.items()}
    return state, config | loss_entry(model.parts)


def untrained_pooler(model: MaskedLanguageModel) -> dict[str, Tensor]:
    """The pooler of the family's encoder class, initialized as the model was, if pretraining has
    none: transformers would draw another at every load, and adapters would not fit it.

    The same at every call.
    """
    own = family(model)
    if not own.pooler or model.pair_head is not None:
        return {}
    pooler = nn.Linear(model.config.width, model.config.width)
    initialize(pooler, model.config, seed=0, initializer=model.initializer)
    return {f"{own.pooler}.{kind}": weight.detach() for kind, weight in pooler.named_parameters()}


def from_hugging_face(
    state: Mapping[str, Tensor], config: Mapping[str, Any]
) -> MaskedLanguageModel:
    """A model with the weights and configuration of a class of transformers.

    It has a pair head or a span boundary head if the weights include one. Raises ValueError for
    weights that are missing, unknown or of another shape, and for settings that we do not support.
    """
    own, own_config = our_config(config)
    state = {todays_name(name): weight for name, weight in state.items()}
    check_sizes(own, own_config, config, state)
    pair_names = [names[0] for module, names in own.modules.items() if "pair_head" in module]
    # The classifier, not the pooler: folders without this head may have a pooler.
    pairs = any(name.startswith(f"{pair_names[-1]}.") for name in state) if pair_names else False
    unused = own.unused if pairs else (*own.unused, *(f"{name}." for name in pair_names))
    state = without_mapping(own, own_config, state)
    boundaries = any(name.startswith(BOUNDARY_PREFIX) for name in state)
    pair_part = recorded_part(config, LossPart(name="pair", weight=1.0, per="pairs"))
    boundary_part = recorded_part(config, LossPart(name="sbo", weight=1.0, per="boundaries"))
    model = MaskedLanguageModel(
        own_config,
        seed=0,  # of no effect: `fill` sets all weights
        pair_weight=pair_part.weight if pairs else 0.0,
        boundary_weight=boundary_part.weight if boundaries else 0.0,
    )
    fill(model, state, unused, own.tied)
    return model


def fill(
    model: Model, state: Mapping[str, Tensor], unused: tuple[str, ...], tied: Mapping[str, str]
) -> None:
    """Copy the weights in `state` into a model; raises ValueError if they do not fit it.

    unused: prefixes of names to ignore; tied: alias -> name of the tied weight.
    """
    pieces = view_parameters(model)
    known = pieces.keys() | tied.keys()
    unknown = sorted(name for name in state if name not in known and not name.startswith(unused))
    missing = sorted(pieces.keys() - state.keys())
    if unknown or missing:
        raise ValueError(f"weights do not fit: missing {named(missing)}, unknown {named(unknown)}")
    for alias, name in tied.items():
        if alias in state and not torch.equal(state[alias], state[name]):
            raise ValueError(f"{alias} differs from {name}; only tied weights can be loaded")
    copy_pieces(pieces, state)


@torch.no_grad()
def copy_pieces(pieces: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy weights into views of the same names; raises ValueError for another shape."""
    for name, piece in pieces.items():
        if state[name].shape != piece.shape:
            ours, theirs = tuple(piece.shape), tuple(state[name].shape)
            raise ValueError(f"{name} has shape {theirs}, the configuration implies {ours}")
        piece.copy_(state[name])


def view_parameters(model: Model) -> dict[str, Tensor]:
    """Views of the model's parameters under transformers' names."""
    return views(model, logical_parameters(model))


def views(module: nn.Module, logical: Sequence[LogicalParameter]) -> dict[str, Tensor]:
    """Views of a module's parameters under transformers' names."""
    parameters = dict(module.named_parameters())
    return {
        part.name: parameters[part.parameter_name]
        .flatten()[part.start : part.start + prod(part.shape)]  # a view, as it is contiguous
        .view(part.shape)
        for part in logical
    }


def identity_mapping(config: EncoderConfig, own: Family) -> dict[str, Tensor]:
    """ALBERT's mapping from embeddings to hidden vectors of the same width, see
    `families.MAPPING`; empty if the model needs none."""
    if own is not ALBERT or config.embedding_width != config.width:
        return {}
    return {
        f"{MAPPING}.weight": torch.eye(config.width),
        f"{MAPPING}.bias": torch.zeros(config.width),
    }


def without_mapping(
    own: Family, config: EncoderConfig, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """A folder's weights without an identity mapping; raises ValueError if it is another one."""
    found = dict(state)
    if own is not ALBERT or config.embedding_width != config.width:
        return found
    weight, bias = found.pop(f"{MAPPING}.weight", None), found.pop(f"{MAPPING}.bias", None)
    changed = weight is not None and not torch.equal(weight.float().cpu(), torch.eye(config.width))
    if changed or (bias is not None and bool(bias.any())):
        raise ValueError(
            f"{MAPPING} is not the identity: with embedding_size={config.embedding_width}, the "
            "hidden size, only models without a mapping can be loaded"
        )
    return found


def copies_of(config: EncoderConfig, own: Family) -> dict[str, str]:
    """Weights that transformers stores per layer and we store once: its names -> the owner's."""
    if config.sharing not in ("attention", "feed_forward"):
        return {}
    found: dict[str, str] = {}
    for index in range(config.layers):
        owner = shared_from(config, index)
        for module in own.modules:
            part = module.removeprefix("encoder.layers.{}.")
            # The owner is in `modules` under its own number; the others need an entry.
            if part != module and part.startswith(config.sharing) and owner != index:
                for kind in ("weight", "bias"):
                    names = own.modules[module]
                    found |= {
                        f"{name.format(index)}.{kind}": f"{name.format(owner)}.{kind}"
                        for name in names
                    }
    return found


def _their_names(modules: Names, parameter_name: str, layers: int) -> list[str]:
    module, _, kind = parameter_name.rpartition(".")
    parts = module.split(".")
    layer = next((int(part) for part in parts if part.isdigit()), 0)
    pattern = ".".join("{}" if part.isdigit() else part for part in parts)
    last = pattern.replace("{}", "{last}")
    if layer == layers - 1 and last in modules:  # a norm there has a name of its own
        pattern = last
    table = BOUNDARY_HEAD if pattern in BOUNDARY_HEAD else modules
    return [f"{theirs.format(layer, next=layer + 1)}.{kind}" for theirs in table[pattern]]
