"""Invalid arguments of pipeline.prepare end in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.data.preparation.prepare_arguments import prepare_arguments
from tests.pipeline.preparing import Prepare, finish

PREPARE = (sys.executable, "-m", "pipeline.prepare")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "sample", "--recipe", "roberta_bse"], "did you mean roberta_base"),
        (["--corpus", "sample", "--set", "data.sequence_lenght=64"], "data.sequence_length"),
        (["--corpus", "sample", "--set", "data.segments.label=order"], "full_sentences"),
        (["--corpus", "wikipedai"], "did you mean wikipedia"),
        (["--corpus", "sample", "--allow-short"], "16gb, 160gb"),
        (["--corpus", "16gb", "--input", "pipeline"], "needs files of wikipedia, bookcorpus"),
        (["--corpus", "bookcorpus"], "lower-cased"),  # the Hub's copy: known before it is fetched
        (["--corpus", "160gb", "--recipe", "bert_base"], "data.format=segment_pair"),
        (["--corpus", "wikipedia", "--revision", "main", "--input", "x"], "--revision main"),
        (["--corpus", "nothing", "--explain"], "did you mean"),
        (["--corpus", "sample", "--input", "x"], "drop --input"),
        (["--corpus", "sample", "--tokenizer", "/nonexistent"], "no such directory"),
        (["--corpus", "sample", "--workers", "0"], "--workers must be positive, got 0"),
        (["--corpus", "sample", "--max-bad-fraction", "1.5"], "--max-bad-fraction 1.5"),
        (["--corpus", "sample", "--against", "x"], "--against compares documents as --dedup near"),
        (["--corpus", "sample", "--dedup", "exact", "--against", "x"], "does, not as exact; add"),
        (["--corpus", "sample", "--keep-signatures"], "--keep-signatures compares documents as"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], message: str, run: Prepare) -> None:
    error = run(*arguments, code=2)
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error


@pytest.mark.parametrize("part", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", ""])
def test_an_impossible_part_is_refused(part: str, tmp_path: Path) -> None:
    result: subprocess.CompletedProcess[str] = finish(*PREPARE, f"--part={part}")
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: --part {part}: ") and "1/4 to 4/4" in result.stderr


def test_settings_are_chosen_by_recipe_or_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prepare", "--corpus", "sample", "--run", "a/run.json"])
    arguments = prepare_arguments()
    assert (arguments.recipe, arguments.run) == (None, Path("a/run.json"))
    monkeypatch.setattr(sys, "argv", ["prepare", "--corpus", "sample", "--recipe", "bert_tiny"])
    arguments = prepare_arguments()
    assert (arguments.recipe, arguments.run) == ("bert_tiny", None)
