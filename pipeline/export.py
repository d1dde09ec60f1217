"""Export of a run as a folder for transformers: `python -m pipeline.export RUN --output DIR`.

The folder is written under a temporary name, loaded with transformers and compared with our model
on held-out sequences before it is renamed. Its README.md is a model card.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.base.errors import CheckpointError, ConfigError, run_command
from pipeline.base.model_folder import check_imports
from pipeline.training.network_arguments import parse_export

if __name__ == "__main__":
    run_command(partial(check_imports, parse_export))  # before torch and `model` are imported

from pipeline.reporting.export_folder import open_validation, publish_export
from pipeline.reporting.model_card import CARD, CardFacts
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import Score, read_scores
from pipeline.training.checkpoints.read import CHECKPOINTS, saved_steps, step_name
from pipeline.training.run_directory.run_json import read_record
from pipeline.training.weights.model_folders import load_run


def main() -> None:
    arguments = parse_export()
    output: Path = arguments.output
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ConfigError(f"--output {output} already exists; name a new directory")
    _check_languages(arguments.language)
    # before weights are loaded: mistakes in --scores end at once
    scores = [score for path in arguments.scores for score in read_scores(path)]
    path: Path = arguments.run
    if not arguments.all:
        chosen = path if arguments.step is None else path / CHECKPOINTS / step_name(arguments.step)
        _export(arguments, chosen, output, scores)
        return
    if scores:
        raise ConfigError("--scores are of one step, and --all exports several; drop one of them")
    kept = saved_steps(path / CHECKPOINTS).values()
    if not kept:
        raise CheckpointError(f"{path} has no checkpoint to export; train it, or name another run")
    for checkpoint in kept:
        _export(arguments, checkpoint, output / checkpoint.name, scores)


def _export(arguments: argparse.Namespace, path: Path, output: Path, scores: list[Score]) -> None:
    """Export one checkpoint; path: its directory, or that of the run for the newest."""
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
    difference = publish_export(saved, dataset, output, facts)
    print(
        f"exported step {saved.step:,} of {saved.run.name}; transformers' logits differ from ours "
        f"by at most {difference:.1g}"
    )
    print(f"{output / CARD}: read it, and complete what it does not know")
    print(f"upload: hf upload {_hub_name(output)} {shlex.quote(str(output))} .")
    print(f"{output}")


def _check_languages(codes: Sequence[str]) -> None:
    """Raises ConfigError for text that is not a code, which the Hub would ignore."""
    for code in codes:
        if not re.fullmatch(r"[a-z]{2,3}", code):
            raise ConfigError(f"--language {code}: give codes of ISO 639 such as en or deu")


def _hub_name(output: Path) -> str:
    """A name that the Hub takes for a repository, made of the folder's."""
    # the Hub refuses "--", ".." and more than 96 characters
    name = re.sub(r"[^\w.-]+|--+|\.\.+", "-", output.resolve().name, flags=re.ASCII)
    return name.strip("-.")[:96] or "model"


if __name__ == "__main__":
    run_command(main)
