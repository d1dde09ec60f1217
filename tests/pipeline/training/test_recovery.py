"""Rollbacks skip the right sequences, damaged shards are excluded, and the run reports both.

Whole runs that go back or exclude shards are in test_loop.py and test_faults.py.
"""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.base.errors import DataError, DivergedError
from pipeline.cluster.ranks import Alone
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.settings import override
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import MicroBatch
from pipeline.loading.order import Order, Share
from pipeline.planning.schedule import growth
from pipeline.recipes import recipe
from pipeline.training import recovery
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import step_name
from pipeline.training.loss_watch import LossWatch, Spike
from pipeline.training.recovery import (
    Recovery,
    Rollback,
    checkpoint_before,
    exclude_shards,
    skip_around,
)
from pipeline.training.run_progress import Progress
from tests.pipeline.loading.test_placement import rows_of

GROWS = ["batch.sequences=16", "batch.first_sequences=4", "batch.warmup_steps=9"]

ALONE: Any = Alone()


def test_the_checkpoint_is_before_what_is_skipped(tmp_path: Path) -> None:
    cases: list[tuple[list[int], int | None]] = [
        ([10, 20, 30, 40], 20),  # spike at 35, five steps skipped before it: 30 is too late
        ([10, 29], 29),
        ([31, 33], 31),  # none is early enough, so the oldest one
        ([35, 40], None),
        ([], None),
    ]
    for number, (saved, chosen) in enumerate(cases):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for step in saved:
            (folder / step_name(step)).mkdir()
        found = checkpoint_before(folder, 35, 5)
        assert (found.name if found else None) == (chosen and step_name(chosen))


@pytest.mark.parametrize("forked_at", [0, 1])
def test_the_sequences_are_those_of_the_steps(forked_at: int) -> None:
    """Steps 4 to 8 around a spike at 6, by counting one step after the other.

    forked_at: the step from which a fork counts the sequences of other data.
    """
    run = override(recipe("roberta_tiny"), [*GROWS, "spikes.skip_before=2", "spikes.skip_after=2"])
    read = iter([place for place in range(400) if not (10 <= place < 13 or place == 40)])
    sizes = [next((s for s, end in growth(run.batch) if n < end), 16) for n in range(20)]
    steps = [
        [next(read) for _ in range(size if number >= forked_at else 0)]
        for number, size in enumerate(sizes)
    ]
    state: Any = SimpleNamespace(step=2, readings=(Reading(32, sum(map(len, steps[:2]))),))
    now = (Reading(32, 999, ((10, 13), (40, 41))),)
    share = Share(sequences=run.batch.sequences, per_device=4, growth=growth(run.batch))
    around = [place for step in steps[3:8] for place in step]
    wanted = {*around, 10, 11, 12, 40}
    readings = skip_around(run.spikes, lambda step: (32, share.sequences_of(step)), 6, now, state)
    (reading,) = readings
    assert reading[:2] == state.readings[0][:2]
    found = reading.skipped
    assert {place for begin, end in found for place in range(begin, end)} == wanted
    assert all(a[1] < b[0] for a, b in pairwise(found))


def test_skipped_steps_may_meet_the_checkpoint_or_a_change_of_length() -> None:
    """Nothing before the checkpoint; steps 3 to 8 around step 6, the first of another length."""
    run = override(recipe("roberta_tiny"), ["spikes.skip_before=9", "spikes.skip_after=0"])
    state: Any = SimpleNamespace(step=5, readings=(Reading(32, 5 * 64),))
    found = skip_around(run.spikes, lambda step: (32, 64), 7, (), state)
    assert found == (Reading(32, 5 * 64, ((5 * 64, 7 * 64),)),)
    run = override(run, ["spikes.skip_before=2", "spikes.skip_after=2"])
    state = SimpleNamespace(step=2, readings=(Reading(16, 20), Reading(64, 7)))
    now = (Reading(16, 50), Reading(32, 4))
    found = skip_around(run.spikes, lambda step: (16, 10) if step < 5 else (32, 4), 6, now, state)
    assert found == (Reading(16, 20, ((30, 50),)), Reading(32, 0, ((0, 12),)), Reading(64, 7))


def test_skipped_places_are_not_in_the_order() -> None:
    """Also across pass ends: the order continues as if the places did not exist."""
    skipped = ((3, 10), (55, 75), (130, 131))
    kept = np.array([p for p in range(300) if not any(a <= p < b for a, b in skipped)])
    kind: Any
    for kind in ("global", "blocks"):
        whole = Order(kind=kind, seed=1, piece_rows=(np.array([40, 20]),), window=2)
        expected = whole.locate(kept)
        found = replace(whole, skipped=skipped).locate(np.arange(kept.size))
        for name in ("dataset", "pass_number", "row"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))


def read(dataset: Dataset, kind: Any, reader: Any) -> list[MicroBatch]:
    order = Order(kind=kind, seed=0, piece_rows=(dataset.piece_rows,), window=2)
    loader = Loader([dataset], order, Share(sequences=32, per_device=8), reader=reader)
    found = [batch for step, _ in zip(loader.steps(), range(4)) for batch in step.batches]
    loader.close()
    return found


