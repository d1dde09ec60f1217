from __future__ import annotations

import ast
from pathlib import Path

from pipeline.base.command_table import COMMANDS

ROOT = Path(__file__).parents[3]


def test_every_command_is_listed() -> None:
    found = set()
    for path in (ROOT / "pipeline").glob("*.py"):
        last = ast.parse(path.read_text()).body[-1]
        if 'if __name__ == "__main__"' in path.read_text():
            assert isinstance(last, ast.If), f"{path.name} defines something after it has run"
            found.add(path.stem)
    assert found - {"tenfold"} == set(COMMANDS)
