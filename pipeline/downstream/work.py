"""Task, examples, weights and protocol -> the work that the jobs of a fine-tuning share."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.tasks.task_model import TaskDesign
from pipeline.base.errors import ConfigError
from pipeline.base.null_device import null_entry
from pipeline.base.progress import note
from pipeline.cluster.process_group import compute_device, device_name
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.finetune_arguments import apply_changes
from pipeline.downstream.finetune_tasks import (
    LabelledTask,
    TaskData,
    is_published,
    read_tests,
    scored_by_tags,
)
from pipeline.downstream.jobs import TuningWork
from pipeline.downstream.protocols import (
    LEAST_LENGTH,
    TuningProtocol,
    protocol_for,
    usual_protocol,
)
from pipeline.downstream.reading.examples import check_gold, content_hash
from pipeline.downstream.reading.labels import check_labels, check_meant, check_varied
from pipeline.downstream.starting_weights import StartingWeights


def choose_protocol(
    arguments: argparse.Namespace, task: LabelledTask, start: StartingWeights
) -> TuningProtocol:
    """The protocol of the model, or the named one, with the changes of the command line.

    Raises ConfigError for a --length that the model has too few positions for.
    """
    width, positions = start.encoder.width, start.encoder.positions
    if (arguments.length or 0) > positions:
        raise ConfigError(
            f"--length {arguments.length} is above the model's {positions} positions; lower it"
        )
    name = arguments.protocol or usual_protocol(start.family, width)
    return apply_changes(protocol_for(name, task, width), arguments)


def make_encoder(start: StartingWeights, protocol: TuningProtocol) -> RowEncoder:
    """An encoder of rows of the protocol's length, or of the model's if it has fewer positions.

    Raises ConfigError if the model has too few for any task.
    """
    positions = start.encoder.positions
    if positions < LEAST_LENGTH:
        raise ConfigError(
            f"the model has {positions} positions, and fine-tuning needs {LEAST_LENGTH}; give "
            "another model"
        )
    return RowEncoder(start.vocabulary, min(protocol.length, positions))


def prepare_work(
    output: Path,
    task: LabelledTask,
    data: TaskData,
    tests: Path,
    start: StartingWeights,
    protocol: TuningProtocol,
    encoder: RowEncoder,
) -> TuningWork:
    """Labels, features and device.

    tests: the folder that may have test files. Raises DataError for labels that training lacks, and
    for files without labels.
    """
    labels = data.labels
    files = [("", data.dev), *((f"{split.path.stem}_", split) for split in data.more_dev)]
    for split in data.splits():
        check_gold(split.examples, split.path)
        if not is_published(task):  # published tables have dropped rows without a label
            check_meant(split.examples, task.labels, split.path)
        if task.kind in ("classification", "regression", "tags"):
            check_varied(split.examples, split.path, is_training=split is data.train)
        if labels:
            check_labels(split.examples, labels, split.path, are_named=bool(task.labels))
    scored = scored_by_tags(task, labels)
    if scored is not task:
        note("these tags mark no entities (O, B-PER, I-PER), so they are scored by accuracy alone")
    if task.kind == "spans" and not is_published(task):
        # not the development file: a score of a question would depend on the questions next to it
        scored = replace(task, abstains=any(each.gold == () for each in data.train.examples))
    return TuningWork(
        task=scored,
        # transformers has one class for both: regression is a head with one output
        design=TaskDesign("classification" if task.kind == "regression" else task.kind, labels),
        start=start,
        points=protocol.points(),
        training=data.train.examples,
        train=encoder.encode(data.train.examples, task.kind, labels),
        dev=[
            (prefix, split.examples, encoder.encode(split.examples, task.kind, labels))
            for prefix, split in files
        ],
        tests=read_tests(task, tests),
        device=compute_device(),
        output=output,
    )


def describe_work(
    arguments: argparse.Namespace, data: TaskData, start: StartingWeights, protocol: TuningProtocol
) -> dict[str, Any]:
    """Settings that must be equal for an output to be continued; files count by their content."""
    examples = {"training": data.train, "development": data.dev} | {
        split.path.stem: split for split in data.more_dev
    }
    return {
        "task": arguments.task,
        "labels": list(data.labels),
        "weights": start.identity,
        "tokenizer": start.vocabulary.sha256,
        "protocol": protocol.describe(),
        "grid": arguments.grid,
        "seeds": arguments.seeds,
        "first seed": arguments.first_seed,
        "baselines": arguments.baselines,
        **null_entry(device_name(compute_device())),
        **{
            # the files may have moved, or be in another format
            f"{name} examples": f"{len(split.examples):,} with hash {content_hash(split.examples)}"
            for name, split in examples.items()
        },
    }
