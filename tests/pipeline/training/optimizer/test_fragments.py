"""Fragments by literal example; the real layouts are in test_engine.py."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pipeline.base.errors import ConfigError
from pipeline.training.optimizer.fragments import (
    Fragment,
    FragmentLayout,
    FragmentPiece,
    check_logical,
    cut_fragments,
    gaps,
    read_layout,
    verify_layout,
)
from tests.pipeline.training.toy import Record

FUSED = torch.nn.Parameter(torch.arange(1.0, 9.0))
PARAMETERS = {"fused": FUSED}
QUERY = Record("query", "fused", 0, (3,), True, True)
KEY = Record("key", "fused", 3, (1, 2), True, True)
"""Elements 5, 6 and 7 of `fused` are padding."""


def test_cut_and_gaps() -> None:
    """Of a rank that has elements 2 to 7, after other elements."""
    pieces = (FragmentPiece("fused", 2, 0, 10, 6),)
    layout = FragmentLayout((torch.zeros(20),), pieces, replicated=False)
    assert cut_fragments(layout, [QUERY, KEY]) == [
        Fragment(logical=0, start=2, flat=0, offset=10, numel=1),
        Fragment(logical=1, start=0, flat=0, offset=11, numel=2),
    ]
    found = gaps(layout, cut_fragments(layout, [QUERY, KEY]))
    assert [(first, last) for _, first, last in found] == [(13, 16)]
    none = replace(layout, pieces=(FragmentPiece("fused", 5, 0, 0, 3),))
    assert cut_fragments(none, [QUERY, KEY]) == []
    assert [(first, last) for _, first, last in gaps(none, [])] == [(0, 3)]


@pytest.mark.parametrize(
    "logical,message",
    [
        ([QUERY, replace(KEY, name="query")], "two logical parameters are called query"),
        ([QUERY, replace(KEY, parameter_name="other")], "key is part of other, which is not a"),
        ([QUERY, replace(KEY, start=2)], "key starts at 2 in fused, inside another"),
        ([QUERY, replace(KEY, shape=(9,))], "key ends at 12, but fused at 8"),
        ([], "fused belongs to no logical parameter"),
    ],
)
def test_wrong_logical_parameters(logical: list[Record], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_logical(logical, PARAMETERS)


def whole(values: torch.Tensor) -> tuple[FragmentLayout, list[Fragment]]:
    layout = FragmentLayout((values,), (FragmentPiece("fused", 0, 0, 0, 8),), replicated=False)
    return layout, cut_fragments(layout, [QUERY, KEY])


def test_verify() -> None:
    weights = torch.tensor([1.0, 2, 3, 4, 5, 0, 0, 0])
    device = torch.device("cpu")
    verify_layout(*whole(weights.clone()), [QUERY, KEY], {"fused": weights}, device)
    verify_layout(*whole(weights.clone()), [QUERY, KEY], {"fused": weights.bfloat16()}, device)
    moved = weights.roll(1)
    with pytest.raises(ConfigError, match="query is not where DeepSpeed reports it"):
        verify_layout(*whole(moved), [QUERY, KEY], {"fused": weights}, device)
    layout, fragments = whole(weights.clone())
    with pytest.raises(ConfigError, match=r"key is not where .* \(0 of 2 elements found"):
        verify_layout(layout, fragments[:1], [QUERY, KEY], {"fused": weights}, device)
    filled = weights + 1
    with pytest.raises(ConfigError, match="fused has 3 nonzero values outside"):
        verify_layout(*whole(filled.clone()), [QUERY, KEY], {"fused": filled}, device)


def test_refused_layouts() -> None:
    for name, value in (
        ("round_robin_gradients", True), ("zero_hpz_partition_size", 8), ("swap_optimizer", True),
        ("model_parallel_world_size", 2),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{name}={value} is not supported"):
            read_layout(PARAMETERS, [torch.zeros(8)], SimpleNamespace(**{name: value}))
    with pytest.raises(ConfigError, match="SimpleNamespace does not report where fused is"):
        read_layout(PARAMETERS, [torch.zeros(8)], SimpleNamespace())
    with pytest.raises(ConfigError, match="cut the model into 2 groups"):
        read_layout(PARAMETERS, [torch.zeros(4)] * 2, SimpleNamespace())
