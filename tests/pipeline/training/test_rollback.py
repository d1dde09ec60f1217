from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.loading.order import Order, Share
from pipeline.recipes import recipe
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import step_name
from pipeline.training.planning.schedule import growth
from pipeline.training.rollback import checkpoint_before, skipped_around

GROWS = ["batch.sequences=16", "batch.first_sequences=4", "batch.warmup_steps=9"]


def share_of(run: Run) -> Share:
    return Share(sequences=run.batch.sequences, per_device=4, growth=growth(run.batch))


@pytest.mark.parametrize(
    ("saved", "chosen"),
    [
        ([10, 20, 30, 40], 20),  # spike at 35, five steps skipped before it: 30 is too late
        ([10, 29], 29),
        ([31, 33], 31),  # none is early enough: as far back as there is
        ([35, 40], None),
        ([], None),
    ],
)
def test_the_checkpoint_is_before_what_is_skipped(
    tmp_path: Path, saved: list[int], chosen: int | None
) -> None:
    for step in saved:
        (tmp_path / step_name(step)).mkdir()
    found = checkpoint_before(tmp_path, 35, 5)
    assert (found.name if found else None) == (chosen and step_name(chosen))


@pytest.mark.parametrize("begun_at", [0, 1])
def test_the_sequences_are_those_of_the_steps(begun_at: int) -> None:
    """Steps 4 to 8 around a spike at 6, by counting one step after the other.

    begun_at: the step from which a fork began to count the sequences of other data.
    """
    run = override(recipe("roberta_tiny"), [*GROWS, "spikes.skip_before=2", "spikes.skip_after=2"])
    read = iter([place for place in range(400) if not (10 <= place < 13 or place == 40)])
    sizes = [next((s for s, end in growth(run.batch) if n < end), 16) for n in range(20)]
    steps = [
        [next(read) for _ in range(size if number >= begun_at else 0)]
        for number, size in enumerate(sizes)
    ]
    state: Any = SimpleNamespace(step=2, readings=(Reading(32, sum(map(len, steps[:2]))),))
    now = (Reading(32, 999, ((10, 13), (40, 41))),)
    share = share_of(run)
    around = [place for step in steps[3:8] for place in step]
    wanted = {*around, 10, 11, 12, 40}
    readings = skipped_around(
        run.spikes, lambda step: (32, share.sequences_of(step)), 6, now, state
    )
    (reading,) = readings
    assert reading[:2] == state.readings[0][:2]
    found = reading.skipped
    assert {place for begin, end in found for place in range(begin, end)} == wanted
    assert all(a[1] < b[0] for a, b in pairwise(found))


def test_nothing_before_the_checkpoint_is_skipped() -> None:
    run = override(recipe("roberta_tiny"), ["spikes.skip_before=9", "spikes.skip_after=0"])
    state: Any = SimpleNamespace(step=5, readings=(Reading(32, 5 * 64),))
    found = skipped_around(run.spikes, lambda step: (32, 64), 7, (), state)
    assert found == (Reading(32, 5 * 64, ((5 * 64, 7 * 64),)),)


def test_what_is_around_a_spike_may_be_of_two_lengths() -> None:
    """Steps 3 to 8 around a spike at 6, where step 6 is the first of another length."""
    run = override(recipe("roberta_tiny"), ["spikes.skip_before=2", "spikes.skip_after=2"])
    state: Any = SimpleNamespace(step=2, readings=(Reading(16, 20), Reading(64, 7)))
    now = (Reading(16, 50), Reading(32, 4))
    found = skipped_around(
        run.spikes, lambda step: (16, 10) if step < 5 else (32, 4), 6, now, state
    )
    assert found == (Reading(16, 20, ((30, 50),)), Reading(32, 0, ((0, 12),)), Reading(64, 7))


def test_skipped_places_are_left_out_of_the_order() -> None:
    """Over pass ends too: what follows is as if the places were not there."""
    skipped = ((3, 10), (55, 75), (130, 131))
    kept = np.array([p for p in range(300) if not any(a <= p < b for a, b in skipped)])
    for kind in ("global", "blocks"):
        whole = Order(kind=kind, seed=1, shard_rows=(np.array([40, 20]),), window=2)  # type: ignore[arg-type]
        left = Order(
            kind=kind,
            seed=1,
            shard_rows=(np.array([40, 20]),),
            window=2,
            skipped=skipped,  # type: ignore[arg-type]
        )
        expected, found = whole.locate(kept), left.locate(np.arange(kept.size))
        for name in ("dataset", "pass_number", "row"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))
