"""--help and mistakes need no torch; the rest ends in a line without it."""

import os
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


def test_help_and_mistakes_need_no_torch_and_a_dry_run_says_what_is_missing(tmp_path: Path) -> None:
    shown = without_torch(tmp_path, "pipeline.train", "--help")
    assert shown.returncode == 0 and "--dry-run" in shown.stdout, shown.stderr
    result = without_torch(tmp_path, "pipeline.export", "run")
    assert result.returncode == 2 and "required: --output" in result.stderr
    for command in (
        "pipeline.train roberta_tiny --data x --output y --dry-run",
        "pipeline.export run --output y",
        "pipeline.evaluate run --data x",
    ):
        result = without_torch(tmp_path, *command.split())
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert result.stderr.startswith(
            "error: torch cannot be imported (No module named 'torch'): install the build that "
        )


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
