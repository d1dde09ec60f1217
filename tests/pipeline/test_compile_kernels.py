"""Kernels are compiled ahead of time, and a cache that cannot be written is only a warning."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline import compile_kernels
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
    before = sys.argv
    compile_kernels.compile_kernels()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("compiling kernels")
    assert second.startswith("warning: kernels are not kept: ")
    assert sys.argv == before and os.environ["TENFOLD_ROOT"] == "elsewhere"
