"""The plain training loop, as a reference: one process, no DeepSpeed, no fragments.

If its batch is cut into the chunks of ranks and micro-batches, and their gradients are averaged as
over ranks, it shows how far rounding alone moves the result: the floor.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from pipeline.config.run import Run
from pipeline.planning.schedule import learning_rate
from pipeline.training.optimizer.fragments import FragmentedParameter
from tests.pipeline.training.formulas import Weight, formula_of

Weights = dict[str, torch.Tensor]
"""Weights by logical parameter, flattened."""


def train(
    model: nn.Module,
    run: Run,
    logical: Sequence[FragmentedParameter],
    steps: Iterable[Iterable[torch.Tensor]],
    chunks: int,
) -> Weights:
    """The weights after `steps` under the optimizer and schedule of `run`.

    steps: the loss of each step as chunks that add up to it, computed on demand.
    """
    optimizer, formula = run.optimizer, formula_of(run.optimizer)
    parameters = dict(model.named_parameters())
    masters = whole(model, logical)
    if run.precision == "bf16":
        model.bfloat16()
    moments = {
        r.name: (torch.zeros_like(masters[r.name]), torch.zeros_like(masters[r.name]))
        for r in logical
    }
    for step, losses in enumerate(steps, 1):
        sums = {name: torch.zeros(p.shape, dtype=wide(p)) for name, p in parameters.items()}
        for loss in losses:
            (loss * chunks).backward()
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    sums[name] += parameter.grad
                    parameter.grad = None
        # a mean, as over ranks: dividing by 3 rounds, and Adam amplifies that like rounding in a
        # gradient
        gradients = {r.name: view(sums[r.parameter_name], r) / chunks for r in logical}
        norm = torch.cat(list(gradients.values())).norm()
        scale = min(1.0, optimizer.clip_norm / (norm + 1e-6)) if optimizer.clip_norm else 1.0
        rate = learning_rate(run, step)
        for record in logical:
            weight = Weight(
                masters[record.name],
                *moments[record.name],
                record.decay or optimizer.decay_vectors,
                record.adapt or optimizer.adapt_vectors,
            )
            after = formula(weight, gradients[record.name] * scale, step, rate, optimizer)
            weight.value.copy_(after)
            view(parameters[record.parameter_name], record).copy_(after)
    return masters


def whole(model: nn.Module, logical: Sequence[FragmentedParameter]) -> Weights:
    """A model's weights, copied."""
    parameters = dict(model.named_parameters())
    return {r.name: view(parameters[r.parameter_name], r).clone() for r in logical}


def view(tensor: torch.Tensor, record: FragmentedParameter) -> torch.Tensor:
    """A logical parameter's elements in a whole parameter."""
    size = math.prod(record.shape)
    return tensor.detach().view(-1)[record.start : record.start + size]


def wide(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of sums: fp32, or fp64 for an fp64 model."""
    return torch.promote_types(tensor.dtype, torch.float32)


def distance(ours: Weights, reference: Weights, start: Mapping[str, torch.Tensor]) -> float:
    """||ours - reference|| / how far the reference moved, over what `start` holds."""
    apart = moved = 0.0
    for name, initial in start.items():
        weight = reference[name].double()
        apart += float((ours[name].double() - weight).square().sum())
        moved += float((initial.double() - weight).square().sum())
    return math.sqrt(apart / moved)
