"""Export of a run as a folder for transformers: `python -m pipeline.export RUN --output DIR`.

The folder is written under a temporary name, loaded with transformers and compared with our model
on held-out sequences before it is renamed.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from pipeline.errors import CheckpointError, ConfigError, run_command
from pipeline.model_folder import check_imports
from pipeline.training.arguments import parse_export

if __name__ == "__main__":
    run_command(partial(check_imports, parse_export))  # before torch and `model` are imported

from pipeline.data.shards.manifest import VALIDATION
from pipeline.loading.compatibility import check_shards
from pipeline.loading.dataset import Dataset
from pipeline.training.run_directory.run_json import RunRecord, read_record
from pipeline.training.validation.evaluate import validation_loader
from pipeline.training.weights.folders import SavedRun, check_folder, load_run, write_folder

ROWS = 8
"""Held-out sequences on which logits are compared."""


def main() -> None:
    arguments = parse_export()
    output: Path = arguments.output
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ConfigError(f"--output {output} exists already; name a new directory")
    path: Path = arguments.run
    saved, messages = load_run(path if arguments.step is None else path / str(arguments.step))
    for message in messages:
        print(f"checkpoints: {message}")
    dataset = open_validation(saved, read_record(saved.directory), arguments.data)
    difference = publish(saved, dataset, output)
    print(
        f"exported step {saved.step:,} of {saved.run.name}; transformers' logits differ from ours "
        f"by at most {difference:.1g}"
    )
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


def publish(saved: SavedRun, dataset: Dataset, output: Path) -> float:
    """Write, check and rename the folder. Returns the largest difference between logits."""
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        write_folder(saved.model, dataset.directory / "tokenizer", temporary)
        difference = check_folder(temporary, saved.model, validation_loader([dataset], ROWS))
        temporary.replace(output)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {output}: {error.strerror or error}; name another --output"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return difference


if __name__ == "__main__":
    run_command(main)
