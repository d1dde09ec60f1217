"""A part of gpu_gate.py: how fast and how exact torch's attention kernels are at our shapes."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.attention import flash_attention, padded_attention
from model.pieces import Pieces, pieces_of
from tests.benchmarks.gpu_parts import Gate, table

PADS = 18
"""Tokens that a row of 512 lacks on average, for the kernels with a mask."""
CHECKED_ROWS = 4
"""Rows whose values are compared."""


Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Query, key and value of equal rows [R, S, H, K] and the probability of dropout -> mixed values of
the same shape."""


class Choice(NamedTuple):
    """A kernel with a probability of dropout."""

    title: str
    dropout: float
    attend: Attend
    pads: int = 0
    """Tokens at the end of each row that are not attended to."""


def attention_kernels(gate: Gate) -> str:
    """Time and error of a layer's attention by kernel."""
    run = gate.run(gate.recipes[0])
    heads, length = run.encoder.heads, run.data.sequence_length
    shape = gate.rows, length, heads, run.encoder.width // heads
    rows = []
    for choice in choices(gate, length):
        named = [choice.title, f"{choice.dropout:g}"]
        if gate.left() < 2:
            rows.append([*named, "no time"])
            continue
        try:
            rows.append([*named, *times(gate, choice, shape), error_of(gate, choice, shape)])
        except (RuntimeError, NotImplementedError) as failed:  # also torch.OutOfMemoryError
            reason = str(failed).strip().partition("\n")[0]
            rows.append([*named, f"{type(failed).__name__}: {reason[:80]}"])
    columns = ["kernel", "dropout", "forward ms", "TFLOP/s", "backward ms", "TFLOP/s", "error"]
    return (
        f"bf16, {gate.rows} rows of {length}, {heads} heads of {shape[-1]}. Error: without "
        "dropout, of the values and of the gradients against math in float32, relative; with "
        "dropout, how far <dV, V> is from <out, d out>, which are equal if both passes draw the "
        "same.\n\n" + table(columns, rows)
    )


def choices(gate: Gate, length: int) -> Iterator[Choice]:
    """The kernels to try, the one we use first."""
    bounds = {rows: pieces_of([length] * rows, gate.device) for rows in {CHECKED_ROWS, gate.rows}}

    def flash(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        pieces, parts = bounds[len(query)], [part.flatten(0, 1) for part in (query, key, value)]
        if gate.device.type == "cpu":
            return padded_attention(torch.stack(parts, 1), pieces, dropout).view_as(query)
        return flash_attention(*parts, pieces, dropout).view_as(query)

    def cudnn(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        parts = [part.flatten(0, 1) for part in (query, key, value)]
        return cudnn_attention(*parts, bounds[len(query)], dropout).view_as(query)

    def of_rows(backend: SDPBackend, pads: int = 0) -> Attend:
        masks = {
            rows: torch.arange(length, device=gate.device).expand(rows, 1, 1, -1) < length - pads
            for rows in bounds
        }

        def attend(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
            parts = [part.transpose(1, 2) for part in (query, key, value)]
            mask = masks[len(query)] if pads else None
            with sdpa_kernel(backend):
                mixed = F.scaled_dot_product_attention(*parts, mask, dropout)
            return mixed.transpose(1, 2)

        return attend

    for dropout in (0.1, 0.0):
        yield Choice("flash, variable lengths", dropout, flash)
    for dropout in (0.125, 0.0):
        yield Choice("cuDNN, full rows", dropout, of_rows(SDPBackend.CUDNN_ATTENTION))
    yield Choice("flash, full rows", 0.1, of_rows(SDPBackend.FLASH_ATTENTION))
    efficient = of_rows(SDPBackend.EFFICIENT_ATTENTION, PADS)
    for dropout in (0.1, 0.0):
        yield Choice("memory-efficient, padding mask", dropout, efficient, PADS)
    for dropout in (0.0, 0.125):  # last, since with torch 2.11 a pass takes 72 ms
        yield Choice("cuDNN, variable lengths", dropout, cudnn)


def cudnn_attention(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, pieces: Pieces, dropout: float
) -> Tensor:
    """As `flash_attention`, by cuDNN, whose dropout is a multiple of 1/16."""
    bounds, longest = pieces.cu_seqlens, pieces.longest
    mixed_THK: Tensor = torch.ops.aten._cudnn_attention_forward(
        query_THK, key_THK, value_THK, None, bounds, bounds, longest, longest, True, dropout,
        False, False,
    )[0]  # fmt: skip
    return mixed_THK


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


def error_of(gate: Gate, choice: Choice, shape: tuple[int, ...]) -> str:
    """As `attention_kernels` says."""
    parts = [gate.random(CHECKED_ROWS, *shape[1:]).requires_grad_() for _ in range(3)]
    out = choice.attend(*parts, choice.dropout)
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, parts, grad)
    if choice.dropout:
        given = out.detach().double() * grad.double()
        received = found[2].double() * parts[2].detach().double()
        return f"{float((given.sum() - received.sum()).abs() / given.norm()):.1e}"
    exact = [part.detach().float().requires_grad_() for part in parts]
    query, key, value = (part.transpose(1, 2) for part in exact)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    hidden = torch.arange(shape[1], device=gate.device) >= shape[1] - choice.pads
    scores = scores.masked_fill(hidden, float("-inf"))
    wanted = (scores.softmax(-1) @ value).transpose(1, 2)
    gradients = torch.autograd.grad(wanted, exact, grad.float())
    worst = max(map(distance, found, gradients))
    return f"{distance(out, wanted):.1e}, {worst:.1e}"


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative to `wanted`."""
    return float((found.detach().float() - wanted.detach()).norm() / wanted.detach().norm())
