"""The loop with a plain model instead of DeepSpeed; test_train.py tests the whole."""

import contextlib
import itertools
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from model import encoder
from model.hugging_face.conversion import logical_parameters
from model.pieces import BlockLayout, lay_out
from pipeline.base.errors import DivergedError
from pipeline.cluster.ranks import Alone
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.placement import Capacity
from pipeline.planning.build import build_model
from pipeline.planning.phases import make_phases
from pipeline.planning.schedule import learning_rate
from pipeline.recipes import recipe
from pipeline.training import feed
from pipeline.training.assembly import build_trainer
from pipeline.training.checkpoints.data_position import Reading
from pipeline.training.checkpoints.read import open_latest
from pipeline.training.checkpoints.saver import Saver
from pipeline.training.feed import Feed
from pipeline.training.loop import Trainer, noise_seed
from pipeline.training.optimizer.optimizer import FragmentState
from pipeline.training.recovery import MOST_SKIPPED
from pipeline.training.run_directory.metrics_log import Metrics, read_metrics
from pipeline.training.run_directory.run_json import RunRecord
from pipeline.training.run_progress import Progress
from tests.pipeline.conftest import poison
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.training.plain import view
from tests.pipeline.training.toy_checkpoints import published

SETTINGS = [
    "encoder.layers=1", "encoder.width=16", "encoder.feed_forward=32", "batch.sequences=4",
    "batch.per_device=4", "steps=12", "schedule.warmup_steps=1", "validation.every=5",
    "checkpoint.every=4", "logging.every=3",
]  # fmt: skip


class PlainEngine:
    """Gradient descent with the interface of `ZeroEngine`."""

    stage, world_size = 1, 1

    def __init__(self, run: Run, finite: bool = True) -> None:
        self.module = build_model(run, 0)
        self.parameters = dict(self.module.named_parameters())
        self.optimizer = SimpleNamespace(
            steps=0, logical=logical_parameters(self.module), fragments=self.fragments,
            telemetry=SimpleNamespace(report=dict),
        )  # fmt: skip
        self.gradient_norm = 1.0 if finite else float("inf")

    def fragments(self) -> Iterator[FragmentState]:
        for part in self.optimizer.logical:
            weight = view(self.parameters[part.parameter_name], part)
            zeros = torch.zeros(weight.numel())
            yield FragmentState(part.name, 0, weight, zeros, zeros)

    def refresh_model_weights(self) -> None:
        pass

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)

    def backward(self, loss_sum: torch.Tensor, count: int) -> None:
        (loss_sum / count).backward()

    @torch.no_grad()
    def step(self, rate: float) -> bool:
        updated = self.gradient_norm < float("inf")
        self.optimizer.steps += updated
        for parameter in self.module.parameters():
            parameter -= rate * updated * parameter.grad
            parameter.grad = None
        return updated


def trainer(
    lesson: Path, output: Path, *settings: str,
    progress: Progress = Progress(), finite: bool = True, more: Sequence[Path] = (),  # noqa: B008
) -> Trainer:  # fmt: skip
    """more: further directories of shards."""
    output.mkdir(exist_ok=True)
    run = override(recipe("roberta_tiny"), [*SETTINGS, *settings])
    data, rate = [Dataset.open(path) for path in (lesson, *more)], run.validation.mask_rate
    held_out = [Dataset.open(path, "validation").at_rate(rate) for path in (lesson, *more)]
    phases = make_phases(run, 1, 1, data, held_out)
    cluster: Any = SimpleNamespace(
        rank=0, world_size=1, device=torch.device("cpu"), control=None, is_first_on_node=True,
        agreed=contextlib.nullcontext, total=lambda sums: sums, any=bool,
        gather=lambda text: [text], each=lambda value: [value], from_first=bytes,
    )  # fmt: skip
    job: Any = SimpleNamespace(
        run=run, output=output, hours=math.inf, profile=False,
        deepspeed=SimpleNamespace(uses_host=lambda: True),  # so that no plan is checked
    )  # fmt: skip
    start: Any = SimpleNamespace(
        record=RunRecord.of(run, [phase.plan.to_dict() for phase in phases], data),
        feed=Feed(phases, data, cluster, progress), progress=progress,
        checkpoint=None, grammar=None, general=None,
    )  # fmt: skip
    engine: Any = PlainEngine(run, finite)
    saver = Saver(output, Alone(), keep=run.checkpoint.keep, keep_every=0)
    metrics = Metrics(output, progress.step)
    return build_trainer(job, cluster, StopRequest(), start, engine, saver, metrics)


def trained(lesson: Path, output: Path, *settings: str, steps: int = 12) -> Trainer:
    """After a run from the start that nothing stops."""
    running = trainer(lesson, output, *settings)
    assert not running.train(steps)
    return running


