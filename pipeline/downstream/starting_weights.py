"""Where fine-tuning starts: an export, a run, a checkpoint, or a folder of transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.config_json import with_dropout, with_pooling
from model.hugging_face.conversion import to_hugging_face, untrained_pooler
from model.hugging_face.electra_folders import to_folders
from model.hugging_face.families import BOUNDARY_PREFIX, ELECTRA
from model.hugging_face.sizes import check_sizes, encoder_names
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.tasks.heads import HEADS
from model.tasks.task_model import (
    TaskDesign,
    TaskModel,
    encoder_of,
    random_task_model,
    read_task_model,
    write_task_model,
)
from pipeline.base.errors import CheckpointError
from pipeline.base.files import write_whole
from pipeline.base.null_device import KEY, NULL
from pipeline.base.publish import whole_folder
from pipeline.data.tokenizers.folders import copy_for_transformers, read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.folder import CONFIG, WEIGHTS
from pipeline.training.checkpoints.weight_file import write_weights
from pipeline.training.run_directory.run_json import read_record, recorded_pooling
from pipeline.training.weights.model_folders import (
    SavedRun,
    is_generator,
    load_run,
    read_folder,
    special_ids,
)

FINE_TUNED = "model"
"""Folder of the best weights inside an output of fine-tuning."""


@dataclass(frozen=True, slots=True)
class StartingWeights:
    """Weights to start from, under transformers' names."""

    origin: str
    """Name of the source in words, for scores.json."""
    family: str
    """Whose protocol applies: the model type, or spanbert."""
    state: Mapping[str, Tensor]
    config: Mapping[str, Any]
    tokenizer: Path
    """Folder of the tokenizer."""
    vocabulary: Vocabulary
    identity: str
    """Hash of the weights and the configuration."""
    encoder_hash: str
    """Hash of the encoder's weights without pooler, which remain when transformers loads a folder
    and saves it again, while its configuration and heads may change."""
    length: int | None = None
    """Row length at which the fine-tuned model's tokenizer cuts; None: as in `tokenizer`."""

    @property
    def encoder(self) -> EncoderConfig:
        """Sizes of the encoder."""
        return encoder_of(self.config)[1]

    def model(self, task: TaskDesign, seed: int) -> TaskModel:
        """The model; parts of its head that are new are drawn."""
        with _fitting(self.origin):
            return read_task_model(self.state, self.config, task, seed)

    def random_model(self, task: TaskDesign, seed: int) -> TaskModel:
        """The same encoder with random weights."""
        with _fitting(self.origin):
            return random_task_model(self.config, task, seed)

    def with_dropout(self, dropout: float) -> StartingWeights:
        """The same with another dropout of the encoder."""
        return replace(self, config=with_dropout(self.config, dropout))


class _fitting:
    """A ValueError inside becomes a CheckpointError that names the model."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            raise CheckpointError(f"{self.origin} cannot be fine-tuned: {error}") from error


def load_start(path: Path) -> StartingWeights:
    """Read a folder of transformers, RUN, RUN/STEP or a checkpoint's directory.

    Raises CheckpointError for anything else, and for a family that has no heads here.
    """
    if (path / CONFIG).exists():
        return _from_folder(path, str(path))
    saved, messages = load_run(path)
    for message in messages:
        print(f"checkpoints: {message}")
    record = read_record(saved.directory)
    tokenizer = record.directories[0] / "tokenizer"
    if not tokenizer.is_dir():
        raise CheckpointError(
            f"the tokenizer of {saved.directory} is no longer at {tokenizer}; export the run with "
            "--data and fine-tune that folder"
        )
    # not the row length of these shards: a first phase on short rows would cut the tokenizer there
    return replace(start_of(saved, tokenizer), length=record.trained_length(saved.step))


def start_of(saved: SavedRun, tokenizer: Path) -> StartingWeights:
    """The weights of a run that is loaded; tokenizer: its folder."""
    origin = f"{saved.directory} step {saved.step:,}"
    if isinstance(saved.model, ReplacedTokenModel):
        # the discriminator; the generator is not fine-tuned
        state, config = to_folders(saved.model)[0]
    else:
        with _fitting(origin):
            state, config = to_hugging_face(saved.model)
            state |= untrained_pooler(saved.model)
    # weights do not show the pooling: a run from a folder with `mean` would be tuned with `cls`
    config = with_pooling(config, recorded_pooling(saved.directory))
    return _start(origin, state, config, tokenizer)


def load_fine_tuned(output: Path, start: StartingWeights) -> StartingWeights:
    """The best weights of an output of fine-tuning, for another task.

    Raises CheckpointError if there are none, or they are of another family or tokenizer.
    """
    folder = output / FINE_TUNED
    if not (folder / CONFIG).exists():
        raise CheckpointError(
            f"--init-from {output} has no {FINE_TUNED}/{CONFIG}; finish that fine-tuning first"
        )
    found = _from_folder(folder, f"{start.origin} through {output}")
    if found.config.get("model_type") != start.config.get("model_type"):
        raise CheckpointError(
            f"--init-from {output} is of family {found.config.get('model_type')}, the model is "
            f"{start.config.get('model_type')}; give an output of the same model"
        )
    # with another tokenizer the same ids stand for other pieces
    if found.vocabulary.sha256 != start.vocabulary.sha256:
        raise CheckpointError(
            f"--init-from {output} has another tokenizer; give an output of the same model"
        )
    # fine-tuned SpanBERTs are saved without their boundary head, so the folder reads as plain BERT
    return replace(found, family=start.family)


def save_weights(model: TaskModel, path: Path) -> None:
    """Write the weights under transformers' names to one file."""
    write_weights(write_task_model(model)[0], path)


