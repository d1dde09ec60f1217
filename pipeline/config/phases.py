"""An earlier phase of a Run -> the settings that hold in its steps.

A phase has its own length and batch, and may change the settings in `CHANGEABLE` by assignments as
`--set` takes them. The result is a Run of one phase, which checks itself like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pipeline.config.settings import override
from pipeline.config.training_settings import EarlierPhase
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.config.run import Run

CHANGEABLE = (
    "data.masking", "data.masks", "data.mask_mode", "data.duplicates", "batch.mixture",
    "encoder.dropout",
)  # fmt: skip
"""Settings, and a section, that may differ between phases."""


def in_phase(run: Run, phase: EarlierPhase, first: bool) -> Run:
    """The settings of a run in one of its phases; first: whether the run starts with it.

    Raises ConfigError if they contradict each other.
    """
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


def phase_settings_fit(run: Run) -> Iterator[str]:
    """Each phase changes only what may change, to values that fit the rest of the run."""
    changing = [(index, phase) for index, phase in enumerate(run.phases) if phase.settings]
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
