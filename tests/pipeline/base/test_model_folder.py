"""A folder or file named `model` that hides ours ends in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def start(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """`python -m pipeline.COMMAND --help` in a directory, ours after it on the path."""
    return subprocess.run(
        [sys.executable, "-m", f"pipeline.{command}", "--help"],
        cwd=directory, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("file", ["model.py", "model/__init__.py"])
def test_what_hides_our_model_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    for command in ("export", "evaluate", "train"):
        result = start(command, tmp_path)
        assert result.returncode == 2
        assert result.stdout == ""
        assert result.stderr.splitlines() == [
            f"error: {tmp_path / file} hides Tenfold's own folder model; run the command in "
            "another directory, or rename yours"
        ]
    assert start("prepare", tmp_path).returncode == 0, "preparing uses no model"


def test_a_terminal_says_that_torch_is_loading(tmp_path: Path) -> None:
    """Elsewhere a mistake stays one line."""
    code = (
        "import sys; from pipeline.base.model_folder import check_imports; "
        "sys.stderr.isatty = lambda: sys.argv[1] == 'terminal'; "
        "check_imports(lambda: None); assert 'torch' in sys.modules"
    )
    line = "\033[Kloading torch\n"
    for place, rank, said in (("terminal", "0", line), ("terminal", "1", ""), ("file", "0", "")):
        done = subprocess.run(
            [sys.executable, "-c", code, place],
            env=os.environ | {"PYTHONPATH": str(ROOT), "LOCAL_RANK": rank}, cwd=tmp_path,
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        assert done.stderr.endswith(said) and bool(done.stderr) == bool(said)


def test_a_folder_without_python_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    result = start("export", tmp_path)
    assert result.returncode == 0, result.stderr
