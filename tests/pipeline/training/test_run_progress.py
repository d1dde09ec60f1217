from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.base.errors import CheckpointError
from pipeline.cluster.ranks import Alone
from pipeline.recipes import recipe
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import open_latest
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.optimizer.optimizer import FragmentState
from pipeline.training.run_progress import Progress, collect_state, restore, start_progress


def engine(shape: tuple[int, ...] = (2, 3)) -> Any:
    """One logical parameter, in two fragments; `refreshed` counts refreshes."""
    flat = torch.zeros(3, 6)
    parts = [FragmentState("w", i, *(row[i : i + 3] for row in flat)) for i in (0, 3)]
    found = SimpleNamespace(
        flat=flat, stage=1, world_size=1, refreshed=0,
        optimizer=SimpleNamespace(
            steps=0, logical=[SimpleNamespace(name="w", shape=shape)], fragments=lambda: parts
        ),
    )  # fmt: skip

    def refresh() -> None:
        found.refreshed += 1

    found.refresh_model_weights = refresh
    return found


def test_what_is_saved_is_restored(tmp_path: Path) -> None:
    progress = Progress(
        step=9, readings=(Reading(16, 64, ((3, 5),)), Reading(32, 8)), tokens=7000,
        predictions=900, skipped=2, skipped_in_a_row=1,
    )  # fmt: skip
    record: Any = SimpleNamespace(
        run=recipe("roberta_tiny"), fingerprints={"tokenizer": "t"}, versions={}, device=""
    )
    before = engine()
    before.flat.copy_(torch.arange(18.0).view(3, 6))
    before.optimizer.steps = 7
    saver = Saver(tmp_path, Alone(), keep=1, keep_every=0)
    saver.save(before.optimizer.fragments(), collect_state(progress, record, before))
    checkpoint, _ = open_latest(tmp_path, Alone())
    assert checkpoint and Progress.of(checkpoint.state) == progress
    after = engine()
    restore(after, checkpoint)
    assert torch.equal(after.flat, before.flat)
    assert (after.optimizer.steps, after.refreshed) == (7, 1)
    with pytest.raises(CheckpointError, match=r"has w of shape \(2, 3\), .* needs \(3, 2\)"):
        restore(engine((3, 2)), checkpoint)


def test_a_step_counts_what_it_read_and_whether_it_changed_anything() -> None:
    progress, in_a_row = Progress(readings=(Reading(16, 64),)), []
    step: Any = SimpleNamespace(sequences=8)
    for updated in (False, False, True, False):
        progress = progress.after(step, 16, predictions=5, updated=updated)
        in_a_row.append(progress.skipped_in_a_row)
    assert in_a_row == [1, 2, 0, 1] and progress.skipped == 3
    assert (progress.step, progress.sequences, progress.predictions) == (4, 96, 20)


def test_a_fork_with_other_data_reads_it_from_the_first_sequence() -> None:
    counters = {"tokens": 9, "predictions": 3, "skipped": 0, "skipped_in_a_row": 0}
    state = SimpleNamespace(step=5, counters=counters, fingerprints={"data-0": "a"})
    state.readings = (Reading(32, 80, ((3, 5),)),)
    state.left_out = ((0, "train-00000.arrow"),)
    checkpoint: Any = SimpleNamespace(state=state)
    same: Any = SimpleNamespace(fingerprints={"data-0": "a"})
    other: Any = SimpleNamespace(fingerprints={"data-0": "b"})
    found, reset = (start_progress(checkpoint, record, True) for record in (same, other))
    assert (found.sequences, found.readings, found.excluded) == (80, state.readings, state.left_out)
    assert (reset.step, reset.sequences, reset.readings, reset.excluded) == (5, 0, (), ())
    assert start_progress(None, other, False).step == 0
