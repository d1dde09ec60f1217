"""The page is safe, complete and small; the text fits a terminal."""

import re
from pathlib import Path

from pipeline.reporting.renderings import as_page, as_text
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import Score
from pipeline.reporting.sections import make_report
from tests.pipeline.reporting.small_runs import write_run

EVIL = "<script>alert(1)</script><img src=http://x/y.png>\x1b[31m"


def test_nothing_is_loaded_or_run_and_text_has_the_same_and_no_codes(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", name=EVIL))
    report = make_report([run], [Score(EVIL, EVIL, 0.5, None, None, EVIL)], EVIL)
    page = as_page(report)
    assert not any(each in page for each in ("<script", "<img", "<a ", "url(", "@import"))
    assert not re.search(r"<[^>]*(src|href|style)=", page)
    assert page.count("Content-Security-Policy") == 1
    text = as_text(report)
    assert "\x1b" not in text
    for section in report.sections:
        assert section.title in text
    assert re.search(r"Gradient norm +all weights +1 +1 +100k +1\n", text)


def test_fifteen_thousand_steps_are_under_half_a_megabyte(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", steps=15_000))
    page = as_page(make_report([run], [], "again"))
    assert len(page.encode()) < 500_000
    assert "logarithmic" in page
