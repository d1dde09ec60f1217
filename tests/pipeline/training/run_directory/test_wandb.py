"""A run of two ranks logs to Weights & Biases offline and resumes; wandb's files are read back."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.training.run_directory.boards import board_tag
from pipeline.training.run_directory.metrics_log import read_metrics
from tests.launching.environments import install_beside
from tests.pipeline.conftest import STEPS, Arguments

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("wandb_worker.py")
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return install_beside(tmp_path_factory.mktemp("wandb") / "venv", "wandb", "wandb==0.31.0")
    except RuntimeError as error:
        pytest.skip(str(error))


def train(python: Path, parts: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """`python -m pipeline.train` on two ranks."""
    command = [
        python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m",
        "pipeline.train", *parts,
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    home = python.parents[2] / "home"  # no settings or credentials of the user's
    home.mkdir(exist_ok=True)
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(home)} | more
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return result


def lives(python: Path, run: Path) -> list[dict[str, Any]]:
    """What wandb's files hold, the oldest first."""
    files = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))
    found = subprocess.run([python, WORKER, *files], capture_output=True, text=True, check=True)
    read: list[dict[str, Any]] = json.loads(found.stdout)
    return read


def test_offline_files_hold_each_step_once_under_one_id(
    python: Path, arguments: Arguments, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    to = ("--set", 'logging.to=["tensorboard", "wandb"]')
    parts = arguments(run, *to, batch__per_device=8)
    train(python, [*parts, "--stop-at", "14"], WANDB_MODE="offline")
    shutil.rmtree(run / "checkpoints" / "step-00000014")  # as if killed before it was saved
    result = train(python, parts, WANDB_MODE="offline")
    assert "names 'step-00000014', which is not there" in result.stderr
    first, second = lives(python, run)
    assert first["id"] == second["id"] == (run / "wandb" / "id").read_text()
    assert first["config"]["optimizer"]["peak_lr"] == 0.02
    assert first["config"]["data"]["masks"]["rate"] == 0.15
    assert not second["config"].keys() & first["config"].keys() - {"_wandb"}
    history = [*first["history"], *second["history"]]
    assert [line["_step"] for line in history] == [*range(1, STEPS + 1)]
    lines = read_metrics(run)
    for shown, written in zip(history, lines, strict=True):
        for name in ("loss", "learning_rate", "tokens"):
            assert shown[board_tag(name)] == pytest.approx(written[name], rel=1e-6)
    assert history[-1]["validation/loss"] == lines[-1]["validation_loss"]
    assert list((run / "tensorboard").iterdir())


def test_training_continues_without_key(python: Path, arguments: Arguments, tmp_path: Path) -> None:
    """Online, with nobody to ask for one."""
    run = tmp_path / "run"
    result = train(python, arguments(run, "--set", 'logging.to=["wandb"]', batch__per_device=8))
    assert f"warning: wandb stopped logging {run} (" in result.stderr
    assert len(read_metrics(run)) == STEPS and not (run / "wandb" / "id").exists()
