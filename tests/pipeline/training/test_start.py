"""What may differ between a run and the job that resumes it; test_train.py resumes runs."""

from pathlib import Path

import pytest

from pipeline.base.errors import CheckpointError, ConfigError, DataError
from pipeline.training import start
from tests.pipeline.conftest import NO_DROPOUT, PAIRS_SHIPPED, Arguments, job
from tests.pipeline.test_train import alone


def test_another_run_in_the_same_directory_is_refused(
    trained: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, before, now in (
        ("optimizer__peak_lr", 0.02, 0.1), ("steps", 20, 21), ("encoder__dropout", 0.0, 0.1),
        ("validation__mask_rate", 0.0, 0.1), ("batch__sequences", 16, 8),
    ):  # fmt: skip
        asked = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT | {setting: now}))
        said = f"was started with {setting.replace('__', '.')}={before}, now it is {now}"
        with pytest.raises(CheckpointError, match=said):
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


def test_pairs_shards_and_tokenizers_that_do_not_fit_are_refused(
    trained: Path, arguments: Arguments, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = job(monkeypatch, arguments(tmp_path / "run", validation__grammar=tmp_path / "none"))
    with pytest.raises(ConfigError, match="none: no such directory or file"):
        start.open_run(asked, alone())
    asked = job(monkeypatch, arguments(tmp_path / "run", data__masks__rate=0.2))
    with pytest.raises(DataError, match=r"with data.masks.rate=0.15, the run asks for 0.2"):
        start.open_run(asked, alone())
    asked = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT))
    with pytest.raises(DataError, match="prepared with tokenizer sha256"):
        start.open_data(asked.run, asked.directories, 1, 1, "0" * 64)
