"""The progress of a run, and its conversion to and from the state of a checkpoint.

Three numbers determine the run: the step (schedule), the sequences of each order (data) and the
optimizer's updates (bias correction). The others are counted for reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import torch

from pipeline.base.errors import CheckpointError
from pipeline.config.settings import to_dict
from pipeline.loading.dataset import ExcludedShards
from pipeline.loading.loader import Step
from pipeline.training.checkpoints.data_position import Readings, reading_of, with_reading
from pipeline.training.checkpoints.read import Checkpoint, State
from pipeline.training.checkpoints.weight_file import require_finite
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.run_directory.run_json import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All numbers count from the start of the run, over all ranks."""

    step: int = 0
    readings: Readings = ()
    """The position in each order of samples."""
    tokens: int = 0
    predictions: int = 0
    skipped: int = 0
    """Steps whose gradient was not finite, so that they changed nothing."""
    skipped_in_a_row: int = 0
    spikes: int = 0
    """Steps with a loss spike."""
    rollbacks: int = 0
    """Number of times the run went back to a checkpoint because of a spike."""
    excluded: ExcludedShards = ()
    """Excluded shards: their rows are read as rows of weight 0."""

    @property
    def sequences(self) -> int:
        """Sequences read."""
        return sum(reading.sequences for reading in self.readings)

    @property
    def skipped_sequences(self) -> int:
        """Skipped places in the orders of samples."""
        return sum(end - begin for reading in self.readings for begin, end in reading.skipped)

    @classmethod
    def of(cls, state: State) -> Progress:
        """The progress that a checkpoint stores."""
        return cls(
            step=state.step,
            readings=state.readings,
            excluded=state.left_out,
            **state.counters,
        )

    def after(self, step: Step, order: int, predictions: int, updated: bool) -> Progress:
        """The progress after a step of an order, without the step's tokens."""
        reading = reading_of(self.readings, order)
        read = reading._replace(sequences=reading.sequences + step.sequences)
        return replace(
            self,
            step=self.step + 1,
            readings=with_reading(self.readings, read),
            predictions=self.predictions + predictions,
            skipped=self.skipped + (not updated),
            skipped_in_a_row=0 if updated else self.skipped_in_a_row + 1,
        )


def start_progress(checkpoint: Checkpoint | None, record: RunRecord, forked: bool) -> Progress:
    """Where the run continues; a fork with other data reads it from the first sequence."""
    if checkpoint is None:
        return Progress()
    progress = Progress.of(checkpoint.state)
    if forked:
        progress = replace(progress, spikes=0, rollbacks=0)  # a fork has all its rollbacks again
    if forked and checkpoint.state.fingerprints != record.fingerprints:
        return replace(progress, readings=(), excluded=())
    return progress


def collect_state(
    progress: Progress, record: RunRecord, engine: ZeroEngine, recent_losses: Iterable[float] = ()
) -> State:
    """What a checkpoint stores besides tensors."""
    # What is left after the named fields: a new counter is stored without a change here.
    counters = asdict(replace(progress, readings=()))
    del counters["readings"]
    return State(
        step=counters.pop("step"),
        readings=progress.readings,
        left_out=counters.pop("excluded"),
        recent_losses=tuple(recent_losses),
        updates=engine.optimizer.steps,
        counters=counters,
        run=to_dict(record.run),
        fingerprints=record.fingerprints,
        world_size=engine.world_size,
        stage=engine.stage,
        shapes={part.name: tuple(part.shape) for part in engine.optimizer.logical},
        versions=dict(record.versions),
        device=record.device,
    )


@torch.no_grad()
def restore(engine: ZeroEngine, checkpoint: Checkpoint) -> None:
    """Load weights, moments and update count from a checkpoint. Collective."""
    # All shapes first: after a mistake no weight has been overwritten.
    for part in engine.optimizer.logical:
        saved = checkpoint.state.shapes.get(part.name)
        if saved != tuple(part.shape):
            raise CheckpointError(
                f"{checkpoint.directory} has {part.name} of shape {saved}, the run's encoder needs "
                f"{tuple(part.shape)}; fork with the encoder settings that it was trained with"
            )
    fragments = list(engine.optimizer.fragments())
    ranges = ((part.name, part.start, part.start + part.weight.numel()) for part in fragments)
    for fragment, saved_parts in zip(fragments, checkpoint.read_each(ranges), strict=True):
        require_finite([(fragment.name, saved_parts[0])], checkpoint.directory)
        ours = (fragment.weight, fragment.exp_avg, fragment.exp_avg_sq)
        for mine, saved_part in zip(ours, saved_parts, strict=True):
            mine.copy_(saved_part)
    engine.optimizer.steps = checkpoint.state.updates
    # The model computes with copies of these weights, except at stage 0.
    engine.refresh_model_weights()
