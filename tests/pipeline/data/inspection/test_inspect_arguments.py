from pathlib import Path

import pytest

from pipeline import inspect
from tests.pipeline.preparing import Call


@pytest.mark.parametrize("words", [["--tokens", -5], ["--samples", -1], ["--sequence", "x"], None])
def test_bad_arguments_are_one_line(words: list[object] | None, tmp_path: Path, call: Call) -> None:
    given = [] if words is None else [tmp_path, *words]
    error = call(inspect.main, *given, code=2)
    assert error.startswith("error: ") and error.count("\n") == 1
