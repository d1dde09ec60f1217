"""A kernel of attention against the formula in float64, before a run relies on it.

1. Query, key and value are drawn for pieces of many lengths, the run's longest among them.
2. `padded_attention` by torch's products gives the mixed values and the gradients of that in
   float64: the oracle. In the kernel's own type it gives the error that the type explains.
3. The kernel may be twice as far from the oracle, and its type's FLOOR. Errors are relative, and
   those of the worst piece: a mistake in long pieces must not hide behind the larger numbers of
   short ones. A wrong mask, scale or piece is off by a tenth or more.
4. With the run's dropout both passes must give finite numbers.

The global random numbers stay as they were. Legend: T tokens, H heads, K head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.attention import AttentionKernel, attend_in_pieces, attention_kernel, padded_attention
from model.pieces import Pieces, lay_out, pieces_of

ERROR_FACTOR = 2.0
"""Against the error of products in the same type, as in the tests of Dao's flash-attention."""
FLOOR = {
    torch.float64: 1e-14,
    torch.float32: 2e-6,
    torch.bfloat16: 2**-7,
    torch.float16: 2**-10,
}
"""Error allowed beyond that, by type: 1 to 16 roundings, as kernels add in another order. On an
H200 flash attention in bfloat16 is off by 2.2e-3, and by 2.4e-3 in gradients."""
TF32_FLOOR = 2**-9
"""Floor of float32 on a GPU, where torch's kernels may multiply in TF32, of 10 bits."""
MOST_HEADS = 2
MOST_TOKENS = 1024
"""Drawn at most, unless a piece is longer: half a second of a CPU at length 512. Heads do not
affect each other."""
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The attention of a run."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    head_size: int
    longest: int
    """Tokens of the longest piece."""
    tokens: int
    """Tokens of a micro-batch."""
    dropout: float
    """Dropout probability of attention weights."""
    window: int | None = None
    """Tokens to each side; None: the whole piece."""


@dataclass(frozen=True, slots=True)
class _Passes:
    """Results of both passes: mixed values [T, H, K], gradients [T, 3, H, K]."""

    mixed: Tensor
    gradients: Tensor


def candidates(cases: Sequence[Case]) -> tuple[AttentionKernel, ...]:
    """The kernels that may serve all encoders of a model in training, in the order of preference:
    the one that the table of `model.attention` names, then `padded_attention`."""
    named = {attention_kernel(each.device, each.dtype, each.head_size, True) for each in cases}
    # Encoders that would take different kernels have only the padded one in common.
    if named <= {"padded_attention"} or len(named) > 1:
        return ("padded_attention",)
    return (*named, "padded_attention")


def find_fault(kernel: AttentionKernel, case: Case) -> str:
    """The reason why a kernel cannot be relied on, "" if it can."""
    devices = [case.device] if case.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(SEED)
        pieces = pieces_of(_lengths(case), case.device)  # 1.
        given, upstream = _draw(case, int(pieces.cu_seqlens[-1]))
        try:
            found = _passes(kernel, given, upstream, pieces, 0.0, case.window)
            dropped = _passes(kernel, given, upstream, pieces, case.dropout, case.window)
        except RuntimeError as error:
            first, *_ = str(error).split("\n")
            return f"failed: {first}"
        oracle = _products(given.double(), upstream.double(), pieces, case.window)  # 2.
        plain = _products(given, upstream, pieces, case.window)
    for part in ("mixed", "gradients"):
        exact = getattr(oracle, part)
        off = _worst(getattr(found, part), exact, pieces)
        # 3.
        limit = ERROR_FACTOR * _worst(getattr(plain, part), exact, pieces) + _floor(case)
        if not off <= limit:  # NaN is not either
            what = "values" if part == "mixed" else "gradients"
            return f"has an error of {off:.2g} in its {what}, where {limit:.2g} is the limit"
        if not getattr(dropped, part).isfinite().all():  # 4.
            return f"gives numbers that are not finite with dropout {case.dropout:g}"
    return ""


def _floor(case: Case) -> float:
    rounded = case.device.type == "cuda" and case.dtype == torch.float32
    return TF32_FLOOR if rounded else FLOOR[case.dtype]


def _lengths(case: Case) -> list[int]:
    """The longest piece, one token, and others between, up to the tokens of a micro-batch; an
    empty piece ends them, as on a GPU."""
    left = min(case.tokens, MOST_TOKENS) - case.longest - 1
    found = [case.longest, 1]
    while left > 0:
        found.append(min(left, int(torch.randint(1, case.longest + 1, ()))))
        left -= found[-1]
    return [*found, 0]


def _draw(case: Case, tokens: int) -> tuple[Tensor, Tensor]:
    """Query, key and value [T, 3, H, K], and the gradient of the mixed values [T, H, K]."""
    shape = (tokens, 4, min(case.heads, MOST_HEADS), case.head_size)
    drawn = torch.randn(shape).to(case.device, case.dtype)  # drawn on the CPU: equal anywhere
    return drawn[:, :3].contiguous(), drawn[:, 3].contiguous()


def _passes(
    kernel: AttentionKernel,
    given: Tensor,
    upstream: Tensor,
    pieces: Pieces,
    dropout: float,
    window: int | None,
) -> _Passes:
    leaf = given.detach().requires_grad_()
    on_cpu = leaf.device.type == "cpu"
    layout = lay_out(pieces.cu_seqlens, leaf.shape[2]) if on_cpu else None
    mixed = attend_in_pieces(leaf, pieces, layout, dropout, kernel, window)
    return _backward(leaf, mixed, upstream)


def _products(given: Tensor, upstream: Tensor, pieces: Pieces, window: int | None) -> _Passes:
    """By torch's own products, in the type of the given numbers."""
    leaf = given.detach().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        return _backward(leaf, padded_attention(leaf, pieces, 0.0, window), upstream)


def _backward(leaf: Tensor, mixed: Tensor, upstream: Tensor) -> _Passes:
    (gradients,) = torch.autograd.grad(mixed, leaf, upstream)
    return _Passes(mixed.detach(), gradients)


def _worst(found: Tensor, exact: Tensor, pieces: Pieces) -> float:
    """The largest relative error of a piece, by the norms of all its numbers."""
    lengths = pieces.cu_seqlens.diff().tolist()[:-1]  # without the last, which is empty: 0 / 0
    parts = zip(torch.split(found.double(), lengths), torch.split(exact, lengths), strict=True)
    return torch.stack([(own - each).norm() / each.norm() for own, each in parts]).max().item()
