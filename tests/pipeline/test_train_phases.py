"""Phases that change masks, mixture and dropout, with DeepSpeed; test_feed.py has a plain loop."""

import json
import signal
import sys
from pathlib import Path

import pytest

from pipeline import train
from pipeline.loading.dataset import Dataset
from pipeline.training.run_directory.metrics_log import read_metrics
from tests.pipeline.conftest import (
    NO_DROPOUT,
    STEPS,
    Arguments,
    launch,
    started,
    train_jobs,
    with_data,
)
from tests.pipeline.phase_data import drawn_anew, of_corpus
from tests.pipeline.preparing import Call
from tests.pipeline.test_train import assert_same, wait_for

CORPORA = ("books", "stories")
MIXTURE = [{"corpus": "books", "weight": 3}, {"corpus": "stories", "weight": 1}]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory, lesson: Path) -> tuple[Path, ...]:
    """Directories of one corpus each, whose masks are drawn in each epoch."""
    folder = tmp_path_factory.mktemp("corpora")
    anew = drawn_anew(lesson, folder / "all")
    return tuple(of_corpus(anew, corpus, folder / corpus) for corpus in CORPORA)


@pytest.fixture(scope="module")
def changing(arguments: Arguments, corpora: tuple[Path, ...]) -> Arguments:
    """A run of three phases: other masks and dropout, then a mixture, then neither.

    With Google's Adam and schedule, whose resume is checked with it.
    """
    phase = {"steps": 7, "sequence_length": 32, "sequences": 64}
    high = ["data.masks.rate=0.3", "data.masking=whole_word", "encoder.dropout=0.3"]
    mixed = [f"batch.mixture={json.dumps(MIXTURE)}", "encoder.attention_dropout=0.1"]
    phases = [{**phase, "settings": high}, {**phase, "settings": mixed}]

    def build(run: Path, *extra: object, **settings: object) -> list[str]:
        parts = arguments(
            run, *extra, phases=json.dumps(phases), data__mask_mode="per-epoch",
            data__duplicates=0, **NO_DROPOUT, batch__sequences=64, batch__per_device=16,
            checkpoint__every=5, optimizer__kind="adamw", optimizer__bias_correction="false",
            schedule__kind="linear_from_start", **settings,
        )  # fmt: skip
        return with_data(parts, *corpora)

    return build


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, changing: Arguments) -> Path:
    """A folder with the uninterrupted run, and one that stopped around its boundaries."""
    folder = tmp_path_factory.mktemp("changing")
    stops = [changing(folder / "stops", "--stop-at", stop) for stop in (6, 7, 10, 14, 15, STEPS)]
    train_jobs(folder / "jobs.json", [changing(folder / "whole"), *stops])
    return folder


def test_phases_change_what_they_say(whole: Path, corpora: tuple[Path, ...]) -> None:
    found = read_metrics(whole / "whole")
    assert [line["phase"] for line in found] == [1] * 7 + [2] * 7 + [3] * 6
    counts = [line["predictions"] for line in found]
    per_step = [now - before for before, now in zip([0, *counts], counts, strict=False)]
    assert min(per_step[:7]) > 1.5 * max(per_step[7:])
    state = json.loads((whole / "whole/checkpoints/step-00000020/state.json").read_text())
    # one order by size in phases 1 and 3, and the mixture's
    assert [reading[:2] for reading in state["readings"]] == [[32, 13 * 64], [65_568, 7 * 64]]
    rows = [int(Dataset.open(path).piece_rows.sum()) for path in corpora]
    assert abs(rows[0] / sum(rows) - 0.75) > 0.05  # the mixture is not that of the sizes


def test_a_stop_around_a_boundary_changes_no_bit(whole: Path) -> None:
    assert_same(whole / "stops", whole / "whole")


def test_a_kill_inside_a_phase_changes_no_bit(
    whole: Path, changing: Arguments, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pipeline.train", *changing(tmp_path / "run")]
    with started(*command) as process:
        wait_for(tmp_path / "run" / "checkpoints" / "step-00000010", process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "run" / "checkpoints" / f"step-{STEPS:08}").exists()
    result = launch(*command)
    assert result.returncode == 0, result.stderr
    assert_same(tmp_path / "run", whole / "whole")


def test_the_plan_shows_what_changes(changing: Arguments, call: Call, tmp_path: Path) -> None:
    said = call(train.main, *changing(tmp_path / "run", "--dry-run"))
    for part in ("data.masks.rate=0.3", "data.masking=whole_word", "encoder.dropout=0.3"):
        assert part in said.partition("phase 1: steps 1 to 7, sequences of 32")[2].splitlines()[0]
    assert "    mixture: 2 corpora by batch.mixture\n      books " in said
    assert " 75.000% " in said and "phase 3: steps 15 to 20, sequences of" in said
