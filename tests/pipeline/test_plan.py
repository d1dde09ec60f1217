"""`tenfold plan`: text, JSON, and agreement with `pipeline.train --dry-run`."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline import plan
from pipeline.base.errors import ConfigError, DataError
from pipeline.training.announce import dry_run
from tests.pipeline.conftest import Arguments, job


def run_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[str, str]:
    monkeypatch.setattr(sys, "argv", ["plan", *map(str, words)])
    capsys.readouterr()
    plan.main()
    found = capsys.readouterr()
    return found.out, found.err


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))


def test_json_is_one_object_and_text_has_the_same_figures(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("roberta_tiny", "--data", prepared, "--gpu", "h200", "--nodes", 2, "--price", 3)
    output, errors = run_plan(monkeypatch, capsys, *words, "--json")
    content = json.loads(output)
    assert errors == "" and content["machines"].startswith("2 nodes x 8 H200")
    assert {part["basis"] for section in content["sections"].values() for part in section} == {
        "computed", "published", "estimated",
    }  # fmt: skip
    assert all(p["assumption"] for section in content["sections"].values() for p in section)
    text, _ = run_plan(monkeypatch, capsys, *words)
    for section, parts in content["sections"].items():
        assert f"\n{section}: " in text
        assert all(f"  {part['name']}" in text for part in parts)
    assert "not counted\n" in text


def test_it_agrees_with_a_dry_run(
    prepared: Path, arguments: Arguments, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked = job(monkeypatch, [*arguments(tmp_path / "run"), "--dry-run", "--ranks", "4"])
    dry_run(asked)
    shown = capsys.readouterr().out
    words = pairwise(arguments(tmp_path / "run"))
    settings = [f"--set={value}" for option, value in words if option == "--set"]
    output, _ = run_plan(
        monkeypatch, capsys, "roberta_tiny", "--data", *asked.directories, "--gpu", "h100",
        "--gpus-per-node", 4, *settings,
    )  # fmt: skip
    for start in ("model: ", "step: ", "on a GPU: ", "data: "):
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(start)]
        assert line in output.splitlines()
    assert "pipeline.plan" in shown


def test_damaged_shards_end_it(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    with (copy / "rows" / "train-00000.arrow").open("r+b") as file:
        file.seek(2000)
        file.write(b"damage")
    words = ("--data", copy, "--cpu")
    with pytest.raises(DataError, match=r"train-00000.arrow is damaged: xxh3_64"):
        run_plan(monkeypatch, capsys, "roberta_tiny", *words)
    with pytest.raises(DataError, match=r"with data.masks.rate=0.15"):
        run_plan(
            monkeypatch, capsys, "roberta_tiny", "--data", prepared, "--cpu",
            "--set", "data.masks.rate=0.2",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--tokens 1e6 --cpu", "give either a recipe's name"),
        ("roberta_tiny --tokens 5 --cpu", "--tokens 5 is not a size of a corpus"),
        ("roberta_tiny --tokens nan --cpu", "--tokens nan is not a size"),
        ("roberta_tiny --tokens 1e6 --cpu --nics 2", "--nics belongs to --gpu"),
        ("roberta_tiny --tokens 1e6 --cpu --nodes 0", "--nodes must be 1 or more, got 0"),
        ("roberta_tiny --tokens 1e6 --cpu --gpus-per-node 0", "--gpus-per-node must be 1 or more"),
        ("roberta_tiny --tokens 1e6 --gpu h100 --nics 0", "--nics must be 1 or more, got 0"),
        ("roberta_tiny --tokens 1e6 --cpu --cores 0", "--cores must be 1 or more, got 0"),
        ("roberta_tiny --tokens 1e6 --cpu --set steps=60", "warmup_steps=100 is longer than the"),
        ("roberta_tiny --tokens 1e6 --gpu h100 --price -1", "--price -1 is not a price"),
    ],
)
def test_mistakes_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        run_plan(monkeypatch, capsys, *words.split())
