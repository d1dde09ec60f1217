"""Weights -> a safetensors file, the one way in which all commands write them.

We write the format ourselves: a full disk is an OSError like any other, the file is synced before
it gets its name, and writing takes no more memory than a copy of one tensor. The bytes are those
that `safetensors` writes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline.base.files import whole_file

ITEM_BYTES = 4


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write fp32 tensors by name. Raises DataError if the disk is full or not writable."""
    # As the library orders tensors of one type.
    entries = sorted(weights.items())
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


def memory_of(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    content: memoryview = tensor.view(-1).view(torch.uint8).numpy().data
    return content