def column(output: Path, name: str) -> list[Any]:
    """A field of all lines of metrics that have it."""
    return [line[name] for line in read_metrics(output) if name in line]


def test_everything_happens_when_it_is_due(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step at its own rate; step, rank and micro-batch choose the noise, so that it repeats
    on a resume."""
    rates: list[float] = []
    seeds: list[int] = []
    forward, step = PlainEngine.__call__, PlainEngine.step

    def noted_step(engine: PlainEngine, rate: float) -> bool:
        rates.append(rate)
        return step(engine, rate)

    def noted_forward(engine: PlainEngine, *inputs: Any) -> Any:
        if engine.module.training:
            seeds.append(torch.initial_seed())
        return forward(engine, *inputs)

    monkeypatch.setattr(PlainEngine, "step", noted_step)
    monkeypatch.setattr(PlainEngine, "__call__", noted_forward)
    running = trained(lesson, tmp_path, "batch.per_device=2")
    assert rates == [learning_rate(running.run, number) for number in range(1, 13)]
    assert seeds == [noise_seed(0, step, 0, part) for step in range(12) for part in range(2)]
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [3, 5, 6, 9, 10, 12]
    assert [line["step"] for line in lines if "validation_loss" in line] == [5, 10, 12]
    assert published(tmp_path) == [4, 8, 12]
    assert [line["sequences"] for line in lines] == [12, 20, 24, 36, 40, 48]
    checkpoint, _ = open_latest(tmp_path, Alone())
    counts = {name: lines[-1][name] for name in ("tokens", "predictions")}
    assert checkpoint
    assert Progress.of(checkpoint.state) == Progress(step=12, readings=(Reading(32, 48),), **counts)


def test_noise_differs_between_neighbours_and_repeats_itself() -> None:
    keys = [*itertools.product(range(3), range(9), range(4), (0, 1))]
    assert len({noise_seed(*key) for key in keys}) == len(keys)
    assert noise_seed(0, 1, 2, 3) == noise_seed(0, 1, 2, 3) < 2**63


def test_a_stop_within_a_step_drops_that_step(
    lesson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("batch.sequences=32", "batch.per_device=1", "logging.every=1")
    whole = trained(lesson, tmp_path / "whole", *settings, steps=1)
    running = trainer(lesson, tmp_path / "run", *settings)
    passes, forward = 0, PlainEngine.__call__

    def counted(engine: PlainEngine, *inputs: Any) -> Any:
        nonlocal passes
        passes += 1
        running.stop.signalled = passes >= 32 + 5
        return forward(engine, *inputs)

    monkeypatch.setattr(PlainEngine, "__call__", counted)
    assert running.train(2)
    assert passes <= 32 + 5 + 2
    assert published(tmp_path / "run") == [1]
    assert running.progress == whole.progress
    again = trainer(lesson, tmp_path / "run", *settings, progress=running.progress)
    assert not again.train(1)


def test_an_interrupted_validation_is_repeated(lesson: Path, tmp_path: Path) -> None:
    running = trainer(lesson, tmp_path)
    answers = iter([False, True])
    stopping = SimpleNamespace(requested=False, mistake=None)
    running.stop = running.validator.stop = stopping  # type: ignore[assignment]
    running.cluster.any = lambda flag: flag or next(answers, False)  # type: ignore[misc]
    assert running.train(12)
    assert published(tmp_path) == [4, 5]
    assert "validation_loss" not in read_metrics(tmp_path)[-1]
    running.metrics and running.metrics.close()
    assert not trainer(lesson, tmp_path, progress=running.progress).train(6)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == [3, 5, 6]
    assert "validation_loss" in lines[1] and "loss" in lines[1]


GIVEN = {"folder": "model"}


def test_a_run_from_given_weights_is_validated_before_its_first_step(
    lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, also if it was stopped at step 0, and then the steps are those of any run."""
    stopped = trainer(lesson, tmp_path / "run")
    stopped.record = replace(stopped.record, initial_weights=GIVEN)
    stopped.stop.signalled = True
    assert stopped.train(12)
    assert stopped.metrics and read_metrics(tmp_path / "run") == []
    stopped.metrics.close()
    assert published(tmp_path / "run") == [0]
    for last, validated in ((1, 1), (5, 0)):
        running = trainer(lesson, tmp_path / "run", progress=stopped.progress)
        running.record = stopped.record
        assert not running.train(last)
        said = capsys.readouterr().out
        assert said.count("before the first step: held-out loss ") == validated
        assert running.metrics
        running.metrics.close()
    first = read_metrics(tmp_path / "run")[0]
    assert first["step"] == 0 and "validation_mask_loss" in first and "loss" not in first
    trained(lesson, tmp_path / "plain", steps=5)
    assert column(tmp_path / "run", "loss") == column(tmp_path / "plain", "loss")


def test_both_ends_are_scored_on_the_last_rows(lesson: Path, short: Path, tmp_path: Path) -> None:
    phases = 'phases=[{"steps": 6, "sequence_length": 16, "sequences": 4}]'
    running = trainer(lesson, tmp_path, phases, more=[short])
    running.record = replace(running.record, initial_weights=GIVEN)
    scored: list[tuple[int, int, bool]] = []

    def validate(step: int, phase: Any, *, at_end: bool) -> bool:
        scored.append((step, phase.number, at_end))
        return True

    running.validator = SimpleNamespace(  # type: ignore[assignment]
        parts=running.validator.parts,
        validate=validate,
        is_owed=lambda step: not scored,
        broken_at=-1,
    )
    assert not running.train(12)
    assert scored == [(0, 2, True), (5, 1, False), (10, 2, False), (12, 2, True)]


def test_a_gradient_that_stays_infinite_ends_the_run(lesson: Path, tmp_path: Path) -> None:
    lost = trainer(lesson, tmp_path, finite=False)
    with pytest.raises(DivergedError, match=r" 10 steps .* step 10; last good .* none\."):
        lost.train(12)
    assert lost.progress.skipped == MOST_SKIPPED
    assert lost.progress.sequences == 40
    assert read_metrics(tmp_path)[-1]["skipped_updates"] == 9
    assert published(tmp_path) == []


def breaking(lesson: Path, output: Path, at: int, *settings: str, weights: bool = False) -> Trainer:
    """A run whose gradients are infinite from step `at` on, or its weights after that step."""
    running = trainer(lesson, output, *settings)
    engine: Any = running.engine
    update = engine.step

    def step(rate: float) -> bool:
        if running.progress.step + 1 < at:
            return bool(update(rate))
        if not weights:
            engine.gradient_norm = math.inf
        updated = update(rate)
        if weights:
            next(iter(engine.parameters.values())).data.fill_(math.nan)
        return bool(updated)

    engine.step = step
    return running


@pytest.mark.parametrize(
    ("at", "weights", "settings", "good", "kept"),
    [
        # weights without a finite gradient are not good, but nobody knew when they were saved
        (6, False, ["checkpoint.every=1", "steps=20"], 4, [3, 4, 5]),
        (6, False, ["checkpoint.every=1", "checkpoint.keep=1", "steps=20"], 4, [4, 5]),
        (12, False, [], 8, [4, 8]),  # only the last update is skipped
        (12, True, [], 8, [4, 8]),  # the last update ruins the weights: no gradient shows it
        (10, True, ["checkpoint.every=5"], 5, [5]),  # validated and due to be saved
    ],
)
def test_a_run_that_breaks_ends_so_and_keeps_its_good_checkpoints(
    lesson: Path, tmp_path: Path, at: int, weights: bool, settings: list[str], good: int,
    kept: list[int],
) -> None:  # fmt: skip
    running = breaking(lesson, tmp_path, at, *settings, weights=weights)
    with pytest.raises(DivergedError, match=rf"/step-0+{good}\b"):
        running.train(running.run.steps)
    assert published(tmp_path) == kept


def test_a_broken_run_that_is_stopped_saves_nothing(lesson: Path, tmp_path: Path) -> None:
    running = breaking(lesson, tmp_path, 10)
    engine: Any = running.engine
    update = engine.step

    def step(rate: float) -> bool:
        running.stop.signalled = running.progress.step + 1 == 10
        return bool(update(rate))

    engine.step = step
    assert running.train(12)
    assert running.progress.step == 10 and published(tmp_path) == [4, 8]


LEARNS = ("batch.sequences=32", "batch.per_device=32", "optimizer.peak_lr=1", "checkpoint.every=3")
SPIKES = (
    "spikes.deviations=3", "spikes.window=5", "spikes.rollbacks=2", "spikes.skip_before=1",
    "spikes.skip_after=1", *LEARNS,
)  # fmt: skip


@pytest.fixture(scope="module")
def spiky(lesson: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, with noise in step 9 of the runs here (places 256 to 288 of the order)."""
    folder = tmp_path_factory.mktemp("spiky")
    poison(Path(shutil.copytree(lesson, folder / "data")), range(256, 288))
    return folder / "data"


@pytest.mark.parametrize("every", [1, 12])
def test_a_rollback_equals_a_run_that_skips_from_the_start(
    spiky: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    """If the spike is found at once, in a line of metrics, or one step late."""
    logging, skipped = f"logging.every={every}", ((224, 320),)
    found = trained(spiky, tmp_path / "found", *SPIKES, logging)
    said = capsys.readouterr().err
    assert "warning: the loss of step 9 is" in said and "back to step 6, rollback 1 of 2" in said
    assert found.progress.readings == (Reading(32, 384, skipped),)
    assert (found.progress.spikes, found.progress.rollbacks) == (1, 1)
    progress = Progress(readings=(Reading(32, 0, skipped),))
    skipping = trainer(spiky, tmp_path / "skipping", *LEARNS, logging, progress=progress)
    assert not skipping.train(12)
    for name, weight in skipping.engine.module.state_dict().items():
        assert torch.equal(weight, found.engine.module.state_dict()[name]), name
    expected, lines = (read_metrics(tmp_path / name) for name in ("skipping", "found"))
    common = [{name: line[name] for name in ("step", "loss", "sequences")} for line in lines]
    assert common == [{name: line[name] for name in common[0]} for line in expected]
    assert (lines[-1]["rollbacks"], lines[-1]["skipped_sequences"]) == (1, 96)
    checkpoint, messages = open_latest(tmp_path / "found", Alone())
    assert checkpoint and checkpoint.state.readings == found.progress.readings and not messages
    assert len(checkpoint.state.recent_losses) == 5


def test_a_spike_that_cannot_or_may_not_be_undone_is_only_reported(
    spiky: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trained(spiky, tmp_path / "plain", *LEARNS)
    watched = trained(spiky, tmp_path / "watched", *SPIKES, "spikes.rollbacks=0")
    assert "warning: the loss of step 9 is" in capsys.readouterr().err
    assert watched.progress == replace(plain.progress, spikes=1)
    assert read_metrics(tmp_path / "watched")[-1]["loss_spikes"] == 1
    unsaved = trained(spiky, tmp_path / "unsaved", *SPIKES, "checkpoint.every=12")
    assert "there is no checkpoint before it" in capsys.readouterr().err
    assert unsaved.progress.skipped_sequences == 0


def test_after_the_last_rollback_the_run_ends(spiky: Path, tmp_path: Path) -> None:
    running = trainer(spiky, tmp_path / "run", *SPIKES, progress=Progress(rollbacks=2))
    with pytest.raises(DivergedError, match=r"rollbacks=2 are used up; last good .*/step-0+6\."):
        running.train(12)


@pytest.mark.parametrize("label", ["", "order"], ids=["one segment", "pairs"])
def test_micro_batches_of_a_fixed_size_give_the_same_curve(
    label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the same rows per step, dead tokens, fewer micro-batches. The curve differs if
    rows mix."""
    directory = prepare_directory(tmp_path / "data", (300,), label=label)
    manifest = read_manifest(directory)
    held_out = replace(manifest.shards[0], split="validation")
    whole = replace(manifest, shards=(*manifest.shards, held_out))
    (directory / MANIFEST).write_bytes(whole.to_json())
    settings = (
        "data.sequence_length=70", "encoder.positions=70", "encoder.segment_types=2",
        "encoder.initializer_range=0.3", "data.vocab_size=1000", "batch.sequences=30",
        "batch.per_device=4", "steps=5", "optimizer.peak_lr=1", "logging.every=1",
    )  # fmt: skip
    if label:  # as for BERT and ALBERT
        settings += ("data.format=segment_pair", f"data.segments.label={label}")
        settings += ("objective.kind=mlm_pair", "encoder.position_offset=0")
    found, micro_batches = {}, {}
    for name in ("by rows", "fixed", "leaking"):
        if name == "fixed":
            monkeypatch.setattr(feed, "Loader", fixed_loader)
        if name == "leaking":
            monkeypatch.setattr(encoder, "lay_out", one_piece)
        running = trained(directory, tmp_path / name, *settings, steps=5)
        found[name] = [line for line in read_metrics(tmp_path / name) if "loss" in line]
        micro_batches[name] = running.engine.accumulation
    for one, other, leaking in zip(*found.values(), strict=True):
        for loss in ("loss", "pair_loss" if label else "mlm_loss"):
            assert other[loss] == pytest.approx(one[loss], rel=1e-5)
        assert leaking["loss"] != pytest.approx(one["loss"], rel=1e-5)
        for count in ("sequences", "tokens", "predictions", "epoch"):
            assert other[count] == one[count]
    assert found["by rows"][-1]["loss"] < found["by rows"][0]["loss"] - 0.1
    assert micro_batches["fixed"] < micro_batches["by rows"] == 8


def fixed_loader(*given: Any, **options: Any) -> Loader:
    """With the capacity of four full rows."""
    capacity = Capacity(tokens=4 * 70, predictions=50, rows=9, pieces=9)
    return Loader(*given, **options | {"form": replace(options["form"], capacity=capacity)})


def one_piece(cu_seqlens: torch.Tensor, heads: int) -> BlockLayout:
    """As `model.pieces.lay_out`, but all tokens are one piece."""
    return lay_out(cu_seqlens[[0, -1]], heads)
