"""Run: one frozen value that is the whole description of a training run.

A setting's meaning is below its field, here and in `data_settings.py` and `training_settings.py`;
its value is in `recipes/`, with the source. Nothing has a default, so no value can come from two
places.

A Run checks itself when it is built: ranges are on the fields, rules about one section in that
section, rules across sections in `rules.py`. One error reports all problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipeline.config.data_settings import (
    READ_TIME_FIELDS,
    DataSettings,
    MaskSettings,
    SegmentSettings,
    all_shard_settings,
    max_predictions,
    prediction_count,
    prepared_settings,
    shard_settings,
)
from pipeline.config.rules import (
    attention_fits,
    batch_warmup_fits,
    generator_fits,
    objective_fits,
    phases_fit,
    positions_suffice,
    schedule_fits,
)
from pipeline.config.schema import Count, Seed, check
from pipeline.config.training_settings import (
    BatchSettings,
    CheckpointSettings,
    EarlierPhase,
    EncoderSettings,
    GeneratorSettings,
    LoggingSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
    SpikeSettings,
    ValidationSettings,
)

__all__ = [
    "READ_TIME_FIELDS",
    "BatchSettings",
    "CheckpointSettings",
    "DataSettings",
    "EarlierPhase",
    "EncoderSettings",
    "GeneratorSettings",
    "LoggingSettings",
    "MaskSettings",
    "ObjectiveSettings",
    "OptimizerSettings",
    "Run",
    "ScheduleSettings",
    "SegmentSettings",
    "SpikeSettings",
    "ValidationSettings",
    "all_shard_settings",
    "max_predictions",
    "prediction_count",
    "prepared_settings",
    "shard_settings",
]
"""A Run, its sections and what follows from them: recipes and stages need no other module."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The whole description of a training run; building an illegal one raises ConfigError."""

    name: str
    """Name of the recipe; part of directory names."""
    seed: Seed
    """Chooses initial weights, dropout and the order of samples."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the network; bf16 keeps weights, gradient sums and optimizer state in fp32."""
    data: DataSettings
    """Sequences and masks."""
    encoder: EncoderSettings
    """The network."""
    objective: ObjectiveSettings
    """What is predicted."""
    optimizer: OptimizerSettings
    """How gradients become updates."""
    schedule: ScheduleSettings
    """Learning rate over steps."""
    batch: BatchSettings
    """Sequences per step."""
    steps: Count
    """Optimizer steps of the whole run."""
    phases: tuple[EarlierPhase, ...]
    """Earlier phases, in order; the rest of `steps` is the last phase, with the length and batch of
    `data` and `batch`. A list: `--set phases=[]`, `--set phases.0.steps=900`."""
    spikes: SpikeSettings
    """What counts as a spike of the loss, and what is done about it."""
    validation: ValidationSettings
    """When held-out documents are scored."""
    checkpoint: CheckpointSettings
    """When the run is saved."""
    logging: LoggingSettings
    """When metrics are written."""

    def __post_init__(self) -> None:
        check(self)

    def contradictions(self) -> Iterator[str]:
        """A name that cannot be used, and settings of different sections that do not fit."""
        if not re.fullmatch(r"[\w.-]+", self.name):
            yield (
                f"name={self.name!r} cannot name a directory; use letters, digits, '_', '.' and '-'"
            )
        yield from attention_fits(self.batch, self.data)
        yield from positions_suffice(self.encoder, self.data, self.phases)
        yield from objective_fits(self.objective, self.data)
        yield from generator_fits(self.objective, self.encoder, self.data)
        yield from schedule_fits(self.schedule, self.optimizer, self.steps)
        yield from phases_fit(self.phases, self.data, self.steps)
        yield from batch_warmup_fits(self.batch, self.phases)
