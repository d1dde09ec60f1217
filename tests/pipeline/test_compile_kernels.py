"""Kernels are compiled ahead of time, and a cache that cannot be written is only a warning."""

import os
import sys
from pathlib import Path

import pytest
from numba.core import event

from pipeline import compile_kernels
from pipeline.kernels.cache import FIRST_COMPILATION
from pipeline.recipes import RECIPES


def test_every_run_names_a_recipe() -> None:
    assert {name for name, _ in compile_kernels.RUNS.values()} <= set(RECIPES)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("none")])
def test_a_cache_that_cannot_be_written_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(folder: Path) -> None:
        sys.argv = ["changed"]
        raise error

    monkeypatch.setenv("TENFOLD_ROOT", "elsewhere")
    monkeypatch.setattr(compile_kernels, "_prepare", fail)
    monkeypatch.setattr(FIRST_COMPILATION, "announced", False)
    before = sys.argv
    compile_kernels.compile_kernels()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("compiling kernels")
    assert second.startswith("warning: kernels are not stored: ")
    assert sys.argv == before and os.environ["TENFOLD_ROOT"] == "elsewhere"


def test_a_terminal_shows_one_announcement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command announces the compilation, so the first kernel does not."""
    compilation = event.Event("numba:compile", event.EventStatus.START)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(FIRST_COMPILATION, "announced", False)
    announce = FIRST_COMPILATION.on_start
    monkeypatch.setattr(compile_kernels, "_prepare", lambda folder: announce(compilation))
    monkeypatch.setattr(compile_kernels, "find_spec", lambda name: None)
    compile_kernels.compile_kernels()
    assert capsys.readouterr().err.count("compiling kernels") == 1
