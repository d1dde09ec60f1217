"""--help and mistakes need no torch; the rest ends in a line without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.training.network_arguments import parse_train
from tests.pipeline.conftest import Arguments, job

ROOT = Path(__file__).parents[3]
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "deepspeed", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocker())
"""


def without_torch(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m pipeline.ARGUMENTS` where torch cannot be imported."""
    (directory / "sitecustomize.py").write_text(BLOCKER)
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{directory}:{ROOT}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_help_needs_no_torch_and_a_dry_run_says_what_is_missing(tmp_path: Path) -> None:
    shown = without_torch(tmp_path, "pipeline.train", "--help")
    assert shown.returncode == 0 and "--dry-run" in shown.stdout, shown.stderr
    for command in (
        ("pipeline.train", "roberta_tiny", "--data", "x", "--output", "y", "--dry-run"),
        ("pipeline.export", "run", "--output", "y"),
        ("pipeline.evaluate", "run", "--data", "x"),
    ):
        result = without_torch(tmp_path, *command)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == (
            "error: torch cannot be imported (No module named 'torch'): install the build that "
            "fits this machine, then pip install '.[training]'\n"
        )


def test_a_mistake_in_the_command_line_is_found_without_torch(tmp_path: Path) -> None:
    result = without_torch(tmp_path, "pipeline.export", "run")
    assert result.returncode == 2 and "required: --output" in result.stderr


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--ranks", "8"], "--ranks and --verbose belong to --dry-run; remove them, or add it"),
        (["--verbose"], "--ranks and --verbose belong to --dry-run"),
        (["--dry-run", "--ranks", "0"], "--ranks 0 is not a number of processes"),
        (["--dry-run", "--ranks", "-2"], "--ranks -2 is not a number of processes"),
    ],
)
def test_ranks_to_plan_for(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, extra: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        job(monkeypatch, arguments(Path("run"), *extra))


def test_the_launchers_argument_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["train", "roberta_tiny", "--data", "x", "--output", "y", "--local_rank", "0"]
    monkeypatch.setattr(sys, "argv", line)
    assert parse_train().ranks is None
