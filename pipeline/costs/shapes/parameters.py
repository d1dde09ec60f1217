"""A Run -> its model without storage, to read the sizes of its parameters from."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from model.hugging_face.conversion import Model, logical_parameters
from pipeline.config.run import Run
from pipeline.planning.build import build_model


def parameter_sizes(run: Run) -> tuple[int, ...]:
    """Elements of each trained parameter, padding words included, in the model's order."""
    return _sizes(run)[0]


def logical_count(run: Run) -> int:
    """Weights that the optimizer treats as one each, see `optimizer.fragments`."""
    return _sizes(run)[1]


def shaped_model(run: Run) -> Model:
    """The model of a run, for devices on which tensors have only shapes."""
    encoder = replace(run.encoder, initializer="normal")  # others look at values, and none are here
    return build_model(replace(run, encoder=encoder), seed=0)


class _Unfilled(TorchFunctionMode):
    """Draws no initial values: torch would import its compiler for them, which takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func.__name__ == "normal_":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@functools.cache
def _sizes(run: Run) -> tuple[tuple[int, ...], int]:
    with torch.device("meta"), _Unfilled():
        model = shaped_model(run)
    sizes = tuple(parameter.numel() for parameter in model.parameters())
    return sizes, len(list(logical_parameters(model)))
