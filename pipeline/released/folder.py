"""The folder of a transformers model -> what it says about itself: encoder, heads, tokenizer.

Reads JSON and the names, types and shapes of the weights, and compares two tables if the words that
are predicted have one of their own: no pickle, no code of the folder.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from model.config import EncoderConfig
from model.hugging_face.config_json import our_config
from model.hugging_face.electra_settings import electra_config
from model.hugging_face.families import BOUNDARY_PREFIX, ELECTRA, Family, model_type_of
from model.hugging_face.head_names import HEADS
from model.hugging_face.sizes import check_sizes, encoder_names
from pipeline.base.errors import ConfigError, DataError
from pipeline.base.typed_json import read_object
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
BOUNDARY_WEIGHTS = "span_boundary.safetensors"
"""Weights of SpanBERT's head, for which transformers has no class: a file of its own."""
COPYING_WEIGHTS = "copying.safetensors"
"""Weights of the copy probability of all_tokens_mlm, for which transformers has no class either."""
GENERATOR = "generator"
"""Folder of ELECTRA's generator inside the discriminator's."""
PICKLED = "pytorch_model.bin"
"""Pickled weights, as in older folders: unpickling could run any code."""
INDEX = ".index.json"
"""What is added to WEIGHTS or PICKLED in a folder that has its weights in several files."""
_READ_ONE = {
    WEIGHTS: "s.load_file(d + n)",
    PICKLED: 'load(d + n, map_location="cpu", weights_only=True)',
}
"""Python code that reads a file `n` of a folder `d`."""
_CONVERT = (
    "import json, sys; from torch import load; import safetensors.torch as s; "
    'd = sys.argv[1] + "/"; w = {{}}; '
    f'[w.update({{read}}) for n in {{names}}]; open(d + "{WEIGHTS}", "xb").write('
    's.save({{n: w[n].contiguous().clone() for n in w}}, {{"format": "pt"}}))'
)
"""Python code for the user that writes the weights of a folder as WEIGHTS, without running any code
in them. `x` creates the file: a link of that name in the folder could lead anywhere."""
READ_TYPES = ("F32", "F16", "BF16")
"""Types of the weights that are read; in any other a number is not the weight itself."""
_NO_WEIGHTS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Ends of the names of whole numbers that transformers stored beside the weights before 4.31."""
QUANTIZED = "quantization_config"
"""The setting of transformers that says how stored numbers become weights."""
_DEQUANTIZE = (
    "give the model that it was made of, or load it with transformers and save it after "
    "model.dequantize(), or model.float()"
)
TIED = "tie_word_embeddings"
"""The setting of transformers: words are predicted with the table that embeds them."""
MASKED, PAIRS, BOUNDARIES, REPLACED = (
    HEADS[part] for part in ("head", "pair_head", "boundary_head", "detection")
)
TRAINED_HEADS = {
    "mlm": (MASKED,),
    "mlm_pair": (MASKED, PAIRS),
    "mlm_sbo": (MASKED, BOUNDARIES),
    "rtd": (REPLACED,),
    "rtd_masked": (REPLACED,),
}
"""objective.kind -> the heads that it trains, but for those of ELECTRA's generator."""
_MODULES = {  # modules of a family; SpanBERT's boundaries are in none
    MASKED: ("head.dense",),
    PAIRS: ("pair_head.pooler", "pair_head.classifier"),
    REPLACED: ("detection.dense", "detection.output"),
}


class StoredWeight(NamedTuple):
    """What a file's header says of a weight."""

    type: str
    """One of READ_TYPES, unless it is none of the model's."""
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReleasedModel:
    """A folder of transformers."""

    folder: Path
    family: Family
    encoder: EncoderConfig
    heads: frozenset[str]
    """The heads of TRAINED_HEADS that it has weights for."""
    generator: EncoderConfig | None
    """ELECTRA's, if its folder is inside."""
    vocabulary: Vocabulary

    def lacking(self, kind: str) -> list[str]:
        """The heads that objective.kind trains and the folder lacks."""
        return [head for head in TRAINED_HEADS.get(kind, ()) if head not in self.heads]


