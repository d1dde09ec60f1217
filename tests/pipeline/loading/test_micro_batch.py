"""Micro-batches of tensors: their fields, their counts, and their optional fields."""

from dataclasses import fields
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.objectives.span_boundary import MOST_TARGETS, boundaries
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.dataset import Dataset
from pipeline.loading.micro_batch import (
    BatchBuilder,
    BatchForm,
    Extras,
    LossCounts,
    MicroBatch,
    draw_bits,
)
from pipeline.loading.order import Located
from pipeline.loading.placement import Capacity
from pipeline.loading.resolve import RECORD
from tests.pipeline.loading.conftest import BOS, EOS, LENGTH, MASK, PAD, prepare_directory
from tests.pipeline.loading.test_loader import loader

ROWS = np.arange(5)
SAMPLES = Located(np.zeros(5, np.int64), np.ones(5, np.int64), ROWS)
COLUMNS = 128


def batch_of(directory: Path, **form: Any) -> MicroBatch:
    """Rows 0 to 4."""
    dataset = Dataset.open(directory)
    builder = BatchBuilder.of(dataset.manifest, BatchForm(**form))
    found = dataset.records(ROWS, 0, builder.details)
    return builder.batch(3, 1, found.fields, SAMPLES)


def test_shapes_and_types(random_shards: Path) -> None:
    """As many tokens and slots as there are, or those of a capacity, the rest of it dead; optional
    fields are None."""
    batch = batch_of(random_shards)
    assert (batch.step, batch.micro_batch) == (3, 1)
    assert batch.counts == LossCounts(batch.predictions, batch.tokens, 0)
    own = {
        "input_ids": batch.tokens, "cu_seqlens": 6, "row_starts": 5,
        "positions": batch.predictions, "labels": batch.predictions, "weights": batch.predictions,
    }  # fmt: skip
    assert_shapes(batch, own)
    assert batch.weights.min() == 1 and batch.longest == LENGTH
    assert batch.to("cpu").labels.tolist() == batch.labels.tolist()
    fixed = batch_of(random_shards, capacity=Capacity(6 * LENGTH, 70, 9, 8))
    assert_shapes(
        fixed,
        {
            "input_ids": 6 * LENGTH, "cu_seqlens": 8 + 6 + 1, "row_starts": 9, "positions": 70,
            "labels": 70, "weights": 70,
        },
    )  # fmt: skip
    for name in ("input_ids", "row_starts", "positions", "labels", "weights", "cu_seqlens"):
        whole, part = getattr(fixed, name), getattr(batch, name)
        assert torch.equal(whole[: len(part)], part), name
    bounds = fixed.cu_seqlens.tolist()
    assert bounds == sorted(bounds) and bounds[-1] == 6 * LENGTH
    assert int(fixed.cu_seqlens.diff().max()) <= LENGTH
    assert set(fixed.input_ids[fixed.tokens :].tolist()) == {PAD}
    assert not fixed.weights[fixed.predictions :].any()
    assert [row.stop for row in fixed.rows] == bounds[1:6]


def assert_shapes(batch: MicroBatch, shapes: dict[str, int]) -> None:
    for field in fields(MicroBatch):
        value = getattr(batch, field.name)
        if isinstance(value, torch.Tensor):
            assert tuple(value.shape) == (shapes.pop(field.name),)
            kinds = {"weights": torch.float32, "cu_seqlens": torch.int32}
            assert value.dtype == kinds.get(field.name, torch.int64) and value.is_contiguous()
    assert not shapes


