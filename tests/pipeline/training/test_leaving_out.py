from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.errors import DataError
from pipeline.loading.dataset import Dataset, leave_out
from pipeline.loading.loader import Batch, Loader
from pipeline.loading.order import Order, Share
from pipeline.training.leaving_out import found_at_start, found_by, without
from pipeline.training.progress import Progress

ALONE: Any = SimpleNamespace(rank=0, gather=lambda text: [text], agreed=contextlib.nullcontext)


def read(dataset: Dataset, kind: Any, reader: Any) -> list[Batch]:
    order = Order(kind=kind, seed=0, shard_rows=(dataset.shard_rows,), window=2)
    loader = Loader([dataset], order, Share(sequences=32, per_device=8), reader=reader)
    found = [batch for step, _ in zip(loader.steps(), range(4)) for batch in step.batches]
    loader.close()
    return found


@pytest.mark.parametrize(
    ("kind", "reader"), [("global", "mmap"), ("blocks", "mmap"), ("blocks", "read")]
)
def test_what_is_left_out_are_rows_of_weight_0(lesson: Path, kind: str, reader: str) -> None:
    """The other rows are as they were, in the same places."""
    whole, part = Dataset.open(lesson), Dataset.open(lesson)
    some = read(whole, kind, reader)
    starts = np.concatenate([[0], np.cumsum(whole.shard_rows)])
    row = some[0].samples.row[0]
    gone = int(np.searchsorted(starts, row, side="right")) - 1
    leave_out([part], ((0, part.shards[gone].file),))
    for before, after in zip(some, read(part, kind, reader), strict=True):
        rows = before.samples.row
        kept = torch.from_numpy((rows < starts[gone]) | (rows >= starts[gone + 1]))
        assert torch.equal(after.row_weights, kept.float())
        assert torch.equal(after.input_ids[kept], before.input_ids[kept])
        assert (after.lengths[~kept] == 2).all()
        place = before.positions[: before.predictions]
        predicted = kept[place // before.input_ids.shape[1]]
        assert torch.equal(after.positions[: after.predictions], place[predicted])
        labels = before.labels[: before.predictions][predicted]
        assert torch.equal(after.labels[: after.predictions], labels)
        assert after.weights.sum() == after.predictions
    assert 0 < sum(batch.row_weights.sum() for batch in read(part, kind, reader)) < 128


def test_files_that_are_gone_or_short_are_found_at_the_start(
    lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(lesson, tmp_path / "data"))
    shards = Dataset.open(data).shards
    (data / shards[0].file).unlink()
    (data / shards[1].masks[3].file).write_bytes(b"short")
    with pytest.raises(DataError, match="is missing"):
        Dataset.open(data)
    dataset = Dataset.open(data, go_on=True)
    found = found_at_start([dataset], ALONE)
    assert found == ((0, shards[0].file), (0, shards[1].file))
    progress = without(Progress(step=3), [dataset], found, ALONE)
    assert progress.left_out == found
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        f"warning: from step 4 on no row of {data / shards[0].file} is read (data.damaged=skip)"
    )
    assert len(said) == 2


def test_whose_mistake_it_is(lesson: Path) -> None:
    dataset = Dataset.open(lesson)
    file = lesson / dataset.shards[0].masks[2].file
    found = found_by(DataError("x", file), [dataset], ALONE)
    assert found == (((0, dataset.shards[0].file),), True)
    held_out = lesson / "validation-00000.arrow"
    for other in (None, DataError("x"), DataError("x", held_out), DataError("x", Path(file.name))):
        assert found_by(other, [dataset], ALONE) == ((), False)


def test_nothing_left_is_an_error(lesson: Path) -> None:
    dataset = Dataset.open(lesson)
    every = tuple((0, shard.file) for shard in dataset.shards)
    with pytest.raises(DataError, match=r"every shard of .* is damaged or gone; copy them again"):
        without(Progress(), [dataset], every, ALONE)
