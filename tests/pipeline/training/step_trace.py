"""What a step sends to other ranks, and where the host reads a tensor's value.

    with StepTrace() as trace:
        ...
    trace.sent    {"all_reduce float32": bytes, ...}
    trace.waits   {"item": 1, ...}

A GPU works through a queue; reading a value waits until the queue is empty. On a CPU nothing waits,
so this counts the operations that would.
"""

from collections import Counter
from contextlib import ExitStack
from typing import Any, Self
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READERS = {
    "aten._local_scalar_dense": "item",
    "aten.nonzero": "nonzero",
    "aten.masked_select": "nonzero",
    "aten._unique2": "nonzero",
    "aten.equal": "item",
}
METHODS = ("tolist", "cpu")
"""Of tensors; on a CPU these are not operations."""


class StepTrace(TorchDispatchMode):
    """Counts inside `with`; calls of the same kind add up."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()
        """Bytes by collective and type: of the longer of input and output."""
        self.calls: Counter[str] = Counter()
        """Collectives, by the same names."""
        self.waits: Counter[str] = Counter()
        self._held = ExitStack()

    def __enter__(self) -> Self:
        for name in METHODS:
            self._held.enter_context(
                patch.object(torch.Tensor, name, self._counted(name, getattr(torch.Tensor, name)))
            )
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._held.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if func.namespace == "c10d":
            self._sends(name, args)
        elif name in READERS:
            self.waits[READERS[name]] += 1
        elif name == "aten.index" and any(
            place is not None and place.dtype in (torch.bool, torch.uint8) for place in args[1]
        ):
            self.waits["nonzero"] += 1
        result = func(*args, **(kwargs or {}))
        if name in ("aten._to_copy", "aten.copy_") and result.device.type == "cpu":
            sources = {part.device.type for part in tree_leaves(args) if torch.is_tensor(part)}
            if sources - {"cpu"}:
                self.waits["copy"] += 1
        return result

    def _sends(self, name: str, args: Any) -> None:
        tensors = [part for part in tree_leaves(args) if torch.is_tensor(part)]
        if not tensors:
            return
        kind = f"{name.removeprefix('c10d.').strip('_')} {str(tensors[0].dtype)[6:]}"
        sides = [
            sum(part.nbytes for part in tree_leaves(side) if torch.is_tensor(part))
            for side in args[:2]
        ]
        self.sent[kind] += max(sides)
        self.calls[kind] += 1

    def _counted(self, name: str, method: Any) -> Any:
        def counted(tensor: torch.Tensor, *args: Any, **named: Any) -> Any:
            self.waits[name] += 1
            return method(tensor, *args, **named)

        return counted
