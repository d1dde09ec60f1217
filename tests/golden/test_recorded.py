"""Shards, runs and exports equal those of the version that recorded them, see `recording.py`.

A difference means that users' shards, runs or folders changed: fix the code. If the change is
intended, record again with `python -m tests.golden.record`, and say so in the commit.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.golden import recording
from tests.golden.compare import recorded
from tests.golden.recording import CELLS, EXPORTS, FAMILIES, RUNS, SAVED, STEPS
from tests.launching.environments import install_beside
from tests.pages import ROOT
from tests.test_using import CHECK, MODEL, SPACED, program

FROM_OUTSIDE = ("ids", "unicode")
"""Versions in a manifest that our rules do not set: of `tokenizers` and of Python."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the shards of every cell."""
    folder = tmp_path_factory.mktemp("cells")
    for cell in CELLS:
        recording.prepared(cell, folder / cell)
    return folder


def same_from_outside(shards: Path, cell: str) -> bool:
    """Whether `tokenizers` and Python are those of the recording, as far as fingerprints know."""
    found = json.loads((shards / cell / "manifest.json").read_bytes())["engine"]
    expected = recorded("columns")[cell]["versions"]
    return all(found[name] == expected[name] for name in FROM_OUTSIDE)


@pytest.mark.parametrize("cell", CELLS)
def test_columns(shards: Path, cell: str) -> None:
    """Rows, masks and documents, to the bit."""
    expected, found = recorded("columns")[cell], recording.described(shards / cell)
    if not same_from_outside(shards, cell):  # another fingerprint, but the same columns
        for values in (expected, found):
            values["fingerprint"] = ""
            values["versions"] |= dict.fromkeys(FROM_OUTSIDE, "")
    assert found == expected


def test_every_format_scheme_and_tokenizer_is_recorded(shards: Path) -> None:
    found = [json.loads((shards / cell / "manifest.json").read_bytes())["data"] for cell in CELLS]
    assert {data["format"] for data in found} == {
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment",
    }  # fmt: skip
    assert {data["masking"] for data in found} == {
        "token", "whole_word", "ngram", "span", "electra",
    }  # fmt: skip
    assert {(data["tokenizer"], data["lower_case"]) for data in found} == {
        ("byte-bpe", False), ("wordpiece", False), ("wordpiece", True), ("unigram", True),
    }  # fmt: skip
    labels = {data.get("segments.label") for data in found if data["format"] == "segment_pair"}
    assert labels == {"none", "next", "order"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["new", "resumed"])
def test_losses(shards: Path, tmp_path: Path, name: str, family: str) -> None:
    """Losses of a run, and of the rest of a recorded run."""
    if name == "resumed":
        if not same_from_outside(shards, family):
            pytest.skip("other shards with these versions of tokenizers and Python")
        shutil.copytree(RUNS / family, tmp_path / "run")
    lesson = recording.lesson(shards / family, tmp_path / "lesson")
    recording.command("train", *recording.run_arguments(family, lesson, tmp_path / "run"))
    expected, found = recorded("losses")[family], recording.losses(tmp_path / "run")
    steps = [str(step) for step in range(1, STEPS + 1)]
    assert list(found) == steps
    for step in steps if name == "new" else steps[SAVED:]:
        assert found[step] == pytest.approx(expected[step], rel=1e-5), step


@pytest.mark.parametrize("family", FAMILIES)
def test_an_export_loads_in_transformers(family: str) -> None:
    assert_recorded_logits(family, recording.logits(EXPORTS / family))


def assert_recorded_logits(family: str, found: dict[str, Any]) -> None:
    expected = recorded("logits")[family]
    assert found.keys() == expected.keys()
    for name, values in found.items():
        for row, theirs in zip(values, expected[name], strict=True):
            assert row == pytest.approx(theirs, rel=1e-5, abs=1e-5), name


OLDEST = re.findall(r'"transformers>=([0-9.]+)"', (ROOT / "pyproject.toml").read_text())
IN_ANOTHER = f"""
import json
from tests.golden import recording
found = {{family: recording.logits(recording.EXPORTS / family) for family in {FAMILIES}}}
print("logits", json.dumps(found))
"""
"""A program that computes the logits of the exports."""


@pytest.mark.slow
@pytest.mark.parametrize("version", [*OLDEST, "4.50.3"])
def test_an_export_loads_in_older_versions_of_transformers(version: str, tmp_path: Path) -> None:
    """The oldest that is allowed, and one of those that zero the second name of a tied bias. Words
    that are split already get the ids of their text there, as USING.md says."""
    try:
        python = install_beside(tmp_path / "venv", "transformers", f"transformers=={version}")
    except RuntimeError as error:
        pytest.skip(str(error))
    outside = os.environ | {"PYTHONPATH": str(ROOT)}

    def output(program: str) -> str:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=outside
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = output(f"import transformers; print(transformers.__version__); {IN_ANOTHER}")
    first, *_, last = said.splitlines()
    assert first.startswith(version)
    for family, found in json.loads(last.removeprefix("logits")).items():
        assert_recorded_logits(family, found)
    for family in SPACED:
        shutil.copytree(EXPORTS / family, tmp_path / MODEL, dirs_exist_ok=True)
        output(program("is_split_into_words") + CHECK)
