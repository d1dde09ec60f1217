"""Training under DeepSpeed's ZeRO equals unsharded training, at every stage on 1 to 4 ranks.

One launch per number of ranks trains the toy in every setting (zero_worker.py).
"""

import re
from itertools import combinations
from typing import Any

import pytest

from tests.pipeline.training import zero_settings
from tests.pipeline.training.zero_launch import measured
from tests.pipeline.training.zero_settings import MORE, WORLD_SIZES, Setting, usual, whole

FACTOR = 3
"""Largest distance allowed, in floors."""


LAUNCHES = [
    (2, "usual"), (3, "usual"),
    *(pytest.param(ranks, "whole", marks=pytest.mark.slow) for ranks in WORLD_SIZES),
]  # fmt: skip
"""Ranks, and which of the settings for so many they train."""


def check_equal(results: list[dict[str, Any]], expected: list[Setting]) -> None:
    """All settings are there, within the limit of a floor that is only rounding."""
    assert [Setting(*(r[field] for field in Setting._fields)) for r in results] == expected
    for result in results:
        assert 0 < result["floor"] < (1e-4 if result["precision"] == "fp32" else 0.05)
        assert result["distance"] <= FACTOR * result["floor"], result


@pytest.mark.parametrize(("world_size", "what"), LAUNCHES)
def test_equals_an_unsharded_run_at_every_stage(world_size: int, what: str) -> None:
    settings = {"usual": usual, "whole": whole}[what]
    check_equal(measured(world_size, what)["exact"], settings(world_size))


@pytest.mark.parametrize(("world_size", "what"), LAUNCHES)
def test_what_holds_in_every_setting(world_size: int, what: str) -> None:
    """Padding stays zero, weights that are written through fragments reach the model, and a
    gradient that is not finite on one rank changes nothing.

    A step of ours is at most two small collectives: a float64 for the clip norm, and per logical
    parameter two for LAMB's norms and one for StableAdamW's RMS. No micro-batch waits for the
    device, as far as a CPU can show: neither DeepSpeed nor we read a tensor's value, but for
    DeepSpeed where it offloads. Stage 0 in bf16 runs as stage 1.
    """
    sizes = {"adamw": 0, "uncorrected": 0, "stable_adamw": 8}
    for result in measured(world_size, what)["exact"]:
        for fact in ("padding_is_zero", "refreshed", "non_finite_skipped"):
            assert result[fact], (fact, result)
        bf16 = result["precision"] == "bf16"
        assert result["runs_as"] == max(result["stage"], int(bf16)), result
        each = sizes.get(result["kind"], 16) * result["logical"]
        alone = result["runs_as"] == 0 or result["world_size"] == 1
        calls = {} if alone else {"allreduce float64": 1 + bool(each)}
        assert result["calls"] == calls and result["sent"] == dict.fromkeys(calls, 8 + each), result
        assert result["offload"] or result["waits"] == 0, result


def test_what_is_always_trained_has_each_combination_of_two() -> None:
    axes = "kind", "precision", "stage", "clip_norm", "accumulation", "offload"
    for world_size in (2, 3):
        for axis, other in combinations(axes, 2):
            some, every = (
                {(getattr(s, axis), getattr(s, other)) for s in chosen(world_size)}
                for chosen in (usual, whole)
            )
            assert some == every, (world_size, axis, other, every - some)


@pytest.mark.slow
def test_does_not_drift() -> None:
    """After 300 steps as close to the reference, by the same limit, as after a few."""
    check_equal(measured(2, "drift")["exact"], zero_settings.DRIFT)


@pytest.mark.parametrize(
    ("world_size", "what", "stages"),
    [(2, "usual", [1, 3]), pytest.param(3, "whole", [1], marks=pytest.mark.slow)],
)
def test_naive_lamb_does_not(world_size: int, what: str, stages: list[int]) -> None:
    """The limit detects a LAMB that takes norms of ZeRO's flat tensors instead of weights."""
    results = measured(world_size, what)["naive"]
    assert [result["stage"] for result in results] == stages
    for result in results:
        # or NaN: at stage 3 its norms include uninitialised memory
        assert not result["distance"] <= 10_000 * result["floor"], result


def test_clipping_sees_the_same_norm_at_every_stage() -> None:
    """Differs only by rounding of the weights; the first step's weights are the same."""
    results = measured(2, "usual")["exact"]
    norms = [r["norms"] for r in results if (r["kind"], r["steps"]) == ("lamb", MORE)]
    assert len(norms) == 4
    for other in norms[1:]:
        assert other == pytest.approx(norms[0], rel=1e-4)
        assert other[0] == pytest.approx(norms[0][0], rel=1e-6)
    assert min(norms[0]) > 0.2


@pytest.mark.slow
def test_works_alone_and_quietly() -> None:
    """No launcher, no output: neither DeepSpeed's log nor its warnings."""
    result = measured(1, "whole")
    assert result["stdout"] == result["stderr"] == ""


def test_layouts_that_are_or_may_be_misread_are_refused() -> None:
    """round_robin_gradients: refused by name; without that check, the weights reveal it."""
    refusals = measured(2, "usual")["refusals"]
    assert refusals["guarded"].startswith("round_robin_gradients=True is not supported")
    assert "is not where DeepSpeed reports it" in refusals["unguarded"]
    assert refusals["hpz"].startswith("zero_hpz_partition_size=2 is not supported")
    assert re.match(r"DeepSpeed [\d.]+ is not the tested version 0\.0\.1; ", refusals["version"])


def sent_by_toy(precision: str, stage: int) -> dict[str, dict[str, int]]:
    """Bytes of a step of two micro-batches on two ranks; 1,954 elements, padded by ZeRO."""
    elements, padded, cut, logical = 1_954, 1_956, 1_964, 16
    weight, name = (2, "bfloat16") if precision == "bf16" else (4, "float32")
    if stage == 3:
        return {
            "backward": {f"allgather_base {name}": 2 * weight * cut,
                         "reduce_scatter_base float32": 2 * 4 * cut},
            "step": {"allreduce float64": 8 + 16 * logical},
        }  # fmt: skip
    times = 2 if stage == 2 else 1  # else once, after the last micro-batch
    if precision == "bf16" and stage < 2:
        elements = padded  # BF16_Optimizer's flat buffer
    gathered = {"allreduce float64": 8 + 16 * logical, f"allgather_base {name}": weight * padded}
    return {
        "backward": {"allreduce float32": times * 4 * elements},
        "step": gathered if stage or precision == "bf16" else {},
    }


@pytest.mark.parametrize("what", ["usual", pytest.param("whole", marks=pytest.mark.slow)])
def test_a_step_sends_and_waits_for_what_ds_configs_says(what: str) -> None:
    """Collectives by kind, type and bytes; a LAMB step reads the clip norm and the weights' norms.

    The other value that stage 3 reads is in host memory.
    """
    results = measured(2, what)["traffic"]
    settings = [(found["precision"], found["stage"], found["zero"]) for found in results]
    assert settings == zero_settings.TRAFFIC[what]
    for found in results:
        assert found["sent"] == sent_by_toy(found["precision"], found["stage"]), found
        reads = {"item": 2 if found["stage"] == 3 else 1, "tolist": 1}
        assert found["waits"] == {"backward": {}, "step": reads}, found
