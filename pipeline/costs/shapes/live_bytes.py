"""Counts the bytes of all tensors that are alive while operations run.

with LiveBytes(given) as live:
    ...
live.peak       most bytes at a time, `given` excepted
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Each storage counts once, from the operation that makes it until it is freed.

    Tensors without storage count as if they had one, except those of `ignored_device`.
    """

    def __init__(self, given: Iterable[torch.Tensor] = (), ignored_device: str = "") -> None:
        """given: tensors that exist before and do not count; a view of one does not, either."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        """Bytes that are alive, and most at a time; set `peak` to `now` to start again."""
        self.ignored_device = ignored_device
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in given}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != self.ignored_device:
                self._see(tensor.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def unique_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of some tensors, each once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())
