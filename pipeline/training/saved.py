"""A run's checkpoint, or a Hugging Face folder -> the model, on one device and without DeepSpeed.

And back: a folder that transformers loads. What is written is loaded again with transformers and
its logits are compared with ours, so a folder that exists is a folder that is right.
"""

from __future__ import annotations

import importlib
import json
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from model.hugging_face import family, from_hugging_face, logical_parameters, to_hugging_face
from model.objectives import MaskedLanguageModel
from pipeline.data.files import sync_directory, write_whole
from pipeline.data.loader import Loader
from pipeline.data.tokenizer_folders import read_vocabulary
from pipeline.errors import CheckpointError
from pipeline.run import Run
from pipeline.settings import from_dict
from pipeline.training.checkpoint import Checkpoint, choose_from, open_checkpoint
from pipeline.training.engine import compute_device
from pipeline.training.objectives import build_model

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
LARGEST_DIFFERENCE = 1e-4
"""Of a logit, ours and transformers': rounding of fp32 sums in another order stays far below."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A checkpoint of a run, as a model."""

    model: MaskedLanguageModel
    """In eval mode, on the CPU."""
    run: Run
    directory: Path
    """RUN."""
    step: int
    tokenizer_sha256: str


def load_run(path: Path) -> tuple[SavedRun, list[str]]:
    """The model of RUN, RUN/STEP or a checkpoint's directory, and what is odd about it."""
    directory, messages = choose_from(path)
    checkpoint = open_checkpoint(directory)
    run = from_dict(Run, checkpoint.state.run)
    model = build_model(run, seed=0)
    _fill(model, checkpoint)
    saved = SavedRun(
        model.eval(),
        run,
        directory.parent.parent,
        checkpoint.state.step,
        checkpoint.state.fingerprints["tokenizer"],
    )
    return saved, messages


def load_folder(folder: Path) -> MaskedLanguageModel:
    """The model of a Hugging Face folder, in eval mode; CheckpointError when it does not fit."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        return from_hugging_face(load_file(folder / WEIGHTS), config).eval()
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{folder} holds no model that can be loaded: {error}") from error


def write_folder(model: MaskedLanguageModel, tokenizer: Path, folder: Path) -> None:
    """Write a folder that transformers' `AutoTokenizer` and the class of the model's family load.

    tokenizer: the folder of a dataset's tokenizer.
    """
    vocabulary = read_vocabulary(tokenizer)
    try:
        weights, config = to_hugging_face(model)
    except ValueError as error:
        raise CheckpointError(f"transformers has no class for this encoder: {error}") from error
    own = family(model)
    if own.after_pad and vocabulary.pad != config["pad_token_id"]:
        raise CheckpointError(
            f"transformers has no class for this encoder: its positions begin behind the pad id "
            f"{config['pad_token_id']}, and the tokenizer in {tokenizer} has {vocabulary.pad}"
        )
    config |= {
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
    }
    try:
        folder.mkdir(parents=True)
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer / name, folder / name)
        named = {name: weight for name, weight in weights.items() if name not in own.tied}
        save_file(named, folder / WEIGHTS, {"format": "pt"})
        write_whole(folder / CONFIG, json.dumps(config | {"dtype": "float32"}, indent=1).encode())
        sync_directory(folder)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {folder}: {error}") from error


@torch.no_grad()
def check_folder(folder: Path, model: MaskedLanguageModel, loader: Loader) -> float:
    """The largest difference of a logit between transformers' model in `folder` and ours.

    On one batch of the loader, at all tokens that are no padding. CheckpointError when it is above
    LARGEST_DIFFERENCE, or the tokenizer in the folder is not that of the data.
    """
    pairs = model.pair_head is not None
    tokenizer, theirs = _load_with_transformers(folder, pairs)
    expected = loader.datasets[0].manifest.tokenizer
    ids = {"mask": tokenizer.mask_token_id, "pad": tokenizer.pad_token_id}
    if any(expected[name] != found for name, found in ids.items()):
        raise CheckpointError(
            f"the tokenizer that transformers loads has ids {ids}, not the data's"
        )
    batch = next(loader.micro_batches())
    loader.close()
    shown_BS = torch.arange(batch.input_ids.shape[1]) < batch.lengths[:, None]
    segments_BS = batch.segment_ids if model.config.segment_types > 1 else None
    ours = model.logits(batch.input_ids, batch.lengths, segments_BS)[shown_BS]
    given = {} if segments_BS is None else {"token_type_ids": segments_BS}
    found = theirs(input_ids=batch.input_ids, attention_mask=shown_BS.long(), **given)
    difference = _difference(ours, (found.prediction_logits if pairs else found.logits)[shown_BS])
    if pairs:
        ours = model.pair_logits(batch.input_ids, batch.lengths, segments_BS)
        labels = "sop_logits" if "sop_logits" in found else "seq_relationship_logits"
        difference = max(difference, _difference(ours, found[labels]))
    if not difference <= LARGEST_DIFFERENCE:
        raise CheckpointError(
            f"transformers computes other logits from what was written: they differ by "
            f"{difference:.2g}, more than {LARGEST_DIFFERENCE}; nothing was exported"
        )
    return difference


def place(model: MaskedLanguageModel) -> torch.device:
    """Move a model to the GPU, where there is one; returns where it is."""
    device = compute_device()
    model.to(device)
    return device


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max()) if theirs.shape == ours.shape else math.inf


def _load_with_transformers(folder: Path, pairs: bool) -> tuple[Any, Any]:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointError(
            "transformers is not installed, so what would be exported could not be checked; "
            "pip install transformers"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    kind = transformers.AutoModelForPreTraining if pairs else transformers.AutoModelForMaskedLM
    model = kind.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.eval()


@torch.no_grad()
def _fill(model: MaskedLanguageModel, checkpoint: Checkpoint) -> None:
    parameters = dict(model.named_parameters())
    records = {part.name: part for part in logical_parameters(model)}
    for name, weight in checkpoint.weights():
        if name not in records or records[name].shape != tuple(weight.shape):
            raise CheckpointError(f"{checkpoint.directory} has {name}, which the model has not so")
        part = records.pop(name)
        flat = parameters[part.parameter_name].view(-1)
        flat[part.start : part.start + weight.numel()] = weight.view(-1)
    if records:
        raise CheckpointError(f"{checkpoint.directory} lacks {', '.join(records)}")
