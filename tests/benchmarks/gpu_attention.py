"""A part of gpu_gate.py: how fast torch's attention kernels are at our shapes.

How exact they are is checked at a run's start, see `model.attention_check`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.attention import flash_attention, padded_attention
from model.pieces import pieces_of
from tests.benchmarks.gpu_parts import Gate, table

PADS = 18
"""Tokens that a row of 512 lacks on average, for the kernels with a mask."""

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Query, key and value of equal rows [R, S, H, K] and the probability of dropout -> mixed values of
the same shape."""


class Choice(NamedTuple):
    """A kernel with a probability of dropout."""

    title: str
    dropout: float
    attend: Attend


def attention_kernels(gate: Gate) -> str:
    """Time of a layer's attention by kernel."""
    run = gate.run(gate.recipes[0])
    heads, length = run.encoder.heads, run.data.sequence_length
    shape = gate.rows, length, heads, run.encoder.width // heads
    rows = []
    for choice in choices(gate, length):
        named = [choice.title, f"{choice.dropout:g}"]
        measured = partial(times, gate, choice, shape)
        # RuntimeError is also torch.OutOfMemoryError
        rows.append([*named, *gate.cells(2, measured, RuntimeError, NotImplementedError)])
    columns = ["kernel", "dropout", "forward ms", "TFLOP/s", "backward ms", "TFLOP/s"]
    return f"bf16, {gate.rows} rows of {length}, {heads} heads of {shape[-1]}.\n\n" + table(
        columns, rows
    )


def choices(gate: Gate, length: int) -> Iterator[Choice]:
    """The kernels to try, the one we use first."""
    pieces = pieces_of([length] * gate.rows, gate.device)
    shown = torch.arange(length, device=gate.device).expand(gate.rows, 1, 1, -1) < length - PADS

    def flash(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        parts = [part.flatten(0, 1) for part in (query, key, value)]
        if gate.device.type == "cpu":
            return padded_attention(torch.stack(parts, 1), pieces, dropout).view_as(query)
        return flash_attention(*parts, pieces, dropout).view_as(query)

    def cudnn(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        parts = [part.flatten(0, 1) for part in (query, key, value)]
        bounds, longest = pieces.cu_seqlens, pieces.longest
        mixed, *_ = torch.ops.aten._cudnn_attention_forward(
            *parts, None, bounds, bounds, longest, longest, True, dropout, False, False
        )
        return mixed.view_as(query)

    def of_rows(backend: SDPBackend, mask: Tensor | None = None) -> Attend:
        def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
            parts = [part.transpose(1, 2) for part in (query, key, value)]
            with sdpa_kernel(backend):
                mixed = F.scaled_dot_product_attention(*parts, mask, dropout)
            return mixed.transpose(1, 2)

        return attend

    for dropout in (0.1, 0.0):
        yield Choice("flash, variable lengths", dropout, flash)
    for dropout in (0.125, 0.0):  # cuDNN's is a multiple of 1/16
        yield Choice("cuDNN, full rows", dropout, of_rows(SDPBackend.CUDNN_ATTENTION))
    yield Choice("flash, full rows", 0.1, of_rows(SDPBackend.FLASH_ATTENTION))
    efficient = of_rows(SDPBackend.EFFICIENT_ATTENTION, shown)
    for dropout in (0.1, 0.0):
        yield Choice("memory-efficient, padding mask", dropout, efficient)
    for dropout in (0.0, 0.125):  # last, since with torch 2.11 a pass takes 72 ms
        yield Choice("cuDNN, variable lengths", dropout, cudnn)


def times(gate: Gate, choice: Choice, shape: tuple[int, ...]) -> list[str]:
    """Milliseconds and TFLOP/s of both passes."""
    parts = [gate.random(*shape).requires_grad_() for _ in range(3)]
    out = choice.attend(*parts, choice.dropout)
    grad = torch.randn_like(out)
    ahead = gate.seconds(lambda: choice.attend(*parts, choice.dropout), 5)
    back = gate.seconds(lambda: torch.autograd.grad(out, parts, grad, retain_graph=True), 5)
    flops = 4.0 * out.numel() * shape[1]
    return [
        f"{ahead * 1e3:.2f}", f"{flops / ahead / 1e12:.0f}",
        f"{back * 1e3:.2f}", f"{2.5 * flops / back / 1e12:.0f}",
    ]  # fmt: skip
