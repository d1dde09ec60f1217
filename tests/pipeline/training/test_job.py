from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from pipeline import train
from pipeline.base.errors import ConfigError, run_command
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.conftest import NO_DROPOUT, Arguments, job
from tests.pipeline.released.models import save_model


def refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """The error that the command ends with, and no other output."""
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # keep this process's own handlers
    with pytest.raises(SystemExit) as ended:
        run_command(train.main)
    output, errors = capsys.readouterr()
    assert ended.value.code == 2 and output == "" and errors.count("\n") == 1
    return errors


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--ds", "zero9"], "no ds file is called zero9"),
        (["--stop-at", "21"], "--stop-at 21 is not a step of the run"),
        (["--stop-at", "0"], "--stop-at 0 is not a step of the run"),
        (["--run", "x.json"], "give either a recipe's name or --run"),
        (["--init", "model", "--from", "run"], "--init starts a run from weights, --from from"),
        (
            ["--new", "vocabulary"],
            "--new names what does not come from --init MODEL_DIR; give --init too",
        ),
        (["--set", "optimizer.lr=1"], "unknown setting optimizer.lr"),
        (["--set", "batch.warmup_steps=21"], "batch.warmup_steps=21 is longer than the run"),
    ],
)
def test_a_contradictory_command_line_is_refused(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, extra: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        job(monkeypatch, arguments(Path("run"), *extra))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("precision=fp16", "precision='fp16' is not a choice; choose one of fp32, bf16"),
        ("optimizer.peak_lr=0", "optimizer.peak_lr=0.0 is out of range; choose one in (0, inf)"),
        ("optimizer.peak_lr=-1e-3", "optimizer.peak_lr=-0.001 is out of range"),
        ("optimizer.peak_lr=nan", "optimizer.peak_lr=nan has the wrong type; give a finite number"),
        ("schedule.end_lr=-1", "schedule.end_lr=-1.0 is out of range; choose one in [0, inf)"),
        ("schedule.end_lr=1", "schedule.end_lr=1.0 is above optimizer.peak_lr=0.02; add --set"),
        ("optimizer.beta1=-0.1", "optimizer.beta1=-0.1 is out of range; choose one in [0, 1)"),
        ("optimizer.beta1=1", "optimizer.beta1=1.0 is out of range; choose one in [0, 1)"),
        ("optimizer.beta2=1.5", "optimizer.beta2=1.5 is out of range; choose one in [0, 1)"),
        ("optimizer.eps=0", "optimizer.eps=0.0 is out of range; choose one in (0, 1)"),
        ("optimizer.clip_norm=-1", "optimizer.clip_norm=-1.0 is out of range"),
        ("optimizer.weight_decay=-1", "optimizer.weight_decay=-1.0 is out of range"),
        ("optimizer.kind=sgd", "optimizer.kind='sgd' is not a choice; choose one of lamb, adamw"),
        ("optimizer.lamb_variant=apex", "choose one of paper, nvlamb, albert, deepspeed"),
    ],
)
def test_invalid_optimizer_settings_are_refused(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    setting: str,
    message: str,
) -> None:
    chosen = [*arguments(Path("run"), "--dry-run"), "--set", setting]
    line = refused(chosen, monkeypatch, capsys)
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("optimizer", "set optimizer.kind and its other settings there"),
        ("scheduler", "set schedule.kind and its other settings there"),
        ("gradient_clipping", "set optimizer.clip_norm there"),
        ("fp16", "set precision there"),
    ],
)
def test_a_ds_file_cannot_name_an_optimizer(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    key: str,
    message: str,
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({key: {}, "zero_optimization": {"stage": 1}}))
    chosen = arguments(tmp_path / "run", "--dry-run", "--ds", file)
    line = refused(chosen, monkeypatch, capsys)
    assert line == f"error: {file}: key {key} belongs to the run; {message}\n"


def test_a_run_json_starts_the_same_run(
    trained: Path, lesson: Path, monkeypatch: pytest.MonkeyPatch, arguments: Arguments
) -> None:
    record = str(trained / "1x16" / "run.json")
    parts = ["--run", record, "--data", str(lesson), "--output", str(trained / "1x16")]
    same = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT))
    assert job(monkeypatch, parts).run == same.run


def test_a_model_as_recipe_starts_from_its_weights_within_ten_passes(
    lesson: Path,
    word_vocabularies: dict[str, Vocabulary],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = save_model(
        "BertForMaskedLM", tmp_path / "model", word_vocabularies["wordpiece-uncased"]
    )
    usual = [str(folder), "--data", str(lesson), "--output", str(tmp_path / "run")]
    found = job(monkeypatch, [*usual, "--set", "objective.kind=mlm"])
    assert found.init and found.init.folder == folder and not found.init.origin
    rows = json.loads((lesson / "manifest.json").read_text())["totals"]["sequences"]
    assert 0 < found.run.steps * found.run.batch.sequences <= 10 * rows
    [note] = found.notes
    assert re.fullmatch(
        rf"steps: {found.run.steps:,} of 256 sequences, 10 passes over the data, instead of 12,500 "
        r"of 2,048; --set steps=N decides",
        note,
    )
    assert job(monkeypatch, [*usual, "--new", "heads", "--set", "steps=9000"]).run.steps == 9_000

    for extra, message in (
        ([], "has no head of pairs of segments"),
        (["--new", "heads", "--init", "other"], "the run starts from, and --init names others"),
        (["--new", "heads", "--from", "other"], "the run starts from, and --from names others"),
    ):
        with pytest.raises(ConfigError, match=message):
            job(monkeypatch, [*usual, *extra])
