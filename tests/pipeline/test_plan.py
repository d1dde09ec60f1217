"""`tenfold plan`: text, JSON, and agreement with `pipeline.train --dry-run`."""

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline import plan
from pipeline.training.announce import dry_run
from tests.pipeline.conftest import Arguments, job
from tests.pipeline.data.small_shards import flip
from tests.pipeline.preparing import Call


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))


def test_json_is_one_object_and_text_has_the_same_figures(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: Call
) -> None:
    words = ("roberta_tiny", "--data", prepared, "--gpu", "h200", "--nodes", 2, "--price", 3)
    monkeypatch.setattr(sys, "argv", ["plan", *map(str, words), "--json"])
    plan.main()
    output, errors = capsys.readouterr()
    content = json.loads(output)
    assert errors == "" and content["machines"].startswith("2 nodes x 8 H200")
    estimates = [part for section in content["sections"].values() for part in section]
    assert {part["basis"] for part in estimates} == {"computed", "published", "estimated"}
    assert all(part["assumption"] for part in estimates)
    text = call(plan.main, *words)
    for section, parts in content["sections"].items():
        assert f"\n{section}: " in text
        assert all(f"  {part['name']}" in text for part in parts)
    assert "not counted\n" in text


def test_it_agrees_with_a_dry_run(
    prepared: Path, arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], call: Call,
) -> None:  # fmt: skip
    words = arguments(tmp_path / "run")
    asked = job(monkeypatch, [*words, "--dry-run", "--ranks", "4"])
    dry_run(asked)
    shown = capsys.readouterr().out
    settings = [f"--set={value}" for option, value in pairwise(words) if option == "--set"]
    machine = ("--gpu", "h100", "--gpus-per-node", 4)
    output = call(plan.main, "roberta_tiny", "--data", *asked.directories, *machine, *settings)
    for start in ("model: ", "step: ", "on a GPU: ", "data: "):
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(start)]
        assert line in output.splitlines()
    assert "pipeline.plan" in shown


def test_shards_that_are_damaged_or_differ_end_it(
    prepared: Path, tmp_path: Path, call: Call
) -> None:
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    flip(copy / "rows" / "train-00000.arrow")
    given = ("roberta_tiny", "--cpu", "--data")
    said = call(plan.main, *given, copy, code=2)
    assert "train-00000.arrow is damaged: xxh3_64" in said
    said = call(plan.main, *given, prepared, "--set", "data.masks.rate=0.2", code=2)
    assert "data.masks.rate=0.15" in said


def test_mistakes_are_one_line(call: Call) -> None:
    sized = "roberta_tiny --tokens 1e6"
    for words, why in {
        "--tokens 1e6 --cpu": "required: RECIPE",
        "roberta_tiny --tokens 5 --cpu": "--tokens 5 is not a size",
        "roberta_tiny --tokens nan --cpu": "--tokens nan is not a size",
        f"{sized} --cpu --nics 2": "--nics belongs to --gpu",
        f"{sized} --cpu --nodes 0": "--nodes must be 1 or more, got 0",
        f"{sized} --cpu --gpus-per-node 0": "--gpus-per-node must be 1 or more",
        f"{sized} --gpu h100 --nics 0": "--nics must be 1 or more, got 0",
        f"{sized} --cpu --cores 0": "--cores must be 1 or more, got 0",
        f"{sized} --cpu --set steps=60": "warmup_steps=100 is longer than the",
        f"{sized} --gpu h100 --price -1": "--price -1 is not a price",
    }.items():
        error = call(plan.main, *words.split(), code=2)
        assert why in error and error.count("\n") == 1, words
