"""A Run -> the bytes that a forward pass keeps for the backward pass, per row.

The model itself runs, forward and backward, on tensors that have shapes and no storage, so every
recipe and setting counts as it is. For a CPU these are torch's fake tensors, which take the path of
a CPU. For a GPU they are tensors of the meta device, and two operations are replaced by the kernels
of a GPU: fused attention in fp32, and a gated GELU, whose activation inductor computes again rather
than keep.

Every row is full. Legend: B rows, S tokens of a row, K slots of predictions.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from model.hugging_face.conversion import Model
from model.objectives.masked_language import Inputs
from model.pieces import Pieces
from pipeline.config.data_settings import max_predictions
from pipeline.config.formats import PAIR_FORMATS
from pipeline.config.run import Run
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.costs.shapes.parameters import shaped_model


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes per row of a micro-batch."""

    encoders: int
    """Bytes that embeddings and layers keep."""
    heads: int
    """Bytes that the heads keep: mostly logits of the slots."""
    working: int
    """Bytes that the backward pass needs beyond that at its peak, without gradients of weights."""


def activations(run: Run, on_gpu: bool, pieces: Sequence[int] = ()) -> Activations:
    """Bytes per row of a run's micro-batches; pieces: lengths of the pieces of each row, to which
    attention is confined, () for one that is as long as the row."""
    batch = replace(
        # One value whatever the batch, so that the cache of `_per_row` serves all plans of a model.
        run.batch, sequences=1, per_device=1, warmup_steps=0, mixture=(), mixture_exponent=1.0,
        mixture_over="corpora", corpora=(),
    )  # fmt: skip
    return _per_row(replace(run, batch=batch, phases=()), on_gpu, tuple(pieces))


@functools.cache
def _per_row(run: Run, on_gpu: bool, pieces: tuple[int, ...]) -> Activations:
    """The difference that more rows make: what does not depend on rows is not an activation."""
    rows = 64 if on_gpu else 4  # enough rows to outweigh the word table's gradient
    one, two = (trace(run, on_gpu, pieces, times * rows) for times in (1, 2))
    return Activations(
        (two.encoders - one.encoders) // rows,
        (two.heads - one.heads) // rows,
        max(0, two.working - one.working) // rows,
    )


def trace(run: Run, on_gpu: bool, pieces: Sequence[int], rows: int) -> Activations:
    """Bytes of a whole micro-batch of `rows` rows."""
    device: Any = torch.device("meta") if on_gpu else FakeTensorMode(allow_non_fake_inputs=True)
    with device:
        with _default_type(torch.float32 if run.precision == "fp32" else torch.bfloat16):
            model = shaped_model(run).train()
        inputs = micro_batch(run, rows, pieces)
    given = [part for part in inputs if isinstance(part, Tensor)]  # the loader's: they do not count
    with device, _Kernels(on_gpu), LiveBytes([*model.parameters(), *given]) as live:
        with _at_exits(model, live) as exits:
            sums = model(inputs)
        loss = torch.stack([sums[f"{part.name}_loss"] for part in model.parts]).sum()
        held = live.peak = live.now  # the peak of the backward pass, not of the forward's
        # the gradient of the first weights: through all layers, without those of other weights
        first = [encoder.embeddings.norm.weight for encoder in model.encoders()]
        torch.autograd.grad(loss, first, allow_unused=True)
    encoders = sum(exits)
    return Activations(encoders, held - encoders, live.peak - held)


