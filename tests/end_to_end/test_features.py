"""Every feature that the pages promise works from outside: the rows of `features.py`."""

from pathlib import Path

import pytest

from tests.end_to_end.commands import Commands, Row, check, parameters
from tests.end_to_end.features import FEATURES, PREPARATIONS


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory, PREPARATIONS)


@pytest.mark.parametrize("row", parameters(FEATURES))
def test_a_feature(row: Row, commands: Commands, tmp_path: Path) -> None:
    done = commands.run(row.lines, tmp_path)
    assert done.returncode == row.code, done.stdout + done.stderr
    for fact in row.facts:
        check(fact, done, tmp_path)
