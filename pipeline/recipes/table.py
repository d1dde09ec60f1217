"""The recipes as a table for a terminal: grouped by family, one line per recipe.

The text is the first line of a docstring: that of the module for a family, that of the function
for a recipe.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from itertools import groupby

from pipeline.config.run import Run
from pipeline.recipes import RECIPES


def format_recipes() -> str:
    """A heading per family, and a line per recipe with its name and description."""
    width = max(map(len, RECIPES))
    lines = []
    for family, recipes in groupby(RECIPES.values(), key=_family):
        lines.append(_first_line(import_module(f"pipeline.recipes.{family}")))
        lines += [f"  {recipe.__name__:{width}}  {_first_line(recipe)}" for recipe in recipes]
    return "\n".join(lines)


def _family(recipe: Callable[[], Run]) -> str:
    family, *_ = recipe.__name__.split("_")
    return family


def _first_line(described: object) -> str:
    first, *_ = (inspect.getdoc(described) or "").splitlines()
    return first
