"""A run directory, read for a report: state, settings, curves, and the data it was trained on.

Nothing is written, no weights are read, and torch is not needed. What is missing or damaged is a
line in `problems`; a report is made of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.errors import PipelineError
from pipeline.base.null_device import refuse_null
from pipeline.base.typed_json import read_object
from pipeline.config.run import Run
from pipeline.config.settings import from_dict, to_dict
from pipeline.data.shards.manifest import Manifest, read_manifest
from pipeline.recipes import RECIPES, recipe
from pipeline.reporting.curves import RunCurves, parse_time, read_curves
from pipeline.training.run_directory.history import HISTORY, lives
from pipeline.training.run_directory.run_status import METRICS, PLAN, RECORD, RunStatus, read_status

MOST_BYTES = 1 << 26
"""Largest history that is read."""


@dataclass(slots=True)
class RunSummary:
    """The parts of a run that a report shows."""

    path: Path
    status: RunStatus
    curves: RunCurves
    record: dict[str, Any]
    """The content of run.json; empty if it cannot be read."""
    settings: dict[str, Any]
    """Dotted path -> value; empty if they cannot be read."""
    starts: list[int] = field(default_factory=list)
    """Steps after which the run was started again."""
    data: list[tuple[str, Manifest | None]] = field(default_factory=list)
    """Directory and manifest of each dataset; None where it is not there any more."""
    plan: dict[str, Any] = field(default_factory=dict)
    """The content of plan.json."""
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    @property
    def recipe(self) -> str:
        """Name of the run, by default its recipe's."""
        return self.status.name


def read_run(path: Path, last_step: float = math.inf) -> RunSummary:
    """Read the files of a run directory, its metrics up to `last_step`.

    Raises CheckpointError for a run on the null device.
    """
    status = read_status(path)
    found = RunSummary(path, status, read_curves(path / METRICS, last_step), {}, {})
    found.problems += status.problems
    if found.curves.damaged:
        found.problems.append(f"{path / METRICS}: {found.curves.damaged:,} lines cannot be read")
    for name, into in ((RECORD, found.record), (PLAN, found.plan)):
        if (path / name).exists():
            try:
                into.update(read_object(path / name))
            except (ValueError, OSError) as error:
                found.problems.append(f"{path / name} cannot be read: {error}")
    refuse_null(found.record.get("device"), path)
    _check_record(found)
    _read_settings(found)
    _read_data(found)
    found.starts = _starts(path, found.curves)
    return found


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> value, as `--set` names them; a list is one value."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def changes(settings: Mapping[str, Any], name: str) -> list[tuple[str, Any, Any]]:
    """Path, the recipe's value and the run's, where they differ; empty for an unknown recipe."""
    if name not in RECIPES or not settings:
        return []
    published = flat(to_dict(recipe(name)))
    return [
        (path, published.get(path), value)
        for path, value in settings.items()
        if path != "name" and published.get(path) != value
    ]


def _check_record(found: RunSummary) -> None:
    """Leave out entries of the record that are not what a report shows."""
    for name, kind in (("versions", dict), ("initial_weights", dict), ("plans", list)):
        value = found.record.get(name, kind())
        is_sound = isinstance(value, kind)
        if kind is list and is_sound:
            is_sound = all(isinstance(entry, dict) for entry in value)
        if not is_sound:
            found.problems.append(f"{found.path / RECORD}: {name} is {str(value)[:40]}")
            del found.record[name]


def _read_settings(found: RunSummary) -> None:
    try:
        # through Run, whose defaults fill in settings that older files lack, so that runs compare
        found.settings = flat(to_dict(from_dict(Run, found.record.get("run", {}))))
    except (PipelineError, ValueError, TypeError, AttributeError) as error:
        if found.record:
            first = str(error).split("\n")[0]
            found.problems.append(f"{found.path / RECORD}: settings cannot be read: {first}")


def _read_data(found: RunSummary) -> None:
    parts = found.record.get("data")
    for part in parts if isinstance(parts, list) else []:
        directory = str(part.get("directory", "")) if isinstance(part, dict) else ""
        try:
            found.data.append((directory, read_manifest(Path(directory))))
        except (PipelineError, OSError, ValueError) as error:
            found.data.append((directory, None))
            found.problems.append(f"data: {error}")


def _starts(path: Path, curves: RunCurves) -> list[int]:
    """Steps that the metrics had reached when later lives began."""
    history = path / HISTORY
    if not history.is_file() or history.stat().st_size > MOST_BYTES:
        return []
    lines = history.read_text(errors="replace").splitlines()
    # the first start is not a restart
    begins = [parse_time(life.began_at) for life in lives(lines)[1:]]
    steps = [curves.step_at(time) for time in begins if time is not None]
    return [step for step in steps if step is not None]
