from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.data.order import Order, Share
from pipeline.recipes import recipe
from pipeline.run import Run
from pipeline.settings import override
from pipeline.training.checkpoint import step_name
from pipeline.training.rollback import checkpoint_before, skipped_around
from pipeline.training.schedule import growth

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
    order = Order(kind="global", seed=0, shard_rows=(np.array([60]),), skipped=((10, 13), (40, 41)))
    read = iter([place for place in range(400) if not (10 <= place < 13 or place == 40)])
    sizes = [next((s for s, end in growth(run.batch) if n < end), 16) for n in range(20)]
    steps = [
        [next(read) for _ in range(size if number >= begun_at else 0)]
        for number, size in enumerate(sizes)
    ]
    state: Any = SimpleNamespace(step=2, sequences=sum(map(len, steps[:2])))
    around = [place for step in steps[3:8] for place in step]
    wanted = {*around, 10, 11, 12, 40}
    found = skipped_around(run.spikes, order, share_of(run), 6, state)
    assert {place for begin, end in found for place in range(begin, end)} == wanted
    assert all(a[1] < b[0] for a, b in pairwise(found))


def test_nothing_before_the_checkpoint_is_skipped() -> None:
    run = override(recipe("roberta_tiny"), ["spikes.skip_before=9", "spikes.skip_after=0"])
    order = Order(kind="global", seed=0, shard_rows=(np.array([60]),))
    state: Any = SimpleNamespace(step=5, sequences=5 * 64)
    assert skipped_around(run.spikes, order, share_of(run), 7, state) == ((5 * 64, 7 * 64),)


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
