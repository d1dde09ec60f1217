"""The recipes as a table for a terminal, by family, each with a line that says what it is.

The words are the first lines of the docstrings: a family's from its module, a recipe's from its
function.
"""

from __future__ import annotations

import inspect
import sys
from itertools import groupby

from pipeline.recipes import RECIPES


def format_recipes() -> str:
    """A heading for each family, and a line for each of its recipes: name and what it is."""
    width = max(map(len, RECIPES))
    lines = []
    for module, recipes in groupby(RECIPES.values(), key=lambda recipe: recipe.__module__):
        lines.append(_first_line(sys.modules[module]))
        lines += [f"  {recipe.__name__:{width}}  {_first_line(recipe)}" for recipe in recipes]
    return "\n".join(lines)


def _first_line(described: object) -> str:
    first, *_ = (inspect.getdoc(described) or "").splitlines()
    return first
