"""The planted mistakes of `tests/breaks.py` still fit the code, and a dozen of them are noticed."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.breaks import CATCHERS, FAULTS, ROOT, copies, outcome

DOZEN = (
    "special tokens are predicted", "the second segment starts a token late",
    "an order that meets places twice", "kept words count as masked",
    "a mixture starts its cycles again", "an inverse root rises", "ranks differ in micro-batches",
    "lost fsync", "a part does another's share", "a model is padded downwards",
    "ties have the rank of the last", "weights are not aligned",
)  # fmt: skip
"""Quick ones of the faults that would cost a model; `make test-all` plants all."""
GOING = (
    "pipeline/remote/", "pipeline/ingest/extraction/packs.py",
    "pipeline/ingest/extraction/extract.py",
)  # fmt: skip
"""Files that will be dropped with their mistakes, whose tests are still those of the file."""


def test_every_mistake_fits_the_code() -> None:
    assert len(FAULTS) >= 219
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    for fault in FAULTS:
        assert (ROOT / fault.file).read_text().count(fault.old) == 1, fault
        assert fault.tests, fault
        for test in fault.tests:
            file, _, name = re.split(r"\[| -k ", test)[0].partition("::")
            assert (ROOT / file).exists(), fault
            assert not name or f"def {name}(" in (ROOT / file).read_text(), fault
            assert test.startswith(CATCHERS) or fault.file.startswith(GOING), fault


@pytest.fixture(scope="module")
def checkout() -> Path:
    """A copy of the product."""
    with copies(1) as free:
        yield free.get()


@pytest.mark.parametrize("name", DOZEN)
def test_a_mistake_is_noticed(name: str, checkout: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    assert not outcome(fault, checkout).problem
