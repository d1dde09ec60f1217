"""A folder or file named `model` that hides ours ends in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import process


def start(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """`python -m pipeline.COMMAND --help` in a directory, ours after it on the path."""
    words = [sys.executable, "-m", f"pipeline.{command}", "--help"]
    path = os.environ | {"PYTHONPATH": str(process.ROOT)}
    return process.run(words, cwd=directory, env=path, cold=True)


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("model.py", "export"),
        ("model/__init__.py", "train"),
        pytest.param("model.py", "evaluate", marks=pytest.mark.slow),
    ],
)
def test_what_hides_our_model_is_named(tmp_path: Path, file: str, command: str) -> None:
    """Preparing uses no model, and a folder without Python hides nothing."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    if file != "model.py":
        assert start(command, tmp_path).returncode == 0
    (tmp_path / file).write_text("")
    result = start(command, tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    said = f"error: {tmp_path / file} hides Tenfold's own folder model; run the command in "
    assert result.stderr.startswith(said) and result.stderr.count("\n") == 1
    assert file != "model.py" or start("prepare", tmp_path).returncode == 0


def test_a_terminal_says_that_torch_is_loading() -> None:
    """Elsewhere a mistake stays one line."""
    code = (
        "import sys; from pipeline.base.model_folder import check_imports; "
        "sys.stderr.isatty = lambda: sys.argv[1] == 'terminal'; "
        "check_imports(lambda: None); assert 'torch' in sys.modules"
    )
    line = "\033[Kloading torch\n"
    for place, rank, said in (("terminal", "0", line), ("terminal", "1", ""), ("file", "0", "")):
        done = process.run(
            [sys.executable, "-c", code, place], env=os.environ | {"LOCAL_RANK": rank}, cold=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.endswith(said) and bool(done.stderr) == bool(said)
