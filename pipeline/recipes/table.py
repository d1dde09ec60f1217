"""The recipes as a table for a terminal: grouped by family, one line per recipe.

The text is the first line of a docstring: that of the module for a family, that of the function
for a recipe.
"""

from __future__ import annotations

import inspect
import sys
from itertools import groupby

from pipeline.recipes import RECIPES


def format_recipes() -> str:
    """A heading per family, and a line per recipe with its name and description."""
    width = max(map(len, RECIPES))
    lines = []
    for module, recipes in groupby(RECIPES.values(), key=lambda recipe: recipe.__module__):
        lines.append(_first_line(sys.modules[module]))
        lines += [f"  {recipe.__name__:{width}}  {_first_line(recipe)}" for recipe in recipes]
    return "\n".join(lines)


def _first_line(described: object) -> str:
    first, *_ = (inspect.getdoc(described) or "").splitlines()
    return first
