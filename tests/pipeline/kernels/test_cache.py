"""Kernels are kept under a hash of all code, and their compilation is announced once."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from numba.core import event

from pipeline.kernels.cache import FirstCompilation, kernel_directory
from tests.launching import process

CODE = Path(__file__).parents[3] / "pipeline"


def test_a_change_in_any_folder_moves_the_kernels(tmp_path: Path) -> None:
    copy = tmp_path / "pipeline"
    shutil.copytree(CODE, copy, ignore=shutil.ignore_patterns("__pycache__", "sample"))
    before = kernel_directory(copy)
    for path in (copy / "base" / "errors.py", copy / "kernels" / "bits.py"):
        path.write_text(path.read_text() + "\n# changed\n")
        after = kernel_directory(copy)
        assert after != before
        before = after


def test_every_kernel_is_defined_after_its_directory_is_set() -> None:
    """The package of each file that uses numba imports `pipeline.kernels.cache` before the file."""
    for path in CODE.rglob("*.py"):
        imports = re.search(r"^\s*(import|from) numba\b", path.read_text(), re.M)
        if imports and path.stem != "cache":
            packages = [folder / "__init__.py" for folder in path.parents if CODE in folder.parents]
            assert any(
                "import pipeline.kernels.cache" in package.read_text()
                for package in packages
                if package.is_file()
            ), path


def test_a_process_takes_kernels_of_this_code(tmp_path: Path) -> None:
    code = (
        "import numba, pipeline.kernels.bits, pathlib, pipeline.kernels.cache as cache\n"
        "here = pathlib.Path(cache.__file__).parents[1]\n"
        "assert numba.config.CACHE_DIR == str(cache.kernel_directory(here))"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = process.run([sys.executable, "-c", code], env=environment, cold=True)
    assert done.returncode == 0, done.stderr


def test_compilation_is_announced_once_and_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compilation = event.Event("numba:compile", event.EventStatus.START)
    for terminal, lines in ((False, 0), (True, 1)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        listener = FirstCompilation()
        listener.on_start(compilation)
        listener.on_start(compilation)
        assert capsys.readouterr().err.count("compiling kernels") == lines
