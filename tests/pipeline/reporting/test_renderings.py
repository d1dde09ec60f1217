"""The page is safe, complete and small; the text fits a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.reporting.renderings import as_page, as_text
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import Score
from pipeline.reporting.sections import Report, make_report
from tests.pipeline.reporting.small_runs import write_run

EVIL = "<script>alert(1)</script><img src=http://x/y.png>\x1b[31m"


@pytest.fixture
def report(tmp_path: Path) -> Report:
    run = read_run(write_run(tmp_path / "run", name=EVIL))
    return make_report([run], [Score(EVIL, EVIL, 0.5, None, None, EVIL)], EVIL)


def test_nothing_is_loaded_or_run(report: Report) -> None:
    page = as_page(report)
    assert "<script" not in page and "<img" not in page and "<a " not in page
    assert not re.search(r"<[^>]*(src|href|style)=", page)
    assert page.count("Content-Security-Policy") == 1
    assert "url(" not in page and "@import" not in page


def test_text_has_the_same_and_no_codes(report: Report) -> None:
    text = as_text(report)
    assert "\x1b" not in text
    for section in report.sections:
        assert section.title in text
    assert re.search(r"Gradient norm +all weights +1 +1 +100k +1\n", text)


@pytest.mark.slow
def test_half_a_million_steps_are_under_a_megabyte(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path / name, steps=500_000)) for name in "ab"]
    for shown in (runs, runs[:1]):
        page = as_page(make_report(shown, [], "again"))
        assert len(page.encode()) < 1e6
        assert "logarithmic" in page  # the spike of one step is there


def test_fifteen_thousand_steps_are_under_half_a_megabyte(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", steps=15_000))
    page = as_page(make_report([run], [], "again"))
    assert len(page.encode()) < 500_000
    assert "logarithmic" in page