def save_folder(
    model: TaskModel, start: StartingWeights, folder: Path, *, device: str = ""
) -> None:
    """Write a folder that transformers' class for the task loads. Replaces an earlier one.

    device: on which the weights were computed; only the null device is written.
    """
    state, config = write_task_model(model)
    if device == NULL:  # its weights look like any others, so the folder has to say it
        config[KEY] = NULL
    vocabulary = start.vocabulary
    config |= {**special_ids(vocabulary, model.family), "dtype": "float32"}
    with whole_folder(folder, replaces=True) as written:
        # the source may have only vocab.txt or vocab.json
        if not (start.tokenizer / "tokenizer.json").exists():
            write_whole(written / "tokenizer.json", vocabulary.tokenizer_json.encode())
        else:
            # RoBERTa's tags were trained on words after a space; the tokenizer must add it for the
            # first
            tags = model.task.kind == "tags"
            copy_for_transformers(start.tokenizer, written, vocabulary, start.length, words=tags)
        write_weights(state, written / WEIGHTS)
        write_whole(written / CONFIG, json.dumps(config, indent=1).encode())


def _from_folder(path: Path, origin: str) -> StartingWeights:
    try:
        state, config = read_folder(path)
    except OSError as error:
        raise CheckpointError(f"{path} has no model that can be loaded: {error}") from error
    if is_generator(path, state):
        raise CheckpointError(
            f"{path} is ELECTRA's generator, which is not fine-tuned; give its discriminator"
        )
    return _start(origin, state, config, path)


def _start(
    origin: str, state: Mapping[str, Tensor], config: Mapping[str, Any], tokenizer: Path
) -> StartingWeights:
    kind = str(config.get("model_type", ""))
    if kind not in HEADS:
        raise CheckpointError(
            f"{origin} is of family {kind or 'unknown (no model_type)'}; supported: "
            f"{', '.join(HEADS)}, and SpanBERT as bert"
        )
    with _fitting(origin):
        own, design = encoder_of(config)
        state = encoder_names(state, own)
        check_sizes(own, design, config, state)
    prefix = own.prefix
    boundaries = any(name.startswith(BOUNDARY_PREFIX) for name in state)
    vocabulary = read_vocabulary(tokenizer)
    encoder = [name for name in state if name.startswith(prefix)]
    encoder = [name for name in encoder if not name.startswith(f"{prefix}pooler.")]
    family = "spanbert" if boundaries and kind != ELECTRA.model_type else kind
    # an id beyond the embeddings fails only in training, at the first row that has it
    if vocabulary.size > design.vocab_size:
        raise CheckpointError(
            f"{tokenizer} has {vocabulary.size:,} ids, the model {design.vocab_size:,}; give "
            "the model's own tokenizer"
        )
    return StartingWeights(
        origin, family, state, config, tokenizer, vocabulary,
        _hash(json.dumps(config, sort_keys=True), state, state), _hash("", state, encoder),
    )  # fmt: skip


def _hash(text: str, state: Mapping[str, Tensor], names: Iterable[str]) -> str:
    """Hash of a text and the tensors of these names."""
    digest = xxhash.xxh3_64(text.encode())
    for name in sorted(names):  # the order in a file depends on who saved it
        digest.update(name.encode())
        # as bytes, because numpy has no bfloat16
        digest.update(state[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
