"""Phases in the training loop, with test_loop.py's plain engine; test_train.py uses DeepSpeed."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.layers import set_dropout
from pipeline.config.data_settings import prediction_count
from pipeline.evaluation import loss_parts
from pipeline.evaluation.held_out import evaluate, evaluating, validation_loader
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm, Extras
from pipeline.loading.order import Order, Share
from pipeline.planning.phases import check_phases, phase_of
from pipeline.planning.schedule import learning_rate
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import open_checkpoint, step_name
from pipeline.training.feed import Feed
from pipeline.training.loop import Trainer, noise_seed
from pipeline.training.loss_watch import LossWatch, Spike
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.run_progress import Progress
from tests.pipeline.conftest import prepare_texts
from tests.pipeline.phase_data import drawn_anew
from tests.pipeline.training.test_loop import column, trained, trainer

PHASES = [
    {"steps": 4, "sequence_length": 16, "sequences": 6},
    {"steps": 2, "sequence_length": 16, "sequences": 3},
    {"steps": 3, "sequence_length": 32, "sequences": 4},
]
"""And the last three steps at length 32, four sequences per step."""
LENGTHS, SIZES = [16] * 6 + [32] * 6, [6] * 4 + [3] * 2 + [4] * 6
SETTINGS = (f"phases={json.dumps(PHASES)}", "optimizer.peak_lr=1", "logging.every=1")


def phased(lesson: Path, short: Path, output: Path, *settings: str) -> Trainer:
    return trainer(short, output, *SETTINGS, *settings, more=[lesson])


def global_order(dataset: Dataset) -> Order:
    return Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,))


def step_by_hand(running: Trainer, dataset: Dataset, step: int, consumed: int, size: int) -> Any:
    """The loss per prediction of a step on the next `size` rows, and the predictions."""
    engine: Any = running.engine
    form = BatchForm(extras=Extras(dropout_seed=0))
    loader = Loader(
        [dataset], global_order(dataset), Share(sequences=size, per_device=size), form=form
    )
    batch = next(loader.micro_batches(consumed))
    torch.manual_seed(noise_seed(0, step, 0, 0))
    loss = loss_parts.loss_sum(
        running.validator.parts,
        engine(model_inputs(batch, dataset.manifest.tokenizer)),
        batch.counts,
    )
    engine.backward(loss, batch.predictions)
    engine.step(learning_rate(running.run, step + 1))
    return float(loss.detach()) / batch.predictions, batch.predictions


def by_hand(running: Trainer, data: dict[int, Path]) -> Iterator[float]:
    """The loss of each step, with one continuous loader per length."""
    consumed = {16: 0, 32: 0}
    for step, (length, size) in enumerate(zip(LENGTHS, SIZES)):
        dataset = Dataset.open(data[length])
        yield step_by_hand(running, dataset, step, consumed[length], size)[0]
        consumed[length] += size


def test_each_phase_continues_where_its_length_stopped(
    lesson: Path, short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compared with a loop by hand: one schedule, a position per length, validation per phase."""
    data, held_out = {16: short, 32: lesson}, {}
    reference = phased(lesson, short, tmp_path / "reference")
    later = by_hand(reference, data)
    losses = [*islice(later, 5)]
    for length in data:
        loader = validation_loader([Dataset.open(data[length], "validation")], 64)
        with evaluating(reference.engine.module):
            scores = evaluate(
                reference.engine, reference.validator.parts, loader, torch.device("cpu")
            )
        assert scores
        held_out[length] = scores.metrics["loss"]
    running = phased(lesson, short, tmp_path / "run")
    assert not running.train(12)
    lines = read_metrics(tmp_path / "run")
    assert [line["sequence_length"] for line in lines] == LENGTHS
    assert [line["loss"] for line in lines[:5]] == pytest.approx(losses, rel=1e-6)
    assert lines[4]["validation_loss"] == pytest.approx(held_out[16], rel=1e-6)
    assert abs(held_out[16] - held_out[32]) > 1e-4
    assert running.progress.readings == (Reading(16, 30), Reading(32, 24))
    assert "phase 3: steps 7 to 9, sequences of 32" in capsys.readouterr().out
    assert [line["loss"] for line in lines[5:]] == pytest.approx([*later], rel=1e-5)


