"""A run's checkpoint -> the exported folder with its model card, checked before it appears."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import write_whole
from pipeline.base.publish import whole_folder
from pipeline.base.typed_json import read_object
from pipeline.data.shards.manifest import VALIDATION
from pipeline.downstream.starting_weights import load_start, start_of
from pipeline.evaluation.held_out import validation_loader
from pipeline.loading.compatibility import check_shards
from pipeline.loading.dataset import Dataset
from pipeline.released.folder import CONFIG
from pipeline.reporting.model_card import CARD, CardFacts, model_card
from pipeline.reporting.score_files import scored_encoder
from pipeline.training.run_directory.run_json import RunRecord, recorded_pooling
from pipeline.training.weights.model_folders import SavedRun, check_folder, write_folder

ROWS = 8
"""Held-out sequences on which logits are compared."""


def open_validation(saved: SavedRun, record: RunRecord, given: Path | None) -> Dataset:
    """The run's first dataset, at its recorded place or at `given`."""
    directory = given or record.directories[0]
    if given is None and not directory.is_dir():
        raise ConfigError(
            f"the shards of {saved.directory} are no longer at {directory}; give their directory "
            "with --data DIR"
        )
    dataset = Dataset.open(directory, VALIDATION)
    check_shards(saved.run, [dataset], record.tokenizer_sha256)
    return dataset


def publish_export(saved: SavedRun, dataset: Dataset, output: Path, facts: CardFacts) -> float:
    """Write, check and publish the folder. Returns the largest difference between logits."""
    with whole_folder(output) as temporary:
        tokenizer, pooling = dataset.directory / "tokenizer", recorded_pooling(saved.directory)
        write_folder(saved.model, tokenizer, temporary, facts.length, pooling)
        check_scores(facts.score_files, saved, temporary)
        difference = check_folder(temporary, saved.model, validation_loader([dataset], ROWS))
        card = model_card(facts, read_object(temporary / CONFIG))
        write_whole(temporary / CARD, card.encode(errors="replace"))  # names may not be UTF-8
    return difference


def check_scores(files: Sequence[Path], saved: SavedRun, folder: Path) -> None:
    """Raise DataError for fine-tuned scores of another model than the exported one.

    folder: the export. A fine-tuning may have started from the run, from its export, or from what
    transformers saved of that, whose configurations differ, but not the hash of the encoder.
    """
    asked = {path: found for path in files if (found := scored_encoder(path))}
    if not asked:
        return
    starts = {start.encoder_hash for start in (load_start(folder), start_of(saved, folder))}
    for path, encoder in asked.items():
        if encoder not in starts:
            raise DataError(
                f"--scores {path} are of other weights than step {saved.step:,} of "
                f"{saved.directory}, which is exported; fine-tune that step, or drop them"
            )
