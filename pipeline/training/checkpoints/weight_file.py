"""Weights -> a safetensors file, the one way in which all commands write them.

We write the format ourselves: a full disk is an OSError like any other, the file is synced before
it gets its name, and writing takes no more memory than a copy of one tensor. The bytes are those
that `safetensors` writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline.base.errors import CheckpointError
from pipeline.base.files import whole_file

ITEM_BYTES = 4


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write fp32 tensors by name.

    Raises DataError if the disk is full or not writable, CheckpointError as `require_finite`.
    """
    # As the library orders tensors of one type.
    entries = sorted(weights.items())
    require_finite(entries, path)
    size = sum(weight.numel() for weight in weights.values()) * ITEM_BYTES
    with whole_file(path, size=size) as temporary, temporary.open("wb") as file:
        for part in weight_parts(entries):
            file.write(part)


def weight_parts(entries: Sequence[tuple[str, Tensor]]) -> Iterator[bytes | memoryview]:
    """The parts of a safetensors file: its header, then the content of each fp32 tensor."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # transformers asks for it
    place = 0
    for name, weight in entries:
        size = math.prod(weight.shape) * ITEM_BYTES
        header[name] = {
            "dtype": "F32",
            "shape": list(weight.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # The library pads, too: the tensors begin at a multiple of 8.
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name, weight in entries:
        assert weight.dtype == torch.float32, name  # the header says F32 of all
        yield memory_of(weight.detach().to("cpu").contiguous())


def require_finite(weights: Iterable[tuple[str, Tensor]], where: Path) -> None:
    """Raise CheckpointError that names the first weight with a number that is NaN or infinite.

    where: the file or checkpoint of the weights.
    """
    for name, weight in weights:
        if not is_finite(weight):
            raise CheckpointError(
                f"{where} has weights that are not finite: {name} has a NaN or an infinity, as "
                "after training that broke; give an earlier checkpoint, or another copy"
            )


def is_finite(tensor: Tensor) -> bool:
    """True if no number of a tensor is NaN or infinite: one pass, which allocates nothing."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    # Of numbers with a NaN among them both ends are NaN. `isfinite` takes twelve times as long.
    return all(math.isfinite(end) for end in tensor.aminmax())


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    content: memoryview = tensor.view(-1).view(torch.uint8).numpy().data
    return content
