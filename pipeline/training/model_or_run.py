"""MODEL_OR_RUN of a command line -> the model with its tokenizer, of a run or of a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.hugging_face.conversion import Model
from pipeline.base.errors import DataError
from pipeline.config.formats import Attention
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.folder import CONFIG
from pipeline.training.checkpoints.read import choose_from
from pipeline.training.run_directory.run_json import read_record
from pipeline.training.weights.model_folders import load_folder, load_run


@dataclass(frozen=True, slots=True)
class GivenModel:
    """A model, and how it is to be scored."""

    model: Model
    """The model, in eval mode, on the CPU."""
    name: str
    """Its folder, or its run and step."""
    tokenizer_sha256: str
    """"" if it has no tokenizer."""
    attention: Attention = "row"
    """Only a run can attend per document; transformers' models attend to whole rows."""
    mask_rate: float = 0.0
    """validation.mask_rate of a run, 0 for a folder."""


def load_model(path: Path) -> GivenModel:
    """The model of a run or a folder; prints messages on checkpoints to stderr."""
    # A model's folder has config.json, a run has run.json.
    if (path / CONFIG).exists():
        has_tokenizer = (path / "tokenizer.json").exists()
        sha256 = read_vocabulary(path).sha256 if has_tokenizer else ""
        return GivenModel(load_folder(path), str(path), sha256)
    saved, messages = load_run(path)
    for message in messages:
        print(f"checkpoints: {message}", file=sys.stderr)  # --json prints one object
    name = f"{saved.directory} step {saved.step:,}"
    settings = saved.run.batch.attention, saved.run.validation.mask_rate
    return GivenModel(saved.model, name, saved.tokenizer_sha256, *settings)


def find_vocabulary(path: Path, data: Sequence[Path], model: Model) -> Vocabulary:
    """The tokenizer of a folder, or of a run's shards, which may have moved to `data`.

    Raises DataError if there is none, or it is not the model's.
    """
    folder = path
    if not (path / CONFIG).exists():
        directory, _ = choose_from(path)
        folder = data[0] if data else read_record(directory.parent.parent).directories[0]
        folder = folder / "tokenizer"
        if not folder.is_dir():
            raise DataError(
                f"the tokenizer of {path} is no longer at {folder}; export the run and evaluate "
                "the export, or give the shards with --data"
            )
    vocabulary = read_vocabulary(folder)
    if vocabulary.size > model.config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {vocabulary.size:,} ids, the model "
            f"{model.config.vocab_size:,}; give the model its own tokenizer"
        )
    return vocabulary
