"""A Run -> its model without storage, to read the sizes of its parameters from."""

from __future__ import annotations

import functools
from dataclasses import replace

from torch._subclasses.fake_tensor import FakeTensorMode

from model.hugging_face.conversion import Model, logical_parameters
from pipeline.config.run import Run
from pipeline.training.weights.build import build_model


def parameter_sizes(run: Run) -> tuple[int, ...]:
    """Elements of each trained parameter, padding words included, in the model's order."""
    return _sizes(run)[0]


def logical_count(run: Run) -> int:
    """Weights that the optimizer treats as one each, see `optimizer.fragments`."""
    return _sizes(run)[1]


def fake_model(run: Run, mode: FakeTensorMode) -> Model:
    """The model of a run, of tensors with shapes and without storage."""
    encoder = replace(run.encoder, initializer="normal")  # others look at values, which are fake
    with mode:
        return build_model(replace(run, encoder=encoder), seed=0)


@functools.cache
def _sizes(run: Run) -> tuple[tuple[int, ...], int]:
    model = fake_model(run, FakeTensorMode())
    sizes = tuple(parameter.numel() for parameter in model.parameters())
    return sizes, len(list(logical_parameters(model)))
