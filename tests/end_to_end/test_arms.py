"""Arms of the papers' tables train: three steps each, unchanged, on the sample corpus."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.config.data_settings import shard_settings
from pipeline.config.settings import fingerprint
from pipeline.experiments.arms import TABLES, Arm, run_of, table
from pipeline.training.run_directory.metrics_log import read_metrics
from tests.conftest import Command
from tests.pipeline.conftest import train_jobs

STEPS = 3


def changed(arm: Arm) -> list[str]:
    return [word for change in arm.changes for word in ("--set", change)]


def shards_of(arm: Arm, folder: Path, command: Command) -> Path:
    """The sample as the arm reads it, prepared once per format in `folder`."""
    output = folder / fingerprint(shard_settings(run_of(arm).data))
    if not output.exists():
        result = command(
            "prepare", "--corpus", "sample", "--recipe", arm.recipe, *changed(arm),
            "--output", output, "--workers", 1, TENFOLD_ROOT=str(folder),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    return output


def train_and_check(arms: Sequence[tuple[Arm, Path]], folder: Path) -> None:
    """Three steps of each arm and its shards, in one process: each has a loss, and as many tokens
    as the arm's batch is to have."""
    jobs = [
        [arm.recipe, "--data", str(shards), "--output", str(folder / arm.name),
         "--stop-at", str(STEPS), "--set", "logging.every=1", *changed(arm)]
        for arm, shards in arms
    ]  # fmt: skip
    train_jobs(folder / "jobs.json", jobs)
    for arm, _ in arms:
        run, lines, name = run_of(arm), read_metrics(folder / arm.name), arm.name
        assert [line["step"] for line in lines] == [1, 2, 3], name
        assert all(math.isfinite(line["loss"]) and line["grad_norm"] > 0 for line in lines), name
        tokens = lines[-1]["tokens"] / STEPS  # counted since the run began
        if run.batch.step_tokens:
            assert tokens == pytest.approx(run.batch.step_tokens, rel=0.1), name
        else:
            assert lines[-1]["sequences"] == STEPS * run.batch.sequences, name


def test_one_arm_of_two_tables_trains(prepared: Path, tmp_path: Path, command: Command) -> None:
    ten = next(arm for arm in table("roberta/masking", "smoke").arms if arm.name == "ten")
    pair, *_ = table("roberta/formats", "smoke").arms
    train_and_check([(ten, prepared), (pair, shards_of(pair, tmp_path, command))], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_arm_trains(name: str, tmp_path: Path, command: Command) -> None:
    arms = table(name, "smoke").arms
    train_and_check([(arm, shards_of(arm, tmp_path, command)) for arm in arms], tmp_path)
