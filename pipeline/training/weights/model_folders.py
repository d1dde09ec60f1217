"""A run's checkpoint, or a Hugging Face folder <-> the model, on one device and without DeepSpeed.

A written folder is loaded again with transformers and its logits are compared with ours, so every
exported folder has been checked.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn.utils.rnn import pad_sequence

from model.hugging_face.config_json import with_pooling
from model.hugging_face.conversion import (
    Model,
    family,
    from_hugging_face,
    logical_parameters,
    to_hugging_face,
    untrained_pooler,
)
from model.hugging_face.electra_folders import from_folders, to_folders
from model.hugging_face.families import (
    BOUNDARY_PREFIX,
    COPYING_PREFIX,
    ELECTRA,
    MODERNBERT,
    RESTORING_PREFIX,
    Family,
)
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.pieces import Pieces
from pipeline.base.errors import CheckpointError, ConfigError
from pipeline.base.files import write_whole
from pipeline.base.null_device import KEY, refuse_null
from pipeline.base.progress import note_loading
from pipeline.cluster.process_group import compute_device
from pipeline.config.encoder_settings import EncoderSettings
from pipeline.config.run import Run
from pipeline.config.settings import from_dict
from pipeline.data.tokenizers.folders import copy_for_transformers, read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.loading.compatibility import phases_begun
from pipeline.loading.loader import Loader
from pipeline.planning.build import build_model
from pipeline.released.folder import (
    BOUNDARY_WEIGHTS,
    CONFIG,
    COPYING_WEIGHTS,
    GENERATOR,
    WEIGHTS,
    read_config,
    stored_weights,
)
from pipeline.training.checkpoints.read import Checkpoint, choose_from, open_checkpoint
from pipeline.training.checkpoints.weight_file import is_finite, require_finite, write_weights

BESIDE = {BOUNDARY_PREFIX: BOUNDARY_WEIGHTS, COPYING_PREFIX: COPYING_WEIGHTS}
"""Prefix of names that transformers has no class for -> their file."""
LARGEST_DIFFERENCE = 1e-4
"""Largest allowed difference between our logits and transformers': rounding stays far below."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """The model of a run's checkpoint."""

    model: Model
    """The model, in eval mode, on the CPU."""
    run: Run
    directory: Path
    """RUN."""
    step: int
    tokenizer_sha256: str


def load_run(path: Path) -> tuple[SavedRun, list[str]]:
    """The model of RUN, RUN/STEP or a checkpoint's directory, and messages for the user."""
    directory, messages = choose_from(path)
    checkpoint = open_checkpoint(directory)
    refuse_null(checkpoint.state.device, directory)
    run = from_dict(Run, checkpoint.state.run)
    # Any seed: `_fill` overwrites every weight, or raises.
    model = build_model(replace(run, encoder=_encoder_at(run, checkpoint.state.step)), seed=0)
    _fill(model, checkpoint)
    saved = SavedRun(
        model.eval(),
        run,
        directory.parent.parent,
        checkpoint.state.step,
        checkpoint.state.fingerprints["tokenizer"],
    )
    return saved, messages


def _encoder_at(run: Run, step: int) -> EncoderSettings:
    """The encoder that a step was trained with: phases may differ in rotary positions."""
    return phases_begun(run, step)[-1].encoder


def load_folder(folder: Path) -> Model:
    """The model of a Hugging Face folder, in eval mode. Raises CheckpointError if it does not fit.

    For ELECTRA's discriminator the generator is read from `GENERATOR` inside the folder.
    """
    try:
        state, config = read_folder(folder)
        if config.get("model_type") == ELECTRA.model_type:
            _check_generator(folder, state)
            return from_folders((state, config), read_folder(folder / GENERATOR)).eval()
        return from_hugging_face(state, config).eval()
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder} has no model that can be loaded: {error}") from error


def is_generator(folder: Path, state: Mapping[str, torch.Tensor]) -> bool:
    """True if a folder holds only ELECTRA's generator.

    An encoder that restores words has the same head, and its generator's folder inside its own.
    """
    head = any(name.startswith(RESTORING_PREFIX) for name in state)
    return head and not (folder / GENERATOR / CONFIG).exists()


