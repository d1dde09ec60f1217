"""Masks with random ids by frequency: drawn once all rows exist, since these are counted first.

Each part counts the ids of its rows. The sum over all parts does not depend on who made them, nor
do the masks that are then drawn, in a second stage with a task for each task of the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.files import write_whole
from pipeline.config.data_settings import DataSettings
from pipeline.data.preparation.assemble import Part
from pipeline.data.preparation.worker import PrepareJob, counts_file
from pipeline.data.rows.masks import Masking
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import TRAIN, VALIDATION, stored_masks
from pipeline.data.shards.token_counts import Counts
from pipeline.data.text.text_tasks import SplitTask
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import Executor, Stage


@dataclass(frozen=True, slots=True)
class MaskTask:
    """The masks of the parts of one task."""

    number: int
    weight: int
    """Expected bytes of text."""
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"masks of task {self.number}"

    @property
    def marker(self) -> str:
        """Name of the file with the entries of its masks, by part."""
        return f"masks-{self.number:06d}.json"


def need_counts(data: DataSettings) -> bool:
    """True if the masks of a data section need counts of the tokens."""
    return data.masks.random_ids == "unigram"


def count_tokens_of(work: Path, parts: list[Part]) -> Counts:
    """Occurrences of each id in the train rows of all parts, or validation's if there are none."""
    for split in (TRAIN, VALIDATION):
        stems = [f"{part.stem}.{split}" for part in parts if part.of(split)]
        if stems:
            each = (np.fromfile(counts_file(work, stem), np.uint64) for stem in stems)
            return reduce(np.add, each)  # integers: the same sum in any order
    raise AssertionError("parts without rows are refused before")


def draw_later(
    job: PrepareJob,
    vocabulary: Vocabulary,
    tasks: list[SplitTask],
    parts: list[Part],
    executor: Executor,
) -> list[Part]:
    """Draw the masks of all parts, unless they are drawn; returns the parts with their masks."""
    # none are stored: the loader draws them, with the counts that are published
    if not stored_masks(job.data.duplicates, TRAIN) or not any(part.of(TRAIN) for part in parts):
        return parts
    by_task: dict[int, list[Part]] = {task.number: [] for task in tasks}
    for part in parts:
        by_task[part.task].append(part)
    later = [MaskTask(task.number, task.weight, tuple(by_task[task.number])) for task in tasks]
    masking = masking_of_parts(job, vocabulary, parts)
    executor.run(Stage(job.directory, partial(_start, job, masking)), later)
    made: dict[str, Any] = {}
    for task in later:
        # from markers, as tasks may have run in any process, or before a restart
        made |= json.loads((job.directory / task.marker).read_bytes())
    return [
        replace(
            part,
            shards=[
                entry | ({"masks": made[part.stem]} if entry["split"] == TRAIN else {})
                for entry in part.shards
            ],
        )
        for part in parts
    ]


def masking_of_parts(job: PrepareJob, vocabulary: Vocabulary, parts: list[Part]) -> Masking:
    """The masking of a job, with the counts of all its parts if it needs them."""
    counts = count_tokens_of(job.directory, parts) if need_counts(job.data) else None
    return Masking.of(job.data, vocabulary.special, vocabulary.word_starts, counts)


def _start(job: PrepareJob, masking: Masking) -> Callable[[MaskTask], None]:
    return partial(_draw, job, masking)


def _draw(job: PrepareJob, masking: Masking, task: MaskTask) -> None:
    """Draw the masks of the train rows of each part, then write the marker."""
    duplicates = range(stored_masks(job.data.duplicates, TRAIN))
    made = {}
    for part in task.parts:
        for entry in part.of(TRAIN):
            rows = arrow_files.read_table(job.directory / entry["file"])
            ids, offsets = arrow_files.ragged(rows["input_ids"])
            sequences = rows["sequence"].to_numpy()
            masks = masking.draw_duplicates(ids, offsets, part.corpus, sequences, duplicates)
            stem = entry["file"].removesuffix(".arrow")
            made[part.stem] = arrow_files.write_masks(job.directory, stem, masks, job.compression)
    write_whole(job.directory / task.marker, json.dumps(made).encode())
