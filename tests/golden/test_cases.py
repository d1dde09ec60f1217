"""Every recorded case is as it was recorded, see README.md."""

from pathlib import Path

import pytest

from tests.golden.cases import CASES
from tests.golden.compare import Case, differences, recorded


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=[pytest.mark.slow] * case.slow) for case in CASES],
)
def test_as_recorded(case: Case, tmp_path: Path) -> None:
    found = differences(recorded(case.name), case.run(tmp_path), case.tolerance)
    assert not found, "\n".join([f"{case.name} differs:", *found])


def test_nothing_else_is_recorded() -> None:
    """A case that is removed takes its line along."""
    names = {case.name for case in CASES}
    for kind in {name.partition("/")[0] for name in names if "/" in name}:
        assert {f"{kind}/{line}" for line in recorded(kind)} <= names
