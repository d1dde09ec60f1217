"""Micro-batches of tensors: their fields, their counts, and their optional fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.data.shards import arrow_files
from pipeline.loading.dataset import Dataset
from pipeline.loading.micro_batch import NO_EXTRAS, BatchBuilder, Extras, LossCounts, MicroBatch
from pipeline.loading.order import Located
from tests.pipeline.loading.conftest import BOS, EOS, LENGTH, SLOTS

ROWS = np.arange(5)
SAMPLES = Located(np.zeros(5, np.int64), np.ones(5, np.int64), ROWS)


def batch_of(
    directory: Path, *, packed: bool = False, documents: bool = False, extras: Extras = NO_EXTRAS
) -> MicroBatch:
    """Rows 0 to 4, each at the start of a line."""
    dataset = Dataset.open(directory)
    builder = BatchBuilder.of(
        dataset.manifest, SLOTS, packed=packed, documents=documents, extras=extras,
        pin_memory=False,
    )  # fmt: skip
    found = dataset.records(ROWS, 0, builder.details)
    return builder.batch(3, 1, 5, found.fields, ROWS * LENGTH, SAMPLES)


def test_shapes_and_types(random_shards: Path) -> None:
    batch = batch_of(random_shards)
    assert (batch.step, batch.micro_batch) == (3, 1)
    shapes = {
        "input_ids": (5, LENGTH), "lengths": (5,), "row_starts": (5,), "positions": (5 * SLOTS,),
        "labels": (5 * SLOTS,), "weights": (5 * SLOTS,), "row_weights": (5,),
    }  # fmt: skip
    for field in fields(MicroBatch):
        value = getattr(batch, field.name)
        if isinstance(value, torch.Tensor):
            assert tuple(value.shape) == shapes.pop(field.name)
            expected = torch.float32 if "weights" in field.name else torch.int64
            assert value.dtype == expected and value.is_contiguous()
    assert not shapes
    assert batch.edge_ids == (BOS, EOS)
    assert batch.to("cpu").labels.tolist() == batch.labels.tolist()


def test_what_is_not_decoded_into_pinned_memory_is_pinned(
    random_shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from other memory to a GPU waits."""
    pinned: list[torch.Tensor] = []

    def pin(self: BatchBuilder, values: np.ndarray) -> torch.Tensor:
        pinned.append(torch.from_numpy(values))
        return pinned[-1]

    monkeypatch.setattr(BatchBuilder, "_tensor", pin)
    batch = batch_of(random_shards, documents=True, extras=Extras(draws_seed=1))
    for tensor in (batch.row_starts, batch.cu_seqlens, batch.draws):
        assert any(tensor is one for one in pinned)


def test_counts_are_those_of_the_table(random_shards: Path) -> None:
    lengths = arrow_files.read_table(random_shards / "rows/train-00000.arrow")["input_ids"][:5]
    masks = arrow_files.read_table(random_shards / "mask-0/train-00000.arrow")["positions"][:5]
    predictions = sum(byte.bit_count() for mask in masks.to_pylist() for byte in mask)
    tokens = sum(map(len, lengths.to_pylist()))
    batch = batch_of(random_shards)
    assert batch.counts == LossCounts(predictions=predictions, tokens=tokens, pairs=0)
    assert (batch.predictions, batch.tokens) == (predictions, tokens)


def test_pairs_are_counted(prepare: Callable[..., Path], tmp_path: Path) -> None:
    batch = batch_of(prepare(tmp_path / "news", (5,), label="next"))
    assert batch.pair_labels is not None and batch.segment_ids is not None
    assert batch.counts.pairs == int((batch.pair_labels >= 0).sum()) > 0
    assert batch.segment_ids.shape == (5, LENGTH)


@pytest.mark.parametrize(
    ("packed", "documents", "extras", "present"),
    [
        (False, False, NO_EXTRAS, set()),
        (True, False, NO_EXTRAS, {"cu_seqlens"}),
        (False, True, NO_EXTRAS, {"cu_seqlens"}),
        (False, False, Extras(draws_seed=1), {"draws"}),
    ],
)
def test_optional_fields_are_filled_only_on_request(
    random_shards: Path, packed: bool, documents: bool, extras: Extras, present: set[str]
) -> None:
    batch = batch_of(random_shards, packed=packed, documents=documents, extras=extras)
    optional = ("cu_seqlens", "segment_ids", "pair_labels", "draws")
    assert {name for name in optional if getattr(batch, name) is not None} == present
    assert batch.counts.boundaries == 0
    counted = batch_of(random_shards, extras=Extras(most_targets=20)).counts.boundaries
    assert 0 < counted <= batch.predictions
