"""What an engine holds for its model: bytes, counted from its tensors, and the whole weights."""

import math
from collections.abc import Iterator

import torch
import torch.distributed as dist

from pipeline.training.optimizer.engine import ZeroEngine


def held_bytes(engine: ZeroEngine) -> int:
    """Bytes of weights, gradients and optimizer state of this rank, each storage once.

    Call this between a micro-batch and the next step, which may drop the gradients.
    """
    storages = [tensor.untyped_storage() for tensor in _tensors(engine)]
    return sum({part.data_ptr(): part.nbytes() for part in storages}.values())


def whole_weights(engine: ZeroEngine) -> dict[str, torch.Tensor]:
    """fp32 weights by logical parameter, flat, assembled from all ranks' fragments."""
    sizes = {record.name: math.prod(record.shape) for record in engine.optimizer.logical}
    flat = torch.zeros(sum(sizes.values()))
    found = dict(zip(sizes, flat.split([*sizes.values()]), strict=True))
    for part in engine.optimizer.fragments():
        found[part.name][part.start : part.start + part.weight.numel()] = part.weight
    if engine.stage:
        dist.all_reduce(flat)
    return found


def _tensors(engine: ZeroEngine) -> Iterator[torch.Tensor]:
    optimizer = engine.optimizer
    for parameter in engine.module.parameters():
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad
    for group in optimizer.param_groups:
        yield from group["params"]
    for state in optimizer.state.values():
        yield from state.values()
