"""Every feature that the pages promise works from outside: the rows of `features.py`."""

import re
from pathlib import Path

import pytest

from tests.end_to_end.commands import Commands, Row, check, parameters, run_line
from tests.end_to_end.features import FEATURES, NO_ROW, PREPARATIONS


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory, PREPARATIONS)


@pytest.mark.parametrize("row", parameters(FEATURES))
def test_a_feature(row: Row, commands: Commands, tmp_path: Path) -> None:
    done = commands.run(row.lines, tmp_path)
    assert done.returncode == row.code, done.stdout + done.stderr
    for fact in row.facts:
        check(fact, done, tmp_path)


def test_every_option_has_a_row(tmp_path: Path) -> None:
    """Of every command that `tenfold` lists; those without a row are named in `NO_ROW`."""
    lines = [line for row in FEATURES for line in row.lines]
    lines += [line for preparation in PREPARATIONS.values() for line in preparation.splitlines()]
    used = set(re.findall(r"--[a-z][a-z0-9-]+", " ".join(lines)))
    listed = run_line("tenfold", tmp_path).stdout.partition("commands:")[2]
    names = set(re.findall(r"^  ([a-z_]+) ", listed, re.M)) - {"recipes", "settings", "compile"}
    assert len(names) > 9, listed
    missing = set()
    for name in names:
        assert any(re.search(rf"(^|\d ){name}( |$)", line.strip()) for line in lines), name
        usage = run_line(f"{name} --help", tmp_path).stdout
        missing |= set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]+)", usage, re.M)) - used
    assert missing - {"--help"} == NO_ROW
