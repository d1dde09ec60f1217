"""Bytes that a micro-step's kernels move, products and attention excepted.

Compiled code: inductor's own count for each Triton kernel, of its inputs and outputs. Eager code
(embeddings, heads): inputs and outputs of each operation; a gather's input counts as its output.
Operations that inductor leaves to torch between its kernels, other than products and attention, are
not counted.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._inductor.runtime import triton_heuristics
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

UNCOUNTED = re.compile(
    r"empty|detach|attention|view|set_|resize_|^(?:mm|addmm|bmm|_?linear|_to_copy.meta)"
)
GATHERS = ("index_select", "gather", "embedding.")


@contextmanager
def triton_bytes() -> Iterator[Counter[str]]:
    """Bytes by kernel, of the Triton kernels launched inside."""
    found: Counter[str] = Counter()
    launch = triton_heuristics.CachingAutotuner.run

    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        gigabytes = self.inductor_meta.get("kernel_num_gb")
        moved = sum(map(size, arguments)) if gigabytes is None else int(gigabytes * 1e9)
        found[self.fn.__name__] += moved
        return launch(self, *arguments, **named)

    with patch.object(triton_heuristics.CachingAutotuner, "run", run):
        yield found


class EagerBytes(TorchDispatchMode):
    """Bytes by operation, of the eager operations that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.")
        if func.is_view or UNCOUNTED.search(name):
            return out
        if name.startswith(GATHERS):
            moved = 2 * sum(map(size, tree_leaves(out)))
        else:
            moved = sum(map(size, tree_leaves((args, kwargs, out))))
        self.found[name] += moved
        return out


def eager_bytes(step: Callable[[], object]) -> Counter[str]:
    """Bytes by operation of the eager code that `step` runs."""
    with EagerBytes() as mode:
        step()
    return mode.found


def size(value: Any) -> int:
    """Bytes of a tensor on the device, 0 of anything else."""
    is_there = isinstance(value, torch.Tensor) and value.is_cuda
    return value.numel() * value.element_size() if is_there else 0
