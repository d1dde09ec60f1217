"""What is held of a case: each rule goes red when it is broken."""

import copy
import json
from typing import Any

import pytest

from tests.null_gpu.cases import ALL, USUAL, key, problems
from tests.null_gpu.run import EXPECTED, held, row

RECORDED = json.loads(EXPECTED.read_text())["cases"]
FULL = "roberta_base full stage 1 H200"
ABOUT = {
    "recipe": "roberta_base", "rows": "full", "stage": 1, "board": "H200", "waits": {},
    "peak_gb": 10.0, "planned_gb": 10.0, "host_ms": 50.0,
}  # fmt: skip


@pytest.fixture
def case() -> dict[str, Any]:
    return copy.deepcopy(RECORDED[FULL]) | ABOUT


def test_a_recorded_case_holds(case: dict[str, Any]) -> None:
    assert held(case, RECORDED) == []
    assert row(case)[:2] == [FULL, "flash"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"attention": {"memory_efficient": [12, 12]}},  # as when a mask is put back
            "attention runs memory_efficient, expected flash",
        ),
        ({"evaluation_attention": []}, "evaluation_attention runs no fused kernel, expected flash"),
        ({"waits_per_micro_batch": 1.0}, "the host waits for the device in a micro-batch"),
        ({"waits_per_update": 3}, "waits_per_update is 3, expected 2"),
        ({"copies": {"pageable -> device": 9.0}}, "9 copies pageable -> device per micro-batch"),
        (
            {"copies_beside": {"pinned -> device": 5.0}},
            "5 copies pinned -> device run beside kernels, expected 7",
        ),
        ({"collectives": {}}, "collectives {}"),
        ({"spilled_bytes": {"triton_a": 369}}, "triton_a spills 369 bytes, at most 368"),
        ({"peak_gb": 11.2}, "peak 11.2 GB is +12% from 10.0"),
        ({"peak_gb": 8.8}, "peak 8.8 GB is -12% from 10.0"),
    ],
)
def test_what_is_held(case: dict[str, Any], change: dict[str, Any], message: str) -> None:
    found = [*problems(case | change, RECORDED[FULL])]
    assert any(message in problem for problem in found), found


def test_a_slower_prediction_is_red(case: dict[str, Any]) -> None:
    rates = case["predicted_sequences_per_second"]
    rates["A100"] *= 0.985
    assert not [*problems(case, RECORDED[FULL])]
    rates["A100"] *= 0.985
    (found,) = problems(case, RECORDED[FULL])
    assert "predicted on A100" in found


def test_more_bytes_are_red(case: dict[str, Any]) -> None:
    moved = case["kilobytes_per_token_layer"]
    before = sum(moved.values())
    moved["triton_mask"] = 0.019 * before
    assert not [*problems(case, RECORDED[FULL])]
    moved["triton_mask"] = 0.021 * before
    (found,) = problems(case, RECORDED[FULL])
    assert f"kB per token and layer, {before:.1f} before; triton_mask moves" in found


@pytest.mark.parametrize("renamed", [False, True])
def test_more_instructions_of_a_norm_are_red(case: dict[str, Any], renamed: bool) -> None:
    counts = case["norm_instructions"]
    kernel = max((each for each in counts if "backward" not in each), key=lambda each: counts[each])
    name = "triton_per_fused_native_dropout_native_layer_norm_0" if renamed else kernel
    counts[name] = 1.019 * counts[kernel]
    assert not [*problems(case, RECORDED[FULL])]
    counts[name] *= 1.01
    (found,) = problems(case, RECORDED[FULL])
    assert f"{name} takes" in found


def test_a_case_without_a_record_of_bytes_and_instructions_holds(case: dict[str, Any]) -> None:
    names = ("kilobytes_per_token_layer", "norm_instructions")
    expected = {name: value for name, value in RECORDED[FULL].items() if name not in names}
    assert not [*problems(case, expected)]


def test_an_unknown_case_asks_to_be_recorded(case: dict[str, Any]) -> None:
    (found,) = held(case, {})
    assert "--record" in found


def test_every_cell_is_recorded() -> None:
    wanted = {
        key({"recipe": cell.recipe, "rows": cell.rows, "stage": stage, "board": cell.board})
        for cell in (*ALL, *USUAL)
        for stage in cell.stages
    }
    assert wanted <= RECORDED.keys()
