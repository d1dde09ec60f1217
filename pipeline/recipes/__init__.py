"""Recipes by name: functions that return a complete Run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from itertools import groupby

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import find_near
from pipeline.recipes import albert, babylm, bert, electra, mini, modernbert, roberta, spanbert

RECIPES: dict[str, Callable[[], Run]] = {
    function.__name__: function
    for function in (
        roberta.roberta_tiny,
        mini.roberta_mini,
        roberta.roberta_base,
        roberta.roberta_large,
        roberta.roberta_tiny_published,
        roberta.roberta_base_published,
        roberta.roberta_large_published,
        bert.bert_tiny,
        mini.bert_mini,
        bert.bert_base,
        bert.bert_large,
        bert.bert_tiny_published,
        bert.bert_base_published,
        bert.bert_large_published,
        albert.albert_tiny,
        mini.albert_mini,
        albert.albert_base,
        albert.albert_large,
        albert.albert_xlarge,
        albert.albert_xxlarge,
        albert.albert_base_v1_published,
        albert.albert_large_v1_published,
        albert.albert_xlarge_v1_published,
        albert.albert_xxlarge_v1_published,
        electra.electra_tiny,
        mini.electra_mini,
        electra.electra_small,
        electra.electra_base,
        electra.electra_large,
        electra.electra_tiny_published,
        electra.electra_small_published,
        electra.electra_base_published,
        electra.electra_large_published,
        spanbert.spanbert_tiny,
        mini.spanbert_mini,
        spanbert.spanbert_base,
        spanbert.spanbert_large,
        spanbert.spanbert_tiny_published,
        spanbert.spanbert_base_published,
        spanbert.spanbert_large_published,
        modernbert.modernbert_tiny,
        mini.modernbert_mini,
        modernbert.modernbert_base,
        modernbert.modernbert_large,
        modernbert.modernbert_base_published,
        modernbert.modernbert_large_published,
        babylm.babylm_small,
        babylm.babylm_base,
    )
}


def recipe(name: str) -> Run:
    """The Run of a recipe. Raises ConfigError, naming the nearest recipe, if it does not exist."""
    if name not in RECIPES:
        near = find_near(name, RECIPES)
        advice = f"did you mean {near}?" if near else "`tenfold recipes` lists them all"
        raise ConfigError(f"unknown recipe {name!r}; {advice}")
    return RECIPES[name]()


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
