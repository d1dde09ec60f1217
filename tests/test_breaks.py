"""The planted mistakes of `tests/breaks.py` still fit the code, and a dozen of them are noticed."""

from collections import Counter
from pathlib import Path

import pytest

from tests.breaks import FAULTS, ROOT, copies, notices

DOZEN = (
    "special tokens are predicted", "the second segment starts a token late",
    "an order that meets places twice", "kept words count as masked",
    "a mixture starts its cycles again", "the peak comes a step late", "no trust ratio",
    "one checkpoint too few is kept", "a part does another's share", "a rank holds all moments",
    "ties have the rank of the last", "a fragment is read from its start",
)  # fmt: skip
"""Quick ones of the faults that would cost a model; `make test-all` plants all."""


def test_every_mistake_fits_the_code() -> None:
    assert len(FAULTS) >= 219
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    for fault in FAULTS:
        assert (ROOT / fault.file).read_text().count(fault.old) == 1, fault
        assert (ROOT / fault.tests).exists(), fault


@pytest.fixture(scope="module")
def checkout() -> Path:
    """A copy of the product."""
    with copies(1) as free:
        yield free.get()


@pytest.mark.parametrize("name", DOZEN)
def test_a_mistake_is_noticed(name: str, checkout: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    assert notices(fault, checkout) == ""
