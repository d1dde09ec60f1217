"""Kernels that compute attention pass, whatever the type; broken ones are told by what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model import attention
from model.attention_check import Case, candidates, find_fault

CASE = Case(
    device=torch.device("cpu"), dtype=torch.float32, heads=3, head_size=8, longest=20, tokens=90,
    dropout=0.1,
)  # fmt: skip
ROWS = attention.row_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_of_the_table_have_no_fault(dtype: torch.dtype) -> None:
    """And random numbers stay as they were."""
    case, before = replace(CASE, dtype=dtype), torch.get_rng_state()
    names = candidates([case])
    assert names[1:] == ("padded_attention",)
    assert [find_fault(name, case) for name in names] == ["", ""]
    assert torch.equal(torch.get_rng_state(), before)


def test_candidates_serve_all_encoders() -> None:
    gpu = replace(CASE, device=torch.device("meta"), dtype=torch.bfloat16)
    assert candidates([gpu, gpu]) == ("flash_attention", "padded_attention")
    assert candidates([gpu, replace(gpu, head_size=12)]) == ("padded_attention",)
    assert candidates([replace(gpu, dtype=torch.float32)]) == ("padded_attention",)


def fails(*given: Any) -> Tensor:
    raise RuntimeError("no kernel image is available\nand more lines")


def leaks(projected: Tensor, *given: Any) -> Tensor:
    """The last token of each of the longest rows is as if it were masked."""
    shown = projected.clone()
    shown[19, 1] = -9.0
    return ROWS(shown, *given)


def drops_a_gradient(projected: Tensor, *given: Any) -> Tensor:
    query, key, value = projected.unbind(1)
    return ROWS(torch.stack([query.detach(), key, value], 1), *given)


def bad_gradient(projected: Tensor, *given: Any) -> Tensor:
    projected = projected * 1.0
    projected.register_hook(lambda grad: grad * torch.nan)
    return ROWS(projected, *given)


def overflows(projected: Tensor, blocks: list[Any], dropout: float, reach: int | None) -> Tensor:
    return ROWS(projected, blocks, dropout, reach) * (torch.inf if dropout else 1.0)


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (fails, "failed: no kernel image is available"),
        (leaks, "in its values, where"),
        (drops_a_gradient, "in its gradients, where"),
        (bad_gradient, "has an error of nan in its gradients, where"),
        (overflows, "gives numbers that are not finite with dropout 0.1"),
    ],
)
def test_a_broken_kernel_is_told(
    broken: Callable[..., Tensor], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "row_attention", broken)
    found = find_fault("row_attention", CASE)
    assert fault in found and "\n" not in found
    assert not find_fault("padded_attention", CASE)
