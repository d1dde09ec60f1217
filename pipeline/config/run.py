"""Run: one frozen value that describes a training run completely.

Each setting is documented below its field, here and in `data_settings.py` and
`training_settings.py`. Its value, with the source, is in `recipes/`. No field has a default, so a
value comes from one place.

A Run checks itself when it is built: ranges are on the fields, rules within a section in that
section, rules across sections in `rules.py`. One error reports all problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipeline.config.data_settings import DataSettings
from pipeline.config.phases import phase_settings_fit
from pipeline.config.rules import (
    attention_fits,
    batch_warmup_fits,
    generator_fits,
    label_fits,
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
    LoggingSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
    SpikeSettings,
    ValidationSettings,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A complete description of a training run. Raises ConfigError if settings are invalid."""

    name: str
    """Name of the run, that of its recipe unless set; part of directory names."""
    seed: Seed
    """Seed of the initial weights, dropout and the order of samples."""
    precision: Literal["fp32", "bf16"]
    """Arithmetic of the network; bf16 keeps weights, gradient sums and optimizer state in fp32."""
    data: DataSettings
    """Sequences, masks and vocabulary."""
    encoder: EncoderSettings
    """The network."""
    objective: ObjectiveSettings
    """What the model predicts."""
    optimizer: OptimizerSettings
    """How gradients become updates."""
    schedule: ScheduleSettings
    """Learning rate over steps."""
    batch: BatchSettings
    """Sequences per step."""
    steps: Count
    """Optimizer steps of the whole run."""
    phases: tuple[EarlierPhase, ...]
    """Phases before the last one, in order. The last phase takes the remaining `steps`, with the
    length and batch size of `data` and `batch`. Set it as `phases=[]` or `phases.0.steps=900`; a
    phase's own `settings` as `phases.0.settings=["data.masks.rate=0.3"]`."""
    spikes: SpikeSettings
    """What counts as a loss spike, and how the run responds."""
    validation: ValidationSettings
    """When the held-out loss is measured."""
    checkpoint: CheckpointSettings
    """When checkpoints are saved, and which are kept."""
    logging: LoggingSettings
    """When metrics are logged, and when a rank counts as hung."""

    def __post_init__(self) -> None:
        check(self)

    def contradictions(self) -> Iterator[str]:
        """A name that is not a directory name, and sections that do not fit together."""
        if not re.fullmatch(r"[\w.-]+", self.name):
            legal = re.sub(r"[^\w.-]+", "-", self.name) or "run"
            yield (
                f"name={self.name!r} cannot name a directory, which has letters, digits, '_', '.' "
                f"and '-'; add --set name={legal}"
            )
        yield from attention_fits(self.batch, self.data, self.objective)
        yield from label_fits(self.data, self.objective)
        yield from positions_suffice(self.encoder, self.data, self.phases)
        yield from objective_fits(self.objective, self.data)
        yield from generator_fits(self.objective, self.encoder, self.data)
        yield from schedule_fits(self.schedule, self.optimizer, self.steps)
        yield from phases_fit(self.phases, self.data, self.steps)
        yield from batch_warmup_fits(self.batch, self.phases, self.steps)
        yield from phase_settings_fit(self)