def read_released(folder: Path) -> ReleasedModel:
    """Read what a folder says about itself.

    Raises ConfigError, in a line, if it is none of a family that we train.
    """
    config = read_config(folder, str(folder))
    family, encoder = _encoder_of(str(folder), config)
    names = stored_weights(folder)
    _check_tied(
        folder, family, names, config,
        f"save it without that head, AutoModel.from_pretrained({str(folder)!r}, {TIED}=True)"
        ".save_pretrained('NEW'), copy the tokenizer to NEW, and add --new heads",
    )  # fmt: skip
    _check_fits(folder, family, encoder, config, names)
    inside, generator = folder / GENERATOR, None
    if family is ELECTRA and (inside / CONFIG).is_file():
        config, inner = read_config(inside, str(inside)), stored_weights(inside)
        generator = _encoder_of(str(inside), config)[1]
        _check_tied(inside, family, inner, config, "remove that folder, and add --new generator")
        _check_fits(inside, family, generator, config, inner)
    heads = frozenset(head for head in (*_MODULES, BOUNDARIES) if _has(head, family, names))
    try:
        vocabulary = read_vocabulary(folder)
    except (DataError, OSError) as error:
        raise ConfigError(f"{folder} has no tokenizer that can be used: {error}") from error
    if vocabulary.size > encoder.vocab_size:  # fewer is usual: tables are padded
        raise ConfigError(
            f"{folder} has a tokenizer of {vocabulary.size:,} ids, more than the "
            f"vocab_size={encoder.vocab_size:,} rows of its table; give the model its own "
            "tokenizer, or the table a row for each id: load the model with its class of "
            f"transformers, call resize_token_embeddings({vocabulary.size}) and save it there"
        )
    return ReleasedModel(folder, family, encoder, heads, generator, vocabulary)


def stored_weights(folder: Path) -> dict[str, StoredWeight]:
    """The weights in a folder by their names, from the headers of its files.

    Raises ConfigError if there are none to read, or of a type other than READ_TYPES.
    """
    path = folder / WEIGHTS
    if not path.is_file():
        raise ConfigError(_why_no_weights(folder))
    found = _weights_in(path)
    for name in (BOUNDARY_WEIGHTS, COPYING_WEIGHTS):
        if (folder / name).is_file():
            found |= _weights_in(folder / name)
    return found


def _weights_in(path: Path) -> dict[str, StoredWeight]:
    try:
        with safe_open(path, framework="numpy") as file:  # headers only: numpy has no bfloat16
            parts = {name: file.get_slice(name) for name in sorted(file.keys())}
            found = {
                name: StoredWeight(part.get_dtype(), tuple(part.get_shape()))
                for name, part in parts.items()
            }
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is damaged: {error}; copy it again") from error
    for name, weight in found.items():
        if weight.type not in READ_TYPES and not name.endswith(_NO_WEIGHTS):
            raise ConfigError(
                f"{path} has {name} of type {weight.type}, and only weights of "
                f"{', '.join(READ_TYPES)} are read: it is quantized, or no weight; {_DEQUANTIZE}"
            )
    return found


def _why_no_weights(folder: Path) -> str:
    """The message about a folder without WEIGHTS, with a command that makes them of what it has.

    The folder may be hostile, and Python imports from the current one (a `torch.py` there): the
    command can be typed anywhere, and -I imports from installed packages only.
    """
    for kind, read in _READ_ONE.items():
        for name in (kind, kind + INDEX):
            if not (folder / name).exists():
                continue
            is_index = name != kind
            what = "several files, and one is read" if is_index else "a pickle, which is not read"
            # of this folder alone, whatever a hostile index names
            files = f'json.load(open(d + "{name}"))["weight_map"].values()'
            listed = f'{{n.split("/")[-1] for n in {files}}}'
            code = _CONVERT.format(read=read, names=listed if is_index else json.dumps([name]))
            command = shlex.join(("python", "-I", "-c", code, str(folder.absolute())))
            verb = "join" if is_index else "convert"
            return (
                f"{folder} has its weights in {name}, {what}; {verb} them outside that folder, "
                f"with torch 2.6 or newer: {command}"
            )
    return (
        f"{folder} has no {WEIGHTS}; give a folder that transformers' save_pretrained or "
        "pipeline.export wrote"
    )


