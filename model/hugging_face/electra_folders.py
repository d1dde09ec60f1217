"""ELECTRA's two networks <-> two folders of transformers: ElectraForPreTraining and
ElectraForMaskedLM.

Names are those of `families.ELECTRA`, which prefixes `generator.` to the weights that only the
generator has; the shared embeddings belong to the discriminator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from model.hugging_face.conversion import fill, view_parameters
from model.hugging_face.electra_settings import electra_config, their_electra_config
from model.hugging_face.families import COPYING_PREFIX, ELECTRA, RESTORING_PREFIX
from model.hugging_face.loss_record import ENTRY, loss_entry, recorded_part
from model.hugging_face.sizes import check_sizes
from model.objectives.masked_language import LossPart
from model.objectives.replaced_tokens import PARTS, Kind, ReplacedTokenModel

Folder = tuple[dict[str, Tensor], dict[str, Any]]
"""Weights and configuration."""

WEIGHTS = {"rtd": 50.0, "words": 1.0}
"""Weight of the encoder's part of the loss if the folder has no entry for it, see `loss_record`:
that of Clark et al. 2020, who name none for restored words."""
OWNED = "generator."
SHARED = "electra.embeddings."
ENCODER = "electra."


def to_folders(model: ReplacedTokenModel) -> tuple[Folder, Folder]:
    """Copies of the weights and configurations of the discriminator and the generator.

    Raises ValueError if transformers' classes cannot compute what this model computes.
    """
    state = {name: piece.detach().clone() for name, piece in view_parameters(model).items()}
    detector = {name: weight for name, weight in state.items() if not name.startswith(OWNED)}
    common = _common(tied=model.generator is None, own=model.own_embeddings)
    # Shared weights are in both folders, so that each loads without the other.
    filler = {name: weight for name, weight in detector.items() if name.startswith(common)}
    filler |= {
        name.removeprefix(OWNED): weight for name, weight in state.items() if name.startswith(OWNED)
    }
    filler |= {alias: filler[name] for alias, name in ELECTRA.tied.items()}
    if model.restoring:
        detector |= {alias: detector[name] for alias, name in ELECTRA.tied.items()}
    own = "ElectraForMaskedLM" if model.restoring else "ElectraForPreTraining"
    return (
        (detector, their_electra_config(model.config, own) | loss_entry(model.parts)),
        (filler, their_electra_config(model.generator_config, "ElectraForMaskedLM")),
    )


def from_folders(
    detector: tuple[Mapping[str, Tensor], Mapping[str, Any]],
    filler: tuple[Mapping[str, Tensor], Mapping[str, Any]],
) -> ReplacedTokenModel:
    """A model with the weights and configurations of a discriminator and a generator.

    If both encoders are equal, the model has one encoder that does both. If their embeddings
    differ, each has its own. The encoder restores words if its folder has a head for them, and else
    judges tokens: all, unless the folder's loss is a mean over predictions. Raises ValueError that
    names what does not fit.
    """
    config, generator = electra_config(detector[1]), electra_config(filler[1])
    check_sizes(ELECTRA, config, detector[1], detector[0])
    check_sizes(ELECTRA, generator, filler[1], filler[0])
    # Two networks may have equal sizes, so weights decide.
    tied = config == generator and all(
        torch.equal(weight, detector[0][name])
        for name, weight in filler[0].items()
        if name.startswith(ENCODER)
    )
    own = not tied and not all(
        name in detector[0] and torch.equal(weight, detector[0][name])
        for name, weight in filler[0].items()
        if name.startswith(SHARED)
    )
    state = join_folders(detector[0], filler[0], tied=tied, own=own)
    kind, weight = _objective(*detector)
    model = ReplacedTokenModel(
        config,
        None if tied else generator,
        weight=weight,
        seed=0,
        kind=kind,
        own_embeddings=own,
    )
    fill(model, state, ELECTRA.unused, ELECTRA.tied)
    return model


def _objective(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> tuple[Kind, float]:
    """The objective of a folder's encoder, and the weight of its part of the loss."""
    restores = any(name.startswith(RESTORING_PREFIX) for name in state)
    copies = any(name.startswith(COPYING_PREFIX) for name in state)
    kind: Kind = "rtd"
    if restores:
        kind = "all_tokens_mlm" if copies else "replace_mlm"
    name, per = PARTS[kind]
    part = recorded_part(config, LossPart(name=name, weight=WEIGHTS[name], per=per))
    # Both kinds have the same weights; only the record tells what the mean is over.
    if kind == "rtd" and part.per == "predictions":
        kind = "rtd_masked"
    if PARTS[kind] != (name, part.per):
        raise ValueError(f"{ENTRY} has {name} per {part.per}, which no objective has")
    return kind, part.weight


def join_folders(
    detector: Mapping[str, Tensor], filler: Mapping[str, Tensor], *, tied: bool, own: bool
) -> dict[str, Tensor]:
    """The weights of both under `families.ELECTRA`'s names.

    tied: one encoder does both; own: the generator has its own embeddings. Raises ValueError if
    weights that must be shared differ.
    """
    shared = [name for name in filler if name.startswith(_common(tied=tied, own=own))]
    for name in shared:
        if name not in detector or not torch.equal(filler[name], detector[name]):
            raise ValueError(
                f"{name} differs between generator and discriminator, which share it here; for "
                "embeddings of their own add --set objective.generator.embeddings=own"
            )
    for alias, name in ELECTRA.tied.items():
        if alias in filler and not torch.equal(filler[alias], filler[name]):
            raise ValueError(f"{alias} differs from {name}; only tied weights can be loaded")
    owned = filler.keys() - ELECTRA.tied.keys() - set(shared)  # aliases were compared
    return {**detector, **{OWNED + name: filler[name] for name in owned}}


def _common(*, tied: bool, own: bool) -> tuple[str, ...]:
    """Prefixes of the weights that belong to both encoders."""
    if tied:
        return (ENCODER,)
    return () if own else (SHARED,)