@pytest.mark.parametrize(
    ("kind", "reader"), [("global", "mmap"), ("blocks", "mmap"), ("blocks", "read")]
)
def test_excluded_rows_are_left_out(lesson: Path, kind: str, reader: str) -> None:
    """The other rows of each step are unchanged, and in the same order."""
    whole, part = Dataset.open(lesson), Dataset.open(lesson)
    some = read(whole, kind, reader)
    starts = np.cumsum([0, *(shard.sequences for shard in whole.shards)])
    row = some[0].samples.row[0]
    gone = int(np.searchsorted(starts, row, side="right")) - 1
    part.exclude({part.shards[gone].name})
    left = read(part, kind, reader)
    for step in range(4):
        before, after = (
            {key: value for batch in batches if batch.step == step
             for key, value in rows_of(batch).items()}
            for batches in (some, left)
        )  # fmt: skip
        lost = range(starts[gone], starts[gone + 1])
        assert list(after.items()) == [item for item in before.items() if item[0][1] not in lost]
    assert 0 < sum(len(batch.samples) for batch in left) < 128


def test_files_that_are_gone_or_short_are_found_at_the_start(
    lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Path(shutil.copytree(lesson, tmp_path / "data"))
    shards = Dataset.open(data).shards
    (data / shards[0].file).unlink()
    (data / shards[1].masks[3].file).write_bytes(b"short")
    with pytest.raises(DataError, match="is missing"):
        Dataset.open(data)
    dataset = Dataset.open(data, skip_damaged=True)
    found = recovery.find_damaged_at_start([dataset])
    assert found == ((0, shards[0].name), (0, shards[1].name))
    progress = exclude_shards(Progress(step=3), [dataset], [[dataset]], found, ALONE)
    assert progress.excluded == found
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(
        f"warning: from step 4 on the rows of shard {shards[0].name} of {data} are skipped "
    )
    assert len(said) == 2


def test_a_data_error_is_traced_to_its_shard(lesson: Path) -> None:
    dataset = Dataset.open(lesson)
    file = lesson / dataset.shards[0].masks[2].file
    found = recovery.find_damaged(DataError("x", file), [dataset], ALONE)
    assert found == (((0, dataset.shards[0].name),), True)
    held_out = lesson / "rows/validation-00000.arrow"
    for other in (None, DataError("x"), DataError("x", held_out), DataError("x", Path(file.name))):
        assert recovery.find_damaged(other, [dataset], ALONE) == ((), False)


def test_excluding_every_shard_of_what_a_phase_reads_is_an_error(lesson: Path) -> None:
    """The part of one corpus shares the shards that its directory excludes."""
    dataset = Dataset.open(lesson)
    corpus, part = next(iter(dataset.by_corpus().items()))
    gone = tuple((0, shard.name) for shard in part.shards)
    exclude_shards(Progress(), [dataset], [[dataset]], gone, ALONE)
    assert part.is_excluded and not dataset.is_excluded
    with pytest.raises(DataError, match=f"every shard of {corpus} in .* is damaged or missing;"):
        exclude_shards(Progress(), [dataset], [[dataset], [part]], gone, ALONE)
    every = tuple((0, shard.name) for shard in dataset.shards)
    with pytest.raises(DataError, match=r"every shard of .* is damaged or missing; copy"):
        exclude_shards(Progress(), [dataset], [[dataset]], every, ALONE)


def recovering(datasets: list[Dataset], checkpoints: Path, *settings: str) -> Recovery:
    parts: Any = SimpleNamespace(
        datasets=datasets, checkpoints=checkpoints, finish=lambda: "", engine=None,
        phases=[SimpleNamespace(train=datasets)],
    )  # fmt: skip
    run = override(recipe("roberta_tiny"), list(settings))
    return Recovery(
        run=run, cluster=ALONE, engine=parts, feed=parts, saver=parts, stop=StopRequest(),
        losses=LossWatch(run.spikes, torch.device("cpu")),
    )  # fmt: skip


def test_a_data_error_excludes_its_shard_only_if_asked(
    lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Dataset.open(lesson)
    mistake = DataError("it is damaged", lesson / dataset.shards[0].masks[2].file)
    strict = recovering([dataset], tmp_path)
    strict.stop.mistake = mistake
    assert strict.on_data_error(Progress()) is None and strict.stop.mistake
    lenient = recovering([dataset], tmp_path, "data.damaged=skip")
    assert lenient.on_data_error(Progress()) is None
    lenient.stop.mistake = mistake
    progress = lenient.on_data_error(Progress(step=2))
    assert progress == Progress(step=2, excluded=((0, dataset.shards[0].name),))
    assert lenient.stop.mistake is None and "from step 3 on the rows of" in capsys.readouterr().err
    lenient.stop.mistake = DataError("a held-out shard", lesson / "rows/validation-00000.arrow")
    assert lenient.on_data_error(progress) is None and lenient.stop.mistake


def test_a_spike_is_counted_or_ends_in_a_rollback(tmp_path: Path) -> None:
    spike = Spike(35, 9.0, 3.0, 7.0)
    (tmp_path / step_name(20)).mkdir()
    watching = recovering([], tmp_path, "spikes.rollbacks=0")
    assert watching.on_loss(None, Progress(spikes=4)) == Progress(spikes=4)
    assert watching.on_loss(spike, Progress(spikes=4)) == Progress(spikes=5)
    going_back = recovering([], tmp_path, "spikes.rollbacks=2", "spikes.deviations=6")
    with pytest.raises(Rollback) as rollback:
        going_back.on_loss(spike, Progress(rollbacks=1))
    assert rollback.value.directory == tmp_path / step_name(20)
    assert rollback.value.spike_step == 35
    with pytest.raises(DivergedError, match=r"rollbacks=2 are used up; last .*step-0+20"):
        going_back.on_loss(spike, Progress(rollbacks=2))
