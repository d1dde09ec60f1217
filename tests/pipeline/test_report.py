"""`tenfold report` writes one page, or text; what is not a run is said in one line."""

import functools
import json
from pathlib import Path

import pytest

from pipeline import report
from tests.pipeline.preparing import Call, printed_without
from tests.pipeline.reporting.small_runs import write_run
from tests.pipeline.reporting.test_ablation_section import content
from tests.pipeline.reporting.test_score_files import FINE_TUNED


@pytest.fixture
def show(call: Call) -> Call:
    return functools.partial(call, report.main)


def test_a_page_and_its_scores(tmp_path: Path, prepared: Path, show: Call) -> None:
    run, page = write_run(tmp_path / "run", data=prepared), tmp_path / "page.html"
    (tmp_path / "scores.json").write_text(json.dumps(FINE_TUNED))
    said = show(run, "--scores", tmp_path / "scores.json", "--output", page)
    assert said.startswith("run: stopped, step 100 of 100") and str(page) in said
    content = page.read_text()
    assert content.startswith("<!doctype html>") and "sst2: accuracy" in content
    text = show(run, "--text")
    assert "Curves" in text and "<svg" not in text


def test_an_ablation(tmp_path: Path, show: Call) -> None:
    (tmp_path / "ablation.json").write_text(json.dumps(content()))
    text = show("--ablation", tmp_path, "--text")
    assert text.startswith("two: -0.1000 nats to one") and "not significant" in text
    show("--ablation", tmp_path, "--output", tmp_path / "page.html")
    assert "the same, other seeds" in (tmp_path / "page.html").read_text()


def test_what_cannot_be_reported_is_said(tmp_path: Path, prepared: Path, show: Call) -> None:
    run = write_run(tmp_path / "run")
    for arguments, message in {
        (tmp_path / "none", "--text"): "no such directory",
        (prepared, "--text"): "is not a run but",
        (run, "--output", tmp_path / "no" / "a.html"): "no such directory; create it first",
        (run, "--scores", run / "run.json", "--text"): "has no scores",
        (*[run] * 9, "--text"): "at most 8",
        (run,): "--output",
        ("--text",): "give run directories, or --ablation DIR",
        (run, "--ablation", tmp_path, "--text"): "drop RUN",
        ("--ablation", run, "--text"): "finish pipeline.ablate",
    }.items():
        error = show(*arguments, code=2)
        assert error.startswith("error: ") and message in error, error
        assert error.count("\n") == 1


def test_it_needs_no_torch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    printed_without(("torch", "deepspeed", "safetensors"), "report", run, "--text")
