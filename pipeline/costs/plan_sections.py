"""The sections of a plan, each some estimates -> lines for a reader, or one JSON object."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.base.durations import digits_and_unit
from pipeline.base.typed_json import as_json
from pipeline.costs.estimate import Estimate
from pipeline.planning.mixtures import CorpusUse

NOT_COUNTED = (
    "NCCL's buffers and the CUDA context, unless a line of memory names them",
    "what the compiler fuses away; CUDA graphs; fragmentation; other programs on the device",
    "validation, checkpoints, restarts, waits for the queue and for a slow file system",
)
MOST_COLUMNS = 160
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class PlanSection:
    """Some estimates under a title."""

    title: str
    """One word, the name of the section in JSON."""
    about: str
    """The rest of the heading."""
    estimates: Sequence[Estimate]


@dataclass(frozen=True, slots=True)
class CostPlan:
    """The whole output of `pipeline.plan`."""

    name: str
    machines: str
    plans: Sequence[Mapping[str, Any]]
    """The plan of each phase, as in run.json."""
    lines: Sequence[str]
    """The same in words, as `pipeline.train --dry-run` prints them."""
    mixtures: Sequence[Sequence[CorpusUse]]
    """Use of the corpora of each phase's mixture; empty without one."""
    sections: Sequence[PlanSection]
    warnings: Sequence[str]
    answer: Sequence[tuple[str, str]] = ()
    """Answers to what users ask first, by name: hours, GPU-hours, cost, memory, a step's bound."""

    def to_json(self) -> str:
        """One object: name, machines, answer, plans, mixtures, sections, warnings."""
        content = {
            "name": self.name,
            "machines": self.machines,
            "answer": dict(self.answer),
            "plans": self.plans,
            "mixtures": [[asdict(use) for use in phase] for phase in self.mixtures],
            "sections": {
                section.title: [asdict(part) for part in section.estimates]
                for section in self.sections
            },
            "warnings": self.warnings,
            "not_counted": NOT_COUNTED,
        }
        return as_json(content, indent=1)

    def to_lines(self) -> list[str]:
        """The plan in lines for a terminal or a log."""
        width = min(MOST_COLUMNS, shutil.get_terminal_size((120, 24)).columns)
        found = [f"{self.name} on {self.machines}"]
        found += [f"  {name:10} {words}" for name, words in self.answer]
        found += ["", "plan: the batch and the data", *(f"  {line}" for line in self.lines)]
        for section in self.sections:
            if section.estimates:
                found += ["", f"{section.title}: {section.about}"]
                found += [line for part in section.estimates for line in _lines(part, width)]
        found += ["", "not counted", *(f"  {line}" for line in NOT_COUNTED)]
        return found


def format_value(value: float, unit: str) -> str:
    """`1.42 GB`, `12.3 ms`, `3.1 h`, `7.5 %`: a value with its unit, three digits."""
    return " ".join(filter(None, _scale(value, unit)))


def _scale(value: float, unit: str) -> tuple[str, str]:
    """Digits and unit, in a size that reads well."""
    if unit == "share":
        return f"{100 * value:.3g}", "%"
    if unit == "hours" or unit == "seconds":
        return digits_and_unit(value * (3600 if unit == "hours" else 1))
    if unit in ("bytes", "tokens"):
        size, prefix = next((item for item in _UNITS if value >= item[0]), (1, ""))
        return f"{value / size:.3g}", f"{prefix}B" if unit == "bytes" else prefix
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}", unit


def _lines(part: Estimate, width: int) -> list[str]:
    """A line of an estimate, and more if what it assumes does not fit."""
    start = f"  {part.name:29} {format_value(part.value, part.unit):>12}  {band(part):20} "
    text = f"{part.basis}: {part.assumption}"
    return textwrap.wrap(
        text, max(width, len(start) + 30), initial_indent=start,
        # Options and paths stay whole.
        subsequent_indent=" " * len(start), break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def band(part: Estimate) -> str:
    """`310 to 555 ms`; empty for an exact value."""
    if part.least == part.most:
        return ""
    (least, one), (most, other) = _scale(part.least, part.unit), _scale(part.most, part.unit)
    # The unit is said once if both ends have the same.
    least = least if one == other else f"{least} {one}"
    return f"{least} to {most} {other}".strip()
