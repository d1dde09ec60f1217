"""Bad input ends every command with exit code 2, names the value, and writes nothing."""

import re
from pathlib import Path

import pytest

from tests.end_to_end.bad_input import BAD_INPUT, KEPT
from tests.end_to_end.commands import Commands, files
from tests.end_to_end.features import PREPARATIONS


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory, PREPARATIONS)


@pytest.mark.parametrize(("lines", "word"), BAD_INPUT.items(), ids=BAD_INPUT)
def test_bad_input(lines: str, word: str, commands: Commands, tmp_path: Path) -> None:
    *before, bad = lines.splitlines()
    commands.link(lines, tmp_path)
    if before:
        assert commands.run(tuple(before), tmp_path).returncode == 0
    there = files(tmp_path)
    done = commands.run((bad,), tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert word in done.stdout + done.stderr, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    changed = {name for name, about in files(tmp_path).items() if there.get(name) != about}
    assert not {name for name in changed if not re.search(KEPT, name)}
