"""Slow devices and pairs are named; all pairs are measured, nobody in two at once."""

from __future__ import annotations

from itertools import combinations

import pytest

from pipeline.diagnosis.rates import compare_pairs, compare_products, rounds, supports

NAMES = ["a.0", "b.0", "c.0", "d.0"]


@pytest.mark.parametrize("ranks", [(0, 8), (0, 8, 16), (3, 1, 4, 9), tuple(range(13))])
def test_every_pair_has_one_round(ranks: tuple[int, ...]) -> None:
    found = list(rounds(ranks))
    assert len(found) == len(ranks) - 1 + len(ranks) % 2
    for pairs in found:
        assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)
    whole = sorted(pair for pairs in found for pair in pairs)
    assert whole == sorted(combinations(sorted(ranks), 2))


def test_a_slow_device_is_named() -> None:
    (check,) = compare_products([700e12, 710e12, 660e12, 705e12], NAMES, "cuda")
    assert (check.status, check.value) == ("warn", "702 TFLOP/s in the middle, c.0 660")
    (check,) = compare_products([700e12, 710e12, 680e12, 705e12], NAMES, "cuda")
    assert (check.status, check.value) == ("ok", "702 TFLOP/s")
    (check,) = compare_products([1e10, 0.6e10], NAMES, "cpu")
    assert check.status == "ok"


def test_the_slowest_pair_is_named() -> None:
    rates = {(0, 1): 40e9, (0, 2): 41e9, (1, 2): 12e9}
    (check,) = compare_pairs(rates, NAMES)
    assert check.status == "warn" and check.threshold == "at least 20.5 GB/s"
    assert check.value == "slowest b.0 to c.0, 12 GB/s each way, fastest 41"
    (check,) = compare_pairs(rates | {(1, 2): 30e9}, NAMES)
    assert check.status == "ok"


def test_two_nodes_are_held_to_an_ethernet() -> None:
    (check,) = compare_pairs({(0, 8): 0.02e9}, [f"n.{r}" for r in range(9)])
    assert (check.status, check.threshold) == ("warn", "at least 0.1 GB/s")
    assert check.value == "slowest n.0 to n.8, 0.02 GB/s each way"


@pytest.mark.parametrize(
    ("capability", "runs"),
    [((7, 0), False), ((7, 5), True), ((8, 6), True), ((9, 0), True), ((12, 0), True)],
)
def test_code_for_a_device(capability: tuple[int, int], runs: bool) -> None:
    built = ["sm_75", "sm_80", "sm_86", "sm_90a", "compute_120"]
    assert supports(capability, built) is runs
    assert not supports((10, 0), built[:-1])
