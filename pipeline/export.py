"""Export of a run as a folder for transformers: `python -m pipeline.export RUN --output DIR`.

The folder is written under a temporary name, loaded with transformers and compared with our model
on held-out sequences before it is renamed. Its README.md is a model card.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError, run_command
from pipeline.base.model_folder import check_imports
from pipeline.training.arguments import parse_export

if __name__ == "__main__":
    run_command(partial(check_imports, parse_export))  # before torch and `model` are imported

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
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import read_scores, scored_encoder
from pipeline.training.checkpoints.read import CHECKPOINTS, step_name
from pipeline.training.run_directory.run_json import RunRecord, read_record, recorded_pooling
from pipeline.training.weights.folders import (
    SavedRun,
    check_folder,
    load_run,
    write_folder,
)

ROWS = 8
"""Held-out sequences on which logits are compared."""


def main() -> None:
    arguments = parse_export()
    output: Path = arguments.output
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ConfigError(f"--output {output} exists already; name a new directory")
    _check_languages(arguments.language)
    scores = [score for path in arguments.scores for score in read_scores(path)]
    path: Path = arguments.run
    if arguments.step is not None:
        path = path / CHECKPOINTS / step_name(arguments.step)
    saved, messages = load_run(path)
    for message in messages:
        print(f"checkpoints: {message}")
    record = read_record(saved.directory)
    dataset = open_validation(saved, record, arguments.data)
    facts = CardFacts(
        run=saved.run,
        step=saved.step,
        length=record.trained_length(saved.step),
        summary=read_run(saved.directory, saved.step),
        manifest=dataset.manifest,
        scores=scores,
        score_files=arguments.scores,
        languages=arguments.language,
    )
    difference = publish(saved, dataset, output, facts)
    print(
        f"exported step {saved.step:,} of {saved.run.name}; transformers' logits differ from ours "
        f"by at most {difference:.1g}"
    )
    print(f"{output / CARD}: read it, and complete what it does not know")
    print(f"upload: hf upload {_hub_name(output)} {shlex.quote(str(output))} .")
    print(f"{output}")


def open_validation(saved: SavedRun, record: RunRecord, given: Path | None) -> Dataset:
    """The run's first dataset, at its recorded place or at `given`."""
    directory = given or record.directories[0]
    if given is None and not directory.is_dir():
        raise ConfigError(
            f"the shards of {saved.directory} are no longer at {directory}; give their directory "
            "with --data DIR"
        )
    dataset = Dataset.open(directory, VALIDATION, check_sizes=False)
    check_shards(saved.run, [dataset], record.tokenizer_sha256)
    return dataset


def publish(saved: SavedRun, dataset: Dataset, output: Path, facts: CardFacts) -> float:
    """Write, check and publish the folder. Returns the largest difference between logits."""
    with whole_folder(output) as temporary:
        tokenizer, pooling = dataset.directory / "tokenizer", recorded_pooling(saved.directory)
        write_folder(saved.model, tokenizer, temporary, facts.length, pooling)
        check_scores(facts.score_files, saved, temporary)
        difference = check_folder(temporary, saved.model, validation_loader([dataset], ROWS))
        card = model_card(facts, read_object(temporary / CONFIG))
        write_whole(temporary / CARD, card.encode(errors="replace"))
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


def _check_languages(codes: Sequence[str]) -> None:
    """Raises ConfigError for text that is not a code, which the Hub would ignore."""
    for code in codes:
        if not re.fullmatch(r"[a-z]{2,3}", code):
            raise ConfigError(f"--language {code}: give codes of ISO 639 such as en or deu")


def _hub_name(output: Path) -> str:
    """A name that the Hub takes for a repository, made of the folder's."""
    name = re.sub(r"[^\w.-]+|--+|\.\.+", "-", output.resolve().name, flags=re.ASCII)
    return name.strip("-.")[:96] or "model"


if __name__ == "__main__":
    run_command(main)