def _check_generator(folder: Path, state: Mapping[str, torch.Tensor]) -> None:
    """Raises CheckpointError if one of ELECTRA's two networks is missing."""
    if is_generator(folder, state):
        raise CheckpointError(
            f"{folder} is ELECTRA's generator alone; put it at {GENERATOR}/ in the folder of its "
            "discriminator, and give that folder"
        )
    if not (folder / GENERATOR / CONFIG).exists():
        raise CheckpointError(
            f"{folder} is ELECTRA's discriminator alone, which detects the words of its generator; "
            f"put the generator's folder at {folder / GENERATOR}"
        )


def write_folder(
    model: Model, tokenizer: Path, folder: Path, length: int | None = None, pooling: str = "cls"
) -> None:
    """Write a folder that transformers' `AutoTokenizer` and the class of the model's family load.

    tokenizer: the folder of a dataset's tokenizer; length: see `copy_for_transformers`; pooling:
    see `with_pooling`. GENERATOR and the files of BESIDE hold what a run needs in addition to
    continue training from the folder.
    """
    try:
        if isinstance(model, ReplacedTokenModel):
            detector, filler = to_folders(model)
            _write(*detector, family(model), tokenizer, folder, length)
            _write(*filler, family(model), tokenizer, folder / GENERATOR, length)
        else:
            weights, config = to_hugging_face(model)
            config = with_pooling(config, pooling)
            _write(
                weights | untrained_pooler(model), config, family(model), tokenizer, folder, length
            )
    except ValueError as error:
        raise CheckpointError(f"transformers has no class for this encoder: {error}") from error


def _write(
    weights: dict[str, torch.Tensor],
    config: dict[str, Any],
    own: Family,
    tokenizer: Path,
    folder: Path,
    length: int | None,
) -> None:
    vocabulary = read_vocabulary(tokenizer)
    if own.after_pad and vocabulary.pad != config["pad_token_id"]:
        raise CheckpointError(
            "transformers has no class for this encoder: its positions start after the pad id "
            f"{config['pad_token_id']}, but the tokenizer in {tokenizer} has {vocabulary.pad}"
        )
    config |= special_ids(vocabulary, own)
    folder.mkdir(parents=True, exist_ok=True)
    copy_for_transformers(tokenizer, folder, vocabulary, length)
    # Tied matrices are stored once, and transformers ties them when it loads. A tied bias has both
    # its names: 4.45 to 4.50 zero the one that is missing, and RoBERTa and ALBERT then take it.
    named = {n: weight for n, weight in weights.items() if n not in own.tied or weight.dim() == 1}
    for prefix, file in BESIDE.items():
        beside = {name: named.pop(name) for name in list(named) if name.startswith(prefix)}
        if beside:
            write_weights(beside, folder / file)
    write_weights(named, folder / WEIGHTS)
    # Last: without config.json no reader takes a half-written folder for a model.
    write_whole(folder / CONFIG, json.dumps(config | {"dtype": "float32"}, indent=1).encode())


def special_ids(vocabulary: Vocabulary, own: Family) -> dict[str, int]:
    """Entries of config.json for the ids of a tokenizer's special tokens.

    ModernBERT's class has four, whose defaults transformers complains of if a vocabulary is
    smaller than the published one.
    """
    roles = {"pad": vocabulary.pad, "bos": vocabulary.bos, "eos": vocabulary.eos}
    if own is MODERNBERT:
        roles |= {"cls": vocabulary.bos, "sep": vocabulary.eos}
    return {f"{role}_token_id": index for role, index in roles.items()}


def read_folder(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights, including extra files, and configuration.

    Raises CheckpointError for what `read_config` and `stored_weights` refuse, for weights of the
    null device, and for weights that are not finite.
    """
    try:
        config = read_config(folder, str(folder))
        stored_weights(folder)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error
    refuse_null(config.get(KEY), folder)
    state = load_weights(folder / WEIGHTS)
    for file in BESIDE.values():
        if (folder / file).exists():
            state |= load_weights(folder / file)
    return state, config


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CheckpointError if it is damaged or not finite."""
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}; copy it again") from error
    require_finite(weights.items(), path)
    return weights