def test_all_that_is_copied_to_a_gpu_is_in_pinned_memory(
    random_shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from other memory to a GPU waits."""
    pinned: list[torch.Tensor] = []

    def empty(self: BatchBuilder, size: int, dtype: torch.dtype) -> torch.Tensor:
        pinned.append(torch.empty(size, dtype=dtype))
        return pinned[-1]

    monkeypatch.setattr(BatchBuilder, "_empty", empty)
    batch = batch_of(
        random_shards,
        attention="document",
        extras=Extras(draws_seed=1, dropout_seed=1),
        pin_memory=True,
    )
    memory = {tensor.untyped_storage().data_ptr() for tensor in pinned}
    for field in fields(MicroBatch):
        value = getattr(batch, field.name)
        if isinstance(value, torch.Tensor):
            assert value.untyped_storage().data_ptr() in memory, field.name


def test_a_micro_batch_without_rows_is_dead(random_shards: Path) -> None:
    manifest = Dataset.open(random_shards).manifest
    for capacity, tokens in ((None, 2), (Capacity(100, 7, 3, 3), 100)):
        builder = BatchBuilder.of(
            manifest, BatchForm(extras=Extras(draws_seed=1), capacity=capacity)
        )
        batch = builder.batch(0, 0, np.zeros(0, RECORD), SAMPLES[:0])
        assert batch.counts == LossCounts(0, 0, 0) and batch.rows == []
        assert batch.input_ids.tolist() == [PAD] * tokens and not batch.weights.any()
        assert batch.cu_seqlens[-1] == tokens


@pytest.mark.parametrize("label", ["", "order"])
@pytest.mark.parametrize("vocabulary", [1000, 70_000])
def test_steps_know_their_boundary_targets(tmp_path: Path, vocabulary: int, label: str) -> None:
    """With rows of one or two segments, swapped or not."""
    directory = prepare_directory(tmp_path / "rows", (200,), vocabulary=vocabulary, label=label)
    source = loader(directory, 37, 8, form=BatchForm(extras=Extras(most_targets=MOST_TARGETS)))
    for step in islice(source.steps(), 4):
        assert (step.counts.boundaries, step.counts.predictions) == counted(
            step.batches, MOST_TARGETS
        )
        assert 0 < step.counts.boundaries < step.counts.predictions
    source.close()
    few = loader(directory, 64, 8, form=BatchForm(extras=Extras(most_targets=1)))
    step = next(few.steps())
    spans, predictions = counted(step.batches, 1)
    assert step.counts.boundaries == spans < predictions  # no span counts more than the limit
    few.close()


def counted(batches: object, most: int) -> tuple[int, int]:
    """Targets and predictions, as the model reads the batches."""
    targets = predictions = 0
    for batch in batches:  # type: ignore[attr-defined]
        inputs = model_inputs(batch, {"bos": BOS, "eos": EOS, "mask": MASK})
        found = boundaries(inputs.input_ids_T, inputs.positions_K, inputs.weights_K, (BOS, EOS))
        targets += int((found.weights * (found.place < most)).sum())
        predictions += int(torch.count_nonzero(inputs.weights_K))
    return targets, predictions


def bits(
    seed: int, dataset: int, pass_number: int, rows: list[int], places: Any = None
) -> np.ndarray:
    """Of these rows, at places of their micro-batch, by default all."""
    full = [np.full(len(rows), value) for value in (dataset, pass_number)]
    located = Located(full[0], full[1], np.array(rows, np.int64))
    every = np.arange(len(rows) * COLUMNS) if places is None else np.array(places)
    return draw_bits(seed, located, np.arange(len(rows)) * COLUMNS, every)


def test_bits_are_fair_and_independent() -> None:
    drawn = bits(0, 0, 1, [*range(1000)])
    assert drawn.dtype == np.int64 and len(np.unique(drawn)) == len(drawn)
    signs = np.unpackbits(drawn.view(np.uint8)).reshape(1000, COLUMNS, 64) * 2.0 - 1
    assert np.abs(signs.mean((0, 1))).max() < 4.5 / len(drawn) ** 0.5
    for other in (signs[1:], signs[:, 1:]):  # the next row's, and the next place's
        near = signs[: other.shape[0], : other.shape[1]]
        assert np.abs((near * other).mean((0, 1))).max() < 4.5 / other[..., 0].size ** 0.5


def test_only_seed_dataset_pass_and_row_change_the_bits() -> None:
    """Neither micro-batches nor neighbours do, and without rows nothing is drawn."""
    whole = bits(7, 0, 3, [5, 9, 2, 8]).reshape(4, COLUMNS)
    assert bits(7, 0, 3, [2], [17, 3, 0]).tolist() == whole[2, [17, 3, 0]].tolist()
    variants = [(0, 0, 1, 4), (1, 0, 1, 4), (0, 1, 1, 4), (0, 0, 2, 4), (0, 0, 1, 5)]
    drawn = [bits(seed, dataset, number, [row]) for seed, dataset, number, row in variants]
    for one, other in combinations(drawn, 2):
        assert (one == other).mean() == 0
    assert bits(0, 0, 1, [], [0, 0, 0]).tolist() == [0, 0, 0]


def test_batches_include_the_noise(random_shards: Path) -> None:
    """The same for a row in any micro-batch, and only on request."""
    drawn: dict[tuple[int, ...], int] = {}
    keys: dict[tuple[int, ...], int] = {}
    extras = Extras(draws_seed=5, dropout_seed=5)
    for rows in (8, 3):
        source = loader(random_shards, 24, rows, form=BatchForm(extras=extras))
        for batch in next(source.steps()).batches:
            assert batch.draws is not None and len(batch.draws) == len(batch.positions)
            assert batch.dropout_keys is not None and batch.dropout_keys.dtype == torch.int32
            assert len(batch.dropout_keys) == len(batch.input_ids)
            draws = dict(zip(batch.positions[: batch.predictions].tolist(), batch.draws.tolist()))
            for number, own in enumerate(batch.rows):
                for token in range(own.start, own.stop):
                    origin = rows, int(batch.samples.row[number]), token - own.start
                    keys[origin] = int(batch.dropout_keys[token])
                    if token in draws:
                        drawn[origin] = draws[token]
        source.close()
    assert len(drawn) > 200
    for found in (drawn, keys):
        assert all(found[3, row, place] == bits for (_, row, place), bits in found.items())
        assert len(set(found.values())) == len(found) // 2
    assert len({bits >> 32 for bits in drawn.values()} & set(keys.values())) == 0
    assert next(loader(random_shards).micro_batches()).dropout_keys is None
    assert next(loader(random_shards).micro_batches()).draws is None
