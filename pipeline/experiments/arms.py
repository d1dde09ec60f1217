"""Sources of a comparison's arms: a table of a paper, a Python file, or the command line.

A file of arms is a Python program of the user's own, run as such. It defines ARMS, the baseline
first:

    from pipeline.experiments.arms import Arm

    ARMS = [
        Arm("heads-2", "roberta_tiny", ()),
        Arm("heads-4", "roberta_tiny", ("encoder.heads=4",)),
    ]
"""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.base.errors import ConfigError, PipelineError, described
from pipeline.config.settings import find_near
from pipeline.experiments.tables import albert, electra, modern, roberta, spanbert
from pipeline.experiments.tables.table import Arm, Table, run_of

__all__ = [
    "SCALES", "TABLES", "Arm", "Table", "arms_from_arguments", "arms_from_file", "run_of", "table",
]  # fmt: skip

SCALES = ("smoke", "mini", "base")
"""Minutes on two cores, hours on two cores, a cluster: `_tiny`, `_mini` and `_base` recipes."""

_TABLES: dict[str, Callable[[str], Table]] = {
    "albert/pair": albert.pair,
    "albert/sharing": albert.sharing,
    "electra/objective": electra.objective,
    "modern/architecture": modern.architecture,
    "roberta/formats": roberta.formats,
    "roberta/masking": roberta.masking,
    "spanbert/masking": spanbert.masking,
}
TABLES = sorted(_TABLES)
"""Names of the papers' tables."""


def table(name: str, scale: str) -> Table:
    """A paper's table with the recipes of a scale. Raises ConfigError if either is unknown."""
    if name not in _TABLES:
        near = find_near(name, TABLES)
        advice = f"did you mean {near}?" if near else f"choose one of {', '.join(TABLES)}"
        raise ConfigError(f"unknown table {name!r}; {advice}")
    if scale not in SCALES:
        raise ConfigError(f"unknown scale {scale!r}; choose one of {', '.join(SCALES)}")
    return _TABLES[name](scale)


def arms_from_file(path: str | Path) -> Table:
    """The arms that a Python file defines. Raises ConfigError if it fails or defines none."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; give a Python file that defines ARMS")
    try:
        arms = runpy.run_path(str(path)).get("ARMS")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's own code raises, SystemExit too
        ours = isinstance(error, PipelineError)
        said = str(error) if ours else f"{described(error)}; fix the file"
        # one line, whatever was raised
        raise ConfigError(f"{path}{_line_of(error, path)}: {' '.join(said.split())}") from error
    if not isinstance(arms, list | tuple) or not all(isinstance(arm, Arm) for arm in arms):
        found = "defines no ARMS" if arms is None else "has an ARMS that is not a list of Arm"
        raise ConfigError(
            f'{path} {found}; write ARMS = [Arm("one", "roberta_tiny", ()), ...] after `from '
            "pipeline.experiments.arms import Arm`"
        )
    for number, arm in enumerate(arms):
        # dataclasses check no types: a number for a name would fail far from here
        if wrong := _wrong_field(arm):
            raise ConfigError(f"{path}: ARMS[{number}] has {wrong}; fix the file")
    return _own(str(path), tuple(arms))


def arms_from_arguments(recipe: str, arms: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Arms of one recipe by name and changes, the baseline first."""
    return _own(
        f"--recipe {recipe}", tuple(Arm(name, recipe, tuple(changes)) for name, changes in arms)
    )


def _own(name: str, arms: tuple[Arm, ...]) -> Table:
    """A table of the user's own arms."""
    return Table(
        name=name,
        title=", ".join(arm.name for arm in arms),
        source="",
        baseline=arms[0].name if arms else "",
        arms=arms,
        measures=(),
        note="",
    )


def _wrong_field(arm: Arm) -> str:
    """The first field of an arm that is of another type than `Arm` says; empty if all are right."""
    for name in ("name", "recipe", "source"):
        if not isinstance(value := getattr(arm, name), str):
            return f"{name}={value!r}, which is not text"
    changes = arm.changes
    if not isinstance(changes, list | tuple) or not all(isinstance(one, str) for one in changes):
        return f"changes={changes!r}, which is not a tuple of path=value"
    published = arm.published
    if not isinstance(published, Mapping) or not all(
        isinstance(name, str) and isinstance(value, int | float)
        for name, value in published.items()
    ):
        return f"published={published!r}, which has no number by measure"
    return ""


def _line_of(error: BaseException, path: Path) -> str:
    """`, line 3` if the error has come out of a line of this file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    # a SyntaxError has no frame: nothing of the file ran
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""
