"""--help and mistakes need no torch; the rest ends in a line without it."""

import sys
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.training.network_arguments import parse_train
from tests.launching.process import ROOT
from tests.pipeline.conftest import Arguments, job
from tests.pipeline.preparing import finish

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "deepspeed", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocker())
"""
MISSING = "torch cannot be imported (No module named 'torch'): install the build that "


def test_help_and_mistakes_need_no_torch_and_a_dry_run_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    for command, code, output, errors in (
        ("train --help", 0, "--dry-run", ""),
        ("export run", 2, "", "required: --output"),
        ("train roberta_tiny --data x --output y --dry-run", 2, "", MISSING),
        ("export run --output y", 2, "", MISSING),
        ("evaluate run --data x", 2, "", MISSING),
    ):
        module, *words = command.split()
        place = f"{tmp_path}:{ROOT}"
        result = finish(sys.executable, "-m", f"pipeline.{module}", *words, PYTHONPATH=place)
        assert result.returncode == code, result.stderr
        assert output in result.stdout and errors in result.stderr
        if errors == MISSING:
            assert result.stdout == "" and result.stderr.startswith("error: ")
            assert result.stderr.count("\n") == 1


def test_ranks_to_plan_for(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's own argument is accepted."""
    for words, message in (
        ("--ranks 8", "--ranks and --verbose belong to --dry-run; remove them, or add it"),
        ("--verbose", "--ranks and --verbose belong to --dry-run"),
        ("--dry-run --ranks 0", "--ranks 0 is not a number of processes"),
        ("--dry-run --ranks -2", "--ranks -2 is not a number of processes"),
    ):
        with pytest.raises(ConfigError, match=message):
            job(monkeypatch, arguments(Path("run"), *words.split()))
    monkeypatch.setattr(sys, "argv", ["train", *arguments(Path("run"), "--local_rank", 0)])
    assert parse_train().ranks is None
