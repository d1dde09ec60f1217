"""The folder of a transformers model -> what it says about itself: encoder, heads, tokenizer.

Reads JSON and the names of the weights: no weight, no pickle, no code of the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from model.config import EncoderConfig
from model.hugging_face.electra_settings import electra_config
from model.hugging_face.families import (
    BOUNDARY_PREFIX,
    ELECTRA,
    Family,
    model_type_of,
    our_config,
)
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.errors import ConfigError, DataError
from pipeline.typed_json import read_object

CONFIG, WEIGHTS = "config.json", "model.safetensors"
BOUNDARY_WEIGHTS = "span_boundary.safetensors"
"""Weights of SpanBERT's head, for which transformers has no class: a file of its own."""
GENERATOR = "generator"
"""Folder of ELECTRA's generator inside the discriminator's."""
PICKLED = "pytorch_model.bin"
"""Pickled weights, as in older folders: unpickling could run any code."""
UNPICKLE = (
    'python -c "from torch import load; import safetensors.torch as s; '
    f"w = load('{PICKLED}', map_location='cpu', weights_only=True); "
    f"s.save_file({{n: w[n].contiguous().clone() for n in w}}, '{WEIGHTS}', {{'format': 'pt'}})\""
)
"""A command for the user that converts PICKLED to WEIGHTS without running any code in it."""
MASKED, PAIRS, BOUNDARIES = "of masked words", "of pairs of segments", "of span boundaries"
REPLACED = "of replaced tokens"
TRAINED_HEADS = {
    "mlm": (MASKED,),
    "mlm_pair": (MASKED, PAIRS),
    "mlm_sbo": (MASKED, BOUNDARIES),
    "rtd": (REPLACED,),
    "rtd_masked": (REPLACED,),
}
"""objective.kind -> the heads that it trains, but for those of ELECTRA's generator."""
_MODULES = {  # of a family; that of boundaries is not in it
    MASKED: ("head.dense",),
    PAIRS: ("pair_head.pooler", "pair_head.classifier"),
    REPLACED: ("detection.dense", "detection.output"),
}


@dataclass(frozen=True, slots=True)
class ReleasedModel:
    """A folder of transformers."""

    folder: Path
    family: Family
    encoder: EncoderConfig
    heads: frozenset[str]
    """Of TRAINED_HEADS, those that it has weights for."""
    generator: EncoderConfig | None
    """ELECTRA's, if its folder is inside."""
    vocabulary: Vocabulary

    def lacking(self, kind: str) -> list[str]:
        """The heads that objective.kind trains and the folder lacks."""
        return [head for head in TRAINED_HEADS.get(kind, ()) if head not in self.heads]


def read_released(folder: Path) -> ReleasedModel:
    """What a folder says about itself.

    Raises ConfigError, in a line, if it is none of a family that we train.
    """
    config = _read_config(folder)
    try:
        family, encoder = _encoder_of(config)
        inside = folder / GENERATOR
        generator = None
        if family is ELECTRA and (inside / CONFIG).is_file():
            generator = _encoder_of(_read_config(inside))[1]
    except ValueError as error:
        raise ConfigError(f"{folder} holds no model that can be continued: {error}") from error
    names = weight_names(folder)
    heads = frozenset(head for head in (*_MODULES, BOUNDARIES) if _has(head, family, names))
    try:
        vocabulary = read_vocabulary(folder)
    except (DataError, OSError) as error:
        raise ConfigError(f"{folder} holds no tokenizer that can be used: {error}") from error
    return ReleasedModel(folder, family, encoder, heads, generator, vocabulary)


def weight_names(folder: Path) -> list[str]:
    """The names of the weights in a folder. Raises ConfigError if there are none to read."""
    path = folder / WEIGHTS
    if not path.is_file():
        if (folder / PICKLED).exists():
            raise ConfigError(
                f"{folder} has its weights in {PICKLED}, a pickle, which is not read; convert them "
                f"by running in that folder: {UNPICKLE}"
            )
        raise ConfigError(
            f"{folder} holds no {WEIGHTS}; give a folder that transformers' save_pretrained or "
            "pipeline.export wrote"
        )
    try:
        names = list(_names_in(path))
        if (folder / BOUNDARY_WEIGHTS).is_file():
            names += _names_in(folder / BOUNDARY_WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is damaged: {error}; copy it again") from error
    return names


def _names_in(path: Path) -> Iterator[str]:
    with safe_open(path, framework="numpy") as file:
        yield from file.keys()


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ConfigError(
            f"{folder} holds no {CONFIG}; give a folder that transformers' save_pretrained or "
            "pipeline.export wrote"
        )
    try:
        config = read_object(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; copy it again") from error
    if "auto_map" in config:
        raise ConfigError(
            f"{folder} is a model with code of its own (auto_map in {CONFIG}), which never runs "
            "here; give one of transformers' own classes"
        )
    return config


def _encoder_of(config: dict[str, Any]) -> tuple[Family, EncoderConfig]:
    if model_type_of(config) == ELECTRA.model_type:
        return ELECTRA, electra_config(config)
    return our_config(config)


def _has(head: str, family: Family, names: list[str]) -> bool:
    if head == BOUNDARIES:
        return any(name.startswith(BOUNDARY_PREFIX) for name in names)
    parts = [family.modules[module] for module in _MODULES[head] if module in family.modules]
    return bool(parts) and all(
        any(name.startswith(f"{prefix}.") for name in names) for prefix, *_ in parts
    )
