"""The memory that an engine holds for its model, counted from its tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from pipeline.training.optimizer.engine import ZeroEngine


def held_bytes(engine: ZeroEngine) -> int:
    """Bytes of weights, gradients and optimizer state of this rank, each storage once.

    Call this between a micro-batch and the next step, which may drop the gradients.
    """
    storages = {part.data_ptr(): part.nbytes() for part in map(_storage, _tensors(engine))}
    return sum(storages.values())


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


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()
