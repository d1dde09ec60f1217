"""Run: one frozen value that describes a training run completely.

Each setting is documented below its field, here and in `data_settings.py` and
`training_settings.py`. Its value, with the source, is in `recipes/`. No field has a default, so a
value comes from one place.

A Run checks itself when it is built: ranges are on the fields, rules within a section in that
section, rules across sections in `rules.py`. One error reports all problems.

An earlier phase has its own length and batch, and may change the settings in `CHANGEABLE` by
assignments as `--set` takes them. `in_phase` gives the settings of its steps: a Run of one phase.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

from pipeline.base.errors import ConfigError
from pipeline.config.data_settings import DataSettings
from pipeline.config.encoder_settings import EncoderSettings
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
from pipeline.config.schema import Count, Legacy, Range, Seed, check
from pipeline.config.settings import override
from pipeline.config.training_settings import (
    BatchSettings,
    CheckpointSettings,
    EarlierPhase,
    LoggingSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
    SpikeSettings,
    ValidationSettings,
)

CHANGEABLE = (
    "data.masking", "data.masks", "data.mask_mode", "data.duplicates", "batch.mixture",
    "batch.mixture_exponent", "batch.mixture_over", "batch.corpora", "encoder.dropout",
    "encoder.attention_dropout", "encoder.rotary_base", "encoder.local_rotary_base",
)  # fmt: skip
"""Settings, and a section, that may differ between phases."""


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
    epochs: Annotated[float, Range("[0, 1e6]"), Legacy(0.0)]
    """Passes over the training rows: `steps` becomes the most that `train` can do in so many, and
    the steps of warm-ups, decay and phases keep their shares. 0: `steps` as it is."""
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
    """When and where metrics are logged, and when a rank counts as hung."""

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
        yield from objective_fits(self.objective, self.data, self.encoder)
        yield from generator_fits(self.objective, self.encoder, self.data)
        yield from schedule_fits(self.schedule, self.optimizer, self.steps)
        yield from phases_fit(self.phases, self.data, self.steps)
        yield from batch_warmup_fits(self.batch, self.phases, self.steps)
        yield from _phase_settings_fit(self)


def in_phase(run: Run, phase: EarlierPhase, first: bool) -> Run:
    """The settings of a run in one of its phases; first: whether the run starts with it.

    Raises ConfigError if they contradict each other.
    """
    # A device holds as many tokens in every phase.
    tokens = run.batch.per_device * run.data.sequence_length
    batch = replace(
        run.batch,
        sequences=phase.sequences,
        per_device=max(1, tokens // phase.sequence_length),
        warmup_steps=run.batch.warmup_steps if first else 0,
    )
    data = replace(run.data, sequence_length=phase.sequence_length)
    changed = replace(run, data=data, batch=batch, phases=())
    return override(changed, phase.settings) if phase.settings else changed


def _phase_settings_fit(run: Run) -> Iterator[str]:
    """Each phase changes only what may change, to values that fit the rest of the run."""
    changing = [(index, phase) for index, phase in enumerate(run.phases) if phase.settings]
    # Problems of the run itself are reported once, and not for each phase again.
    known = _problems(partial(replace, run, phases=())) if changing else []
    for index, phase in changing:
        free = [setting for setting in phase.settings if _is_changeable(setting)]
        for setting in phase.settings:
            if setting not in free:
                yield (
                    f"phases.{index}.settings has {setting}, but a phase may change only "
                    f"{', '.join(CHANGEABLE)}; add --set 'phases.{index}.settings="
                    f"{json.dumps(free)}', and --set {setting} to have it in all phases"
                )
        # Otherwise the remedy above comes first, and changes what there is to check.
        if len(free) == len(phase.settings):
            for problem in _problems(partial(in_phase, run, phase, index == 0)):
                if problem not in known:
                    yield f"phases.{index}.settings (add there what --set names): {problem}"


def _is_changeable(setting: str) -> bool:
    path = setting.partition("=")[0].strip()
    return any(path == name or path.startswith(f"{name}.") for name in CHANGEABLE)


def _problems(build: Callable[[], Run]) -> list[str]:
    try:
        build()
    except ConfigError as error:
        return list(error.problems) or [str(error)]
    return []
