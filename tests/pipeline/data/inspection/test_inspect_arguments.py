"""Mistakes in the command line of inspect."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import inspect
from tests.pipeline.preparing import Call


@pytest.mark.parametrize(
    "arguments", [["--tokens", -5], ["--samples", -1], ["--sequence", "x"], []]
)
def test_bad_arguments_are_one_line(arguments: list[object], tmp_path: Path, call: Call) -> None:
    given = [tmp_path, *arguments] if arguments else []
    error = call(inspect.main, *given, code=2)
    assert error.startswith("error: ") and error.count("\n") == 1
