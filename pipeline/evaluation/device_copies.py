"""Micro-batches in pinned memory -> the same ones on the GPU, each copied while another computes.

1. Read the next micro-batch and start its copy, on a stream of its own that waits for no kernel.
2. Hand out the current one: kernels wait on the device for its copy, the host does not wait.

At most one micro-batch is ahead, some hundred kilobytes, and none of the next step: only what is
given is read, the micro-batches of a step or of a validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch

from pipeline.loading.micro_batch import MicroBatch


def on_device(batches: Iterator[MicroBatch], device: torch.device) -> Iterator[MicroBatch]:
    """The micro-batches on `device`, in the same order; on a CPU they are passed through."""
    return _copy_ahead(batches, device) if device.type == "cuda" else batches


def _copy_ahead(batches: Iterator[MicroBatch], device: torch.device) -> Iterator[MicroBatch]:
    stream = _copy_stream(device)
    ahead: tuple[MicroBatch, torch.cuda.Event] | None = None
    for batch in batches:
        # The source may be dropped at once: torch's cache of pinned memory records an event with
        # each copy, and gives a block out again only when it has passed.
        with torch.cuda.stream(stream):
            coming = batch.to(device), stream.record_event()
        if ahead:
            yield _receive(*ahead)
        ahead = coming
    if ahead:
        yield _receive(*ahead)


def _receive(batch: MicroBatch, copied: torch.cuda.Event) -> MicroBatch:
    """The batch, for kernels of the current stream."""
    stream = torch.cuda.current_stream()
    stream.wait_event(copied)
    for tensor in batch.tensors().values():
        # It belongs to the stream of copies, which would overwrite it as soon as the host drops
        # it, while kernels that read it still wait for their turn.
        tensor.record_stream(stream)
    return batch


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all: the allocator keeps separate memory for each stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
