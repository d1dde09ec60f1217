"""The examples of a task -> lines for the terminal before training, and entries of scores.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.downstream.features import RowEncoder
from pipeline.downstream.reading.division import DIVISION_SEED
from pipeline.downstream.reading.labels import describe_labels
from pipeline.downstream.tasks import LabelledTask, TaskData, is_published


def describe_data(task: LabelledTask, data: TaskData) -> Iterator[str]:
    """What a user should know of the files before hours of training."""
    for split in data.splits():
        if split.unlabelled:
            yield f"{split.path}: {split.unlabelled:,} rows without a label are dropped"
    if data.is_divided:
        yield (
            f"development: {len(data.dev.examples):,} examples of {data.dev.path}, drawn with seed "
            f"{DIVISION_SEED} for every seed of the job"
        )
    if data.labels and not is_published(task):
        for side, split in (("training", data.train), ("development", data.dev)):
            yield f"{side} labels: {describe_labels(split.examples, data.labels)}"


def about_data(data: TaskData, encoder: RowEncoder) -> dict[str, Any]:
    """Numbers of examples, and what was left out, for scores.json."""
    return {
        "train": len(data.train.examples),
        "dev": len(data.dev.examples),
        "skipped_lines": data.train.skipped_lines + data.dev.skipped_lines,
        "unlabelled": sum(split.unlabelled for split in data.splits()),
        "length": encoder.length,
        "lost": encoder.lost.describe(),
    }
