"""Mutated input of every kind ends in one line or in counted reasons; see fuzz.py."""

import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzz import random_of
from tests.fuzz.mutations import bytes_mutated, value_mutated
from tests.fuzz.targets import TARGETS
from tests.launching import process

SMALL = ("scores", "tasks", "arms", "lists")
FUZZ = Path(__file__).with_name("fuzz.py")


def findings(target: str, cases: int) -> str:
    """The report of a target if it has findings, or ""."""
    done = process.run([sys.executable, FUZZ, target, "--cases", cases])
    print(done.stdout)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - {"manifest", "shards"}))
def test_a_few_cases_or_a_few_hundred_of_small_files(target: str) -> None:
    assert not (found := findings(target, 200 if target in SMALL else 25)), found


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_ten_thousand_cases(target: str) -> None:
    assert not (found := findings(target, 10_000)), found


def test_a_number_gives_the_same_case() -> None:
    target = TARGETS["tar"]
    first, again = (bytes_mutated(bytes(999), random_of(target, 7)) for _ in range(2))
    assert first == again != bytes_mutated(bytes(999), random_of(target, 8))
    value = {"a": [1, {"b": "c"}], "d": 0.5}
    changed = [repr(value_mutated(value, random_of(target, case))) for case in range(99)]
    assert len(set(changed)) > 50 and value == {"a": [1, {"b": "c"}], "d": 0.5}
