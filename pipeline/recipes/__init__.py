"""Recipes by name: each is a function that returns a complete Run."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.errors import ConfigError
from pipeline.recipes import roberta
from pipeline.run import Run
from pipeline.settings import nearest

RECIPES: dict[str, Callable[[], Run]] = {
    "roberta_tiny": roberta.roberta_tiny,
    "roberta_base": roberta.roberta_base,
    "roberta_large": roberta.roberta_large,
    "roberta_tiny_published": roberta.roberta_tiny_published,
    "roberta_base_published": roberta.roberta_base_published,
    "roberta_large_published": roberta.roberta_large_published,
}


def recipe(name: str) -> Run:
    """The Run of a recipe; ConfigError with the nearest name when there is none of that name."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}; did you mean {nearest(name, RECIPES)}?")
    return RECIPES[name]()
