"""Slow devices and pairs are named; all pairs are measured, nobody in two at once."""

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
    for name, rates, status, value in (
        ("cuda", [700e12, 710e12, 660e12, 705e12], "warn", "702 TFLOP/s in the middle, c.0 660"),
        ("cuda", [700e12, 710e12, 680e12, 705e12], "ok", "702 TFLOP/s"),
        ("cpu", [1e10, 0.6e10], "ok", ""),
    ):
        (check,) = compare_products(rates, NAMES, name)
        assert check.status == status and (check.value == value or not value)


def test_the_slowest_pair_is_named() -> None:
    """Two nodes are held to an Ethernet."""
    rates = {(0, 1): 40e9, (0, 2): 41e9, (1, 2): 12e9}
    for given, status, threshold, value in (
        (rates, "warn", "20.5", "slowest b.0 to c.0, 12 GB/s each way, fastest 41"),
        (rates | {(1, 2): 30e9}, "ok", "20.5", "slowest b.0 to c.0, 30 GB/s each way, fastest 41"),
        ({(0, 3): 0.02e9}, "warn", "0.1", "slowest a.0 to d.0, 0.02 GB/s each way"),
    ):
        (check,) = compare_pairs(given, NAMES)
        assert (check.status, check.threshold) == (status, f"at least {threshold} GB/s")
        assert check.value == value


def test_code_for_a_device() -> None:
    built = ["sm_75", "sm_80", "sm_86", "sm_90a", "compute_120"]
    for capability, runs in (((7, 0), False), ((7, 5), True), ((8, 6), True), ((9, 0), True)):
        assert supports(capability, built) is runs
    assert supports((12, 0), built) and not supports((10, 0), built[:-1])