def test_a_validation_owed_at_the_boundary_is_of_the_phase_that_ended(
    lesson: Path, short: Path, tmp_path: Path
) -> None:
    settings = ("validation.every=6", "checkpoint.every=12")
    whole = phased(lesson, short, tmp_path / "whole", *settings)
    assert not whole.train(12)
    cut = phased(lesson, short, tmp_path / "cut", *settings)
    answers = iter([True])
    plain = cut.cluster.any
    cut.cluster.any = lambda flag: plain(flag) or next(answers, False)  # type: ignore[misc]
    assert cut.train(12) and cut.progress.step == 6
    assert "validation_loss" not in read_metrics(tmp_path / "cut")[-1]
    cut.feed.enter(cut.progress.step, cut.progress.readings)  # as when a run resumes
    assert not cut.train(12)
    found, expected = (
        [line.get("validation_loss") for line in read_metrics(tmp_path / name)]
        for name in ("cut", "whole")
    )
    assert found == expected and found[5]


def test_a_run_goes_back_over_the_boundary(
    lesson: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spike in the first step at 32; the step before it, at 16, is skipped with it."""
    settings = (
        "spikes.deviations=1e9", "spikes.rollbacks=1", "spikes.skip_before=1",
        "spikes.skip_after=0", "checkpoint.every=5",
    )  # fmt: skip
    running = phased(lesson, short, tmp_path / "run", *settings)
    receive = LossWatch.receive

    def alarmed(self: LossWatch, total: int) -> Spike | None:
        found = receive(self, total)
        first = running.progress.step == 7 and not running.progress.rollbacks
        return Spike(7, 9.0, 1.0, 2e9) if first else found

    monkeypatch.setattr(LossWatch, "receive", alarmed)
    assert not running.train(12)
    assert running.progress.rollbacks == 1
    assert running.progress.readings == (Reading(16, 30, ((27, 30),)), Reading(32, 24, ((0, 4),)))
    assert column(tmp_path / "run", "sequence_length") == LENGTHS


CURVE = [3.0, 2.9, 2.95, 2.9, 9.0, 2.8, 5.0, 4.9, 4.95, 4.9, 4.8, 9.0]
"""Losses of twelve steps, the last six at another length; steps 5 and 12 are spikes."""


@pytest.mark.parametrize("stop", [5, 6, 7])
def test_another_length_is_not_a_spike(
    lesson: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], stop: int,
) -> None:  # fmt: skip
    """Resuming anywhere around the boundary finds the same spikes and remembers the same losses."""
    original = LossWatch.record

    def record(self: LossWatch, step: int, count: int) -> None:
        self.copy(torch.tensor(CURVE[step - 1] * count))
        original(self, step, count)

    monkeypatch.setattr(LossWatch, "record", record)
    phase = {"steps": 6, "sequence_length": 16, "sequences": 4}
    settings = (
        f"phases=[{json.dumps(phase)}]", "spikes.deviations=6", "spikes.window=3",
        "steps=13", "validation.every=13",
    )  # fmt: skip

    def started(output: Path, progress: Progress) -> Trainer:
        return trainer(short, output, *settings, progress=progress, more=[lesson])

    whole, cut = started(tmp_path / "whole", Progress()), started(tmp_path / "cut", Progress())
    assert not whole.train(12) and not cut.train(stop)
    state = open_checkpoint(cut.saver.checkpoints / step_name(stop)).state
    assert state.recent_losses == pytest.approx(CURVE[6 * (stop > 6) : stop][-3:], abs=1e-3)
    resumed = started(tmp_path / "cut", Progress.of(state))
    resumed.recovery.losses.reset(state.recent_losses)
    assert not resumed.train(12)
    assert resumed.progress == whole.progress and whole.progress.spikes == 2
    assert resumed.recovery.losses.recent == whole.recovery.losses.recent
    said = capsys.readouterr().err
    assert [said.count(f"the loss of step {step} is") for step in (5, 7, 12)] == [2, 0, 2]


def test_the_phase_of_a_step_and_the_rows_it_reads(
    lesson: Path, short: Path, tmp_path: Path
) -> None:
    phases = phased(lesson, short, tmp_path).feed.phases
    steps = (0, 3, 4, 5, 6, 8, 9, 11, 99)
    assert [phase_of(phases, step).number for step in steps] == [1, 1, 2, 2, 3, 3, 4, 4, 4]
    plans = [phase.plan for phase in phases]
    assert [plan.rows for plan in plans] == [6, 3, 4, 4]
    read = [plan.epochs * plan.train_sequences for plan in plans]
    assert read == pytest.approx([24, 6, 12, 12])


ANEW = ("data.mask_mode=per-epoch", "data.duplicates=0")


def test_a_phase_has_its_own_masks_and_dropout(lesson: Path, tmp_path: Path) -> None:
    """Compared with a loop by hand: one order of samples, whose masks and dropout change."""
    anew = drawn_anew(lesson, tmp_path / "anew")
    high = ["data.masks.rate=0.3", "encoder.dropout=0.4", "encoder.attention_dropout=0.2"]
    phase = {"steps": 4, "sequence_length": 32, "sequences": 4, "settings": high}
    settings = (
        f"phases={json.dumps([phase])}", *ANEW,
        "optimizer.peak_lr=1", "logging.every=1", "steps=8", "validation.every=8",
    )  # fmt: skip
    reference = trainer(anew, tmp_path / "reference", *settings)
    stored, found = Dataset.open(anew), []
    for step in range(8):
        data = reference.run.data if step >= 4 else reference.feed.phases[0].run.data
        set_dropout(reference.engine.module, *((0.0, 0.0) if step >= 4 else (0.4, 0.2)))
        found.append(step_by_hand(reference, stored.drawing(data), step, 4 * step, 4))
    losses, counts = zip(*found)
    running = trained(anew, tmp_path / "run", *settings, steps=8)
    lines = read_metrics(tmp_path / "run")
    assert [line["loss"] for line in lines] == pytest.approx(losses, rel=1e-6)
    assert lines[-1]["predictions"] == sum(counts) and min(counts[:4]) > max(counts[4:])
    assert running.progress.readings == (Reading(32, 32),)


RATES = (0.3, 0.15, 0.05)
"""Of three phases of two steps."""


@pytest.mark.parametrize("anew", [(), ANEW], ids=["stored", "drawn"])
def test_the_mask_rate_falls(anew: tuple[str, ...], lesson: Path, tmp_path: Path) -> None:
    """30-15-5: from three preparations or drawn, each row is masked at its phase's rate, and all
    phases are validated at one."""
    texts = [f"The {n}th boat left the harbour {n % 7} hours late. " * 6 for n in range(60)]
    first, *more = (
        prepare_texts(
            lesson / "tokenizer", tmp_path / f"{rate}" / "boats", texts,
            f"data.masks.rate={rate}", *anew,
        )
        for rate in (RATES[2:] if anew else RATES)
    )  # fmt: skip
    phase = {"steps": 2, "sequence_length": 32, "sequences": 4}
    phases = [{**phase, "settings": [f"data.masks.rate={rate}"]} for rate in RATES[:2]]
    running = trainer(
        first, tmp_path / "run", f"phases={json.dumps(phases)}",
        f"data.masks.rate={RATES[2]}", *anew, "validation.mask_rate=0.15", "validation.every=2",
        "steps=6", "logging.every=1", more=more,
    )  # fmt: skip
    check_phases(running.run, running.feed.datasets)
    assert not running.train(6)
    rows = Dataset.open(first)
    share = Share(sequences=4, per_device=4)
    batches = Loader([rows], global_order(rows), share).micro_batches()
    lines, predicted = read_metrics(tmp_path / "run"), 0
    for line, batch, rate in zip(lines, batches, np.repeat(RATES, 2).tolist()):
        for row in batch.rows:
            ids = batch.input_ids[row]
            predicted += prediction_count(int(((ids != 0) & (ids != 2)).sum()), rate)
        assert line["predictions"] == predicted
    assert [line.get("validation_mask_rate") for line in lines[1::2]] == [0.15, None, 0.15]
    held_out = []
    for part in running.feed.phases:
        loader = validation_loader(part.validation, 8)
        held_out.append([batch.positions.tolist() for batch in loader.micro_batches()])
    assert held_out[0] == held_out[1] == held_out[2]


def test_reading_copies_gives_the_same_losses(lesson: Path, short: Path, tmp_path: Path) -> None:
    """Copies of a length go with its last phase, and all of them at the end of the run."""
    losses, node = [], tmp_path / "node"
    for name, stage in (("shared", None), ("staged", node)):
        running = phased(lesson, short, tmp_path / name)
        feed = Feed(running.feed.phases, running.feed.datasets, running.cluster, Progress(), stage)
        running.feed, running.recovery.feed = feed, feed
        running.train(6)
        running.train(12)
        left = [path.name.rpartition("-")[0] for path in node.glob("*")]
        assert left == ([lesson.name] if stage else [])
        feed.close(done=True)
        losses.append(column(tmp_path / name, "loss"))
    assert losses[0] == losses[1] and len(losses[0]) == 12
    assert not list(node.glob("*"))