def _check_fits(
    folder: Path,
    family: Family,
    encoder: EncoderConfig,
    config: dict[str, Any],
    weights: Mapping[str, StoredWeight],
) -> None:
    """Raises ConfigError unless weights have the sizes of their configuration."""
    try:
        check_sizes(family, encoder, config, encoder_names(weights, family))
    except ValueError as error:
        raise ConfigError(
            f"{folder} has weights of another model than its {CONFIG}: {error}; copy both again"
        ) from error


def _check_tied(
    folder: Path, family: Family, names: Collection[str], config: dict[str, Any], remedy: str
) -> None:
    """Raises ConfigError, with a remedy, if the head of masked words has weights of its own where
    ours has none, or if the configuration says so."""
    tied = config.get(TIED, True)
    for alias, name in family.tied.items():
        if alias in names and name in names and not _are_equal(folder / WEIGHTS, alias, name):
            raise ConfigError(
                f"{folder} predicts words with weights of their own, {alias} differs from {name} "
                f"({TIED}={str(tied).lower()} in {CONFIG}), and we train one table for both; "
                + remedy
            )
    if not tied:
        raise ConfigError(
            f"{folder} has {TIED}=false in {CONFIG}, but no weights of its own to predict words "
            "with; set it to true there"
        )


def _are_equal(path: Path, *names: str) -> bool:
    """True if weights of a file have the same bytes: numpy has no bfloat16 to compare values."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")  # safetensors: length, JSON header, data
        header = json.loads(file.read(length))
    content = np.memmap(path, np.uint8, "r", 8 + length)
    first, *others = (content[slice(*header[name]["data_offsets"])] for name in names)
    return all(np.array_equal(first, other) for other in others)


def check_config(folder: Path, name: str) -> None:
    """Raises ConfigError, about a model of that name, unless a folder's configuration is one of a
    model that we train."""
    _encoder_of(name, read_config(folder, name))


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """A folder's configuration. Raises ConfigError, about a model of that name, if it has none, or
    if its weights mean nothing without code of its own or the method that quantized them."""
    path = folder / CONFIG
    if not path.is_file():
        raise ConfigError(
            f"{name} has no {CONFIG}; give a folder that transformers' save_pretrained or "
            "pipeline.export wrote"
        )
    try:
        config = read_object(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{name}: {CONFIG} cannot be read: {error}; copy it again") from error
    if "auto_map" in config:
        raise ConfigError(
            f"{name} is a model with code of its own (auto_map in {CONFIG}), which never runs "
            "here; give one of transformers' own classes"
        )
    if config.get(QUANTIZED) is not None:
        raise ConfigError(
            f"{name} is quantized ({QUANTIZED} in {CONFIG}), and its stored numbers are not "
            f"weights; {_DEQUANTIZE}"
        )
    return config


def _encoder_of(name: str, config: dict[str, Any]) -> tuple[Family, EncoderConfig]:
    """The encoder of a configuration; `_check_tied` compares what that says of tied weights."""
    config = config | {TIED: True}
    try:
        if model_type_of(config) == ELECTRA.model_type:
            return ELECTRA, electra_config(config)
        return our_config(config)
    except ValueError as error:
        raise ConfigError(f"{name} has no model that can be continued: {error}") from error


def _has(head: str, family: Family, names: Iterable[str]) -> bool:
    if head == BOUNDARIES:
        return any(name.startswith(BOUNDARY_PREFIX) for name in names)
    parts = [family.modules[module] for module in _MODULES[head] if module in family.modules]
    # Only with all of its layers: the others would start as random weights.
    return bool(parts) and all(
        any(name.startswith(f"{prefix}.") for name in names) for prefix, *_ in parts
    )
