"""Features -> batches of similar length, on the model's device.

Legend: T tokens, N gathered tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from model.pieces import pieces_of
from model.tasks.task_model import TaskInputs
from pipeline.downstream.features import Feature

GROUP = 50
"""Batches' worth of features that are sorted by length together, as in transformers' Trainer."""


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Inputs of the model and what it is to predict."""

    inputs: TaskInputs
    targets: Tensor
    """Numbers of the features one after another, float32; empty if unknown."""
    counts: list[int]
    """Gathered tokens per feature."""


def epoch_order(lengths: Sequence[int], rows: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices of the features of each batch of an epoch: random, in batches of similar length."""
    # keyed, so an epoch's order does not depend on what was drawn before it
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    batches: list[list[int]] = []
    for first in range(0, len(order), rows * GROUP):
        group = order[first : first + rows * GROUP]
        # stable, so that equal lengths keep their random order on every machine
        group = group[np.argsort(-sizes[group], kind="stable")]
        batches += [group[at : at + rows].tolist() for at in range(0, len(group), rows)]
    # each group is now sorted by length, so its batches are shuffled, too
    return [batches[index] for index in rng.permutation(len(batches))]


def by_length(lengths: Sequence[int], rows: int) -> list[list[int]]:
    """Indices of the features of each batch for prediction, longest first."""
    # the largest batch comes first: if memory is short, that shows at once
    order = np.argsort(-np.asarray(lengths), kind="stable").tolist()
    return [order[at : at + rows] for at in range(0, len(order), rows)]


def row_length(feature: Feature) -> int:
    """Tokens of its longest row."""
    return max(len(row.ids) for row in feature.rows)


def collate(features: Sequence[Feature], *, segments: bool, device: torch.device) -> TaskBatch:
    """The batch of features; segments: whether the model has more than one segment."""
    rows = [row for feature in features for row in feature.rows]
    lengths = [len(row.ids) for row in rows]
    ids = np.concatenate([np.asarray(row.ids, np.int64) for row in rows])
    types = np.zeros_like(ids) if segments else None
    places: list[int] = []
    start = 0
    for row, length in zip(rows, lengths, strict=True):
        if types is not None:
            types[start + row.second : start + length] = 1
        places += [start + place for place in row.places]
        start += length
    inputs = TaskInputs(
        torch.from_numpy(ids).to(device),
        pieces_of(lengths, device),
        None if types is None else torch.from_numpy(types).to(device),
        torch.tensor(places, dtype=torch.int64, device=device),
    )
    targets = torch.tensor(
        [target for feature in features for target in feature.targets], device=device
    )
    counts = [sum(len(row.places) for row in feature.rows) for feature in features]
    return TaskBatch(inputs, targets.float(), counts)


def by_feature(values: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """The part of each feature in values of gathered tokens [N, ...]."""
    ends = list(accumulate(counts))
    return [values[end - count : end] for count, end in zip(counts, ends)]
