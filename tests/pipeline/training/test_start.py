"""What may differ between a run and the job that resumes it; test_train.py resumes runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError, ConfigError, DataError
from pipeline.training import start
from tests.pipeline.conftest import NO_DROPOUT, PAIRS_SHIPPED, Arguments, job
from tests.pipeline.test_train import alone


@pytest.mark.parametrize(
    ("extra", "settings", "message"),
    [
        ([], {"optimizer__peak_lr": 0.1}, "was started with optimizer.peak_lr=0.02, now it is 0.1"),
        ([], {"steps": 21}, "was started with steps=20, now it is 21"),
        ([], {"encoder__dropout": 0.1}, "was started with encoder.dropout=0.0, now it is 0.1"),
        ([], {"validation__mask_rate": 0.1}, "with validation.mask_rate=0.0, now it is 0.1"),
        ([], {"batch__sequences": 8}, "was started with batch.sequences=16, now it is 8"),
    ],
)
def test_another_run_in_the_same_directory_is_refused(
    trained: Path,
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    extra: list[str],
    settings: dict[str, Any],
    message: str,
) -> None:
    chosen = NO_DROPOUT | settings
    asked = job(monkeypatch, arguments(trained / "1x16", *extra, **chosen))
    with pytest.raises(CheckpointError, match=re.escape(message)):
        start.open_run(asked, alone())


def test_what_may_change_on_resume_may_change(
    trained: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {
        "batch__per_device": 4, "validation__every": 5, "checkpoint__every": 5,
        "checkpoint__keep": 1, "logging__every": 2,
        "validation__grammar": PAIRS_SHIPPED, "validation__grammar_pairs": 3,
    }  # fmt: skip
    asked = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT, **free))
    record, data = start.open_run(asked, alone())
    assert record.run == asked.run and data.phases[0].plan.accumulation == 4
    assert data.grammar and {len(part.pairs) for part in data.grammar.paradigms} == {3}


def test_pairs_that_cannot_be_scored_are_refused_before_training(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = job(monkeypatch, arguments(tmp_path / "run", validation__grammar=tmp_path / "none"))
    with pytest.raises(ConfigError, match="none: no such directory or file"):
        start.open_run(asked, alone())


def test_shards_of_another_recipe_or_tokenizer_are_refused(
    trained: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = job(monkeypatch, arguments(tmp_path / "run", data__masks__rate=0.2))
    with pytest.raises(DataError, match=r"with data.masks.rate=0.15, the run asks for 0.2"):
        start.open_run(asked, alone())
    asked = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT))
    with pytest.raises(DataError, match="prepared with tokenizer sha256"):
        start.open_data(asked.run, asked.directories, 1, 1, "0" * 64)
