"""A table of arms: runs that differ in one choice, and what a paper reports for each.

An arm is a recipe and its changes; `run_of` makes the run. A table names the arm that the others
are compared with. All arms of a table read the same number of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.recipes import recipe


@dataclass(frozen=True)
class Arm:
    """One row of a table."""

    name: str
    """Its name in the table; part of directory names."""
    recipe: str
    """Name of the recipe that it starts from."""
    changes: tuple[str, ...]
    """Its own settings as path=value, as `--set` takes them."""
    source: str = ""
    """Paper, table and row of `published`, or only of the choice."""
    published: Mapping[str, float] = field(default_factory=dict)
    """The paper's figures by measure, as printed there, at the paper's scale."""


@dataclass(frozen=True)
class Table:
    """Arms to compare. Raises ConfigError if they cannot be told apart or compared."""

    name: str
    """Its name for the command, or the file of its arms."""
    title: str
    """Subject of the comparison, in a few words."""
    source: str
    """Paper and table; empty for arms of a user."""
    baseline: str
    """Name of the arm that the others are compared with."""
    arms: tuple[Arm, ...]
    measures: tuple[str, ...]
    """Measures of the paper, in the order of its columns; the keys of `published`."""
    note: str
    """Advice for reading its results; empty if there is none."""

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if len(names) < 2:
            raise ConfigError(
                f"{self.name} has {len(names)} arms, and a comparison needs two; add another arm"
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"{self.name} has several arms called {', '.join(twice)}; rename one")
        # a word character first: ".." would leave the output
        if illegal := [name for name in names if not re.fullmatch(r"\w[\w.-]*", name)]:
            raise ConfigError(
                f"{self.name} has an arm called {illegal[0]!r}, which cannot name a directory; use "
                "letters, digits, '_', '.' and '-'"
            )
        if self.baseline not in names:
            raise ConfigError(
                f"{self.name} has no arm called {self.baseline}, its baseline; choose one of "
                f"{', '.join(names)}"
            )


def run_of(arm: Arm) -> Run:
    """The recipe with the changes. Raises ConfigError with all contradictions in one line."""
    try:
        return override(recipe(arm.recipe), arm.changes)
    except ConfigError as error:
        problems = "; also ".join(error.problems or (str(error),))
        raise ConfigError(f"arm {arm.name} of {arm.recipe}: {problems}") from error
