"""A folder or file named `model` that hides ours ends in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.base import model_folder
from tests.launching import process


def start(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """`python -m pipeline.COMMAND --help` in a directory, ours after it on the path."""
    words = [sys.executable, "-m", f"pipeline.{command}", "--help"]
    path = os.environ | {"PYTHONPATH": str(process.ROOT)}
    return process.run(words, cwd=directory, env=path, cold=True)


@pytest.mark.parametrize(
    ("file", "command"), [("model.py", "export"), ("model/__init__.py", "train")]
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


def test_a_terminal_says_that_torch_is_loading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere a mistake stays one line."""
    imported: list[str] = []
    monkeypatch.setattr(model_folder, "import_module", imported.append)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    line = "\r\033[Kloading torch\n"
    for isatty, rank, said in ((True, "0", line), (True, "1", ""), (False, "0", "")):
        monkeypatch.setattr(sys.stderr, "isatty", isatty.__bool__)
        monkeypatch.setenv("LOCAL_RANK", rank)
        model_folder.check_imports(lambda: None)
        assert capsys.readouterr() == ("", said)
    assert imported == ["torch"] * 3