def micro_batch(run: Run, rows: int, pieces: Sequence[int] = ()) -> Inputs:
    """Full rows with the most predictions that they can have; values do not matter."""
    length = run.data.sequence_length
    tokens, slots = rows * length, rows * max_predictions(run.data)
    paired = run.data.format in PAIR_FORMATS
    return Inputs(
        input_ids_T=torch.zeros(tokens, dtype=torch.int64),
        pieces=Pieces(_bounds([*(pieces or (length,))] * rows), length),
        positions_K=torch.zeros(slots, dtype=torch.int64),
        labels_K=torch.zeros(slots, dtype=torch.int64),
        weights_K=torch.ones(slots),
        mask_id=0,
        segment_ids_T=torch.zeros(tokens, dtype=torch.int64) if paired else None,
        row_starts_R=torch.zeros(rows, dtype=torch.int64),
        pair_labels_R=torch.zeros(rows, dtype=torch.int64) if paired else None,
        token_weights_T=torch.ones(tokens),
        draws_K=torch.zeros(slots, dtype=torch.int64)
        if run.objective.kind in GENERATOR_KINDS
        else None,
        dropout_keys_T=torch.zeros(tokens, dtype=torch.int32) if run.encoder.dropout else None,
    )


def _bounds(lengths: list[int]) -> Tensor:
    """cu_seqlens; a real tensor where a CPU is traced, whose path reads it."""
    ends = [0, *accumulate(lengths)]
    if torch.empty(0).device.type == "meta":
        return torch.tensor(ends, dtype=torch.int32)
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        return torch.tensor(ends, dtype=torch.int32)


@contextlib.contextmanager
def _default_type(dtype: torch.dtype) -> Iterator[None]:
    """Fake tensors cannot be converted in place."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


@contextlib.contextmanager
def _at_exits(model: Model, live: LiveBytes) -> Iterator[list[int]]:
    """Bytes that each encoder has added when it returns, besides its output, which heads keep."""
    begun: list[int] = []
    added: list[int] = []
    handles: list[Any] = []

    def end(module: torch.nn.Module, args: Any, output: Tensor) -> None:
        added.append(live.now - begun[-1] - output.untyped_storage().nbytes())

    for encoder in model.encoders():
        handles.append(encoder.register_forward_pre_hook(lambda *_: begun.append(live.now)))
        handles.append(encoder.register_forward_hook(end))
    yield added
    for handle in handles:
        handle.remove()


class _Kernels(TorchFunctionMode):
    """Replaces functions that depend on the device or on values."""

    def __init__(self, on_gpu: bool) -> None:
        super().__init__()
        self._replaced: dict[Any, Callable[..., Any]] = {Tensor.numpy: _values}
        if on_gpu:
            gates = _Gates()
            self._replaced = {
                F.scaled_dot_product_attention: _fused_attention,
                F.gelu: gates.gelu,
                Tensor.mul: gates.mul,
            }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._replaced.get(func, func)(*args, **(kwargs or {}))


class _Gates:
    """A GELU that is multiplied at once keeps what it is of, and not its value."""

    def __init__(self) -> None:
        # Weak, or it would keep what is to be counted as freed.
        self._given = WeakTensorKeyDictionary()

    def gelu(self, value: Tensor, approximate: str = "none") -> Tensor:
        found = F.gelu(value, approximate=approximate)
        self._given[found] = value
        return found

    def mul(self, first: Tensor, second: Tensor) -> Tensor:
        if first in self._given:
            return cast(Tensor, _GatedGelu.apply(self._given[first], second))  # type: ignore[no-untyped-call]
        return first * second


class _GatedGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gate: Tensor) -> Tensor:
        ctx.save_for_backward(value, gate)
        return F.gelu(value) * gate

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad * gate, value), grad * F.gelu(value)


def _values(tensor: Tensor) -> Any:
    """The bounds of pieces have values, which fake tensors hide."""
    with torch._subclasses.fake_tensor.unset_fake_temporarily(), torch._C.DisableTorchFunction():
        return tensor.numpy()


def _fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> Any:
    """The memory-efficient kernel; the others for a GPU keep the same tensors."""
    bias = None
    if mask is not None:  # as torch does for this kernel, in each layer
        zeros = torch.zeros_like(mask, dtype=query.dtype)
        bias = zeros.masked_fill(~mask, -torch.inf).expand(-1, query.shape[1], -1, -1)
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, True, dropout
    )[0]


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
        key = storage._cdata  # views share a storage, which counts once
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._freed, key)  # called when the last tensor of it is gone

    def _freed(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def unique_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of some tensors, each once."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())