@torch.no_grad()
def check_folder(folder: Path, model: Model, loader: Loader) -> float:
    """The largest difference of a logit between transformers' model in `folder` and ours.

    Compares one batch of the loader, at all tokens except pads. Raises CheckpointError if the
    difference exceeds LARGEST_DIFFERENCE, or if the folder's tokenizer is not that of the data.
    """
    detects = isinstance(model, ReplacedTokenModel) and model.detection is not None
    pairs = isinstance(model, MaskedLanguageModel) and model.pair_head is not None
    tokenizer, theirs = _load_with_transformers(folder, pairs or detects)
    expected = loader.datasets[0].manifest.tokenizer
    ids = {"mask": tokenizer.mask_token_id, "pad": tokenizer.pad_token_id}
    if any(expected[name] != found for name, found in ids.items()):
        raise CheckpointError(
            f"the tokenizer that transformers loads has ids {ids}, not the data's"
        )
    batch = next(loader.micro_batches())
    loader.close()
    rows = [batch.input_ids[row] for row in batch.rows]
    ids_BS = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    lengths_B = torch.tensor([len(row) for row in rows])
    # Our flat tokens have no pads, so transformers' logits are compared at the tokens only.
    shown_BS = torch.arange(ids_BS.shape[1]) < lengths_B[:, None]
    given = {"input_ids": ids_BS, "attention_mask": shown_BS.long()}
    segments_T = batch.segment_ids if model.config.segment_types > 1 else None
    if segments_T is not None:
        types = [segments_T[row] for row in batch.rows]
        given["token_type_ids"] = pad_sequence(types, batch_first=True)
    found = theirs(**given)
    inputs = (batch.input_ids, Pieces(batch.cu_seqlens, batch.longest), segments_T)
    if isinstance(model, ReplacedTokenModel):
        ours = model.detect(*inputs) if detects else model.restored(*inputs)
        differences = [_difference(ours, found.logits[shown_BS])]
        _, theirs = _load_with_transformers(folder / GENERATOR, False)
        found = theirs(**given)
    elif pairs:
        # ALBERT's name, and BERT's.
        labels = "sop_logits" if "sop_logits" in found else "seq_relationship_logits"
        differences = [_difference(model.pair_logits(*inputs), found[labels])]
    else:
        differences = []
    words = found.prediction_logits if pairs else found.logits
    differences.append(_difference(model.logits(*inputs), words[shown_BS]))
    # Each by itself: `max(0.0, nan)` is 0.0. And `not <=`, so that NaN is refused as well.
    for difference in differences:
        if not difference <= LARGEST_DIFFERENCE:
            version = importlib.import_module("transformers").__version__
            raise CheckpointError(
                f"transformers {version} computes other logits from the written folder: they "
                f"differ by {difference:.2g}, more than {LARGEST_DIFFERENCE}; nothing was "
                "exported; try another version of transformers"
            )
    return max(differences)


def move_to_device(model: Model) -> torch.device:
    """Move a model to the GPU if there is one; returns its device."""
    device = compute_device()
    model.to(device)
    return device


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if not is_finite(ours):
        raise CheckpointError(
            "the model computes logits that are NaN or infinite from finite weights, which are too "
            "large; nothing was exported: give an earlier step"
        )
    # Other shapes would be broadcast, or raise.
    return float((ours - theirs).abs().max()) if theirs.shape == ours.shape else math.inf


def _load_with_transformers(folder: Path, pairs: bool) -> tuple[Any, Any]:
    try:
        note_loading("transformers")
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointError(
            "transformers is not installed, so the export could not be checked; "
            "pip install transformers"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # Local files: a folder with a mistake must not be completed from the Hub.
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    kind = transformers.AutoModelForPreTraining if pairs else transformers.AutoModelForMaskedLM
    model = kind.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.eval()


@torch.no_grad()
def _fill(model: Model, checkpoint: Checkpoint) -> None:
    parameters = dict(model.named_parameters())
    records = {part.name: part for part in logical_parameters(model)}
    for name, weight in checkpoint.weights():
        if name not in records:
            raise CheckpointError(f"{checkpoint.directory} has {name}, which the model lacks")
        if records[name].shape != tuple(weight.shape):
            raise CheckpointError(
                f"{checkpoint.directory} has {name} of shape {tuple(weight.shape)}, the model "
                f"needs {tuple(records[name].shape)}"
            )
        require_finite([(name, weight)], checkpoint.directory)
        part = records.pop(name)
        flat = parameters[part.parameter_name].view(-1)
        flat[part.start : part.start + weight.numel()] = weight.view(-1)
    # Both directions: a weight that keeps its random start would go unnoticed.
    if records:
        raise CheckpointError(f"{checkpoint.directory} lacks {', '.join(records)}")
