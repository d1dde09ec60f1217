"""The report has every figure and fits the terminal."""

from collections import Counter

from pipeline.data.inspection.document_statistics import KEPT, DocumentStatistics, Found
from pipeline.data.inspection.text_report import reasons_in_order, report_statistics

URL = "https://example.org/" + "a" * 40


def test_it_has_every_figure_and_fits() -> None:
    measured = DocumentStatistics(2)
    for number in range(40):
        reason = "redirect" if number % 4 == 0 else KEPT
        text = "" if reason else f"Text {number}. " * (number + 1)
        language = "en" if number % 2 else "fr"
        date = f"20{10 + number}-05-01T00:00:00Z" if number > 3 else ""
        about = (f"f@{number}", URL, f"T{number}", text, reason, False, language, "a.org", date)
        measured.add(Found("web", *about))
    measured.add(Found("web", "f:41", "f", "", "", "invalid JSON", True, "", ""))
    for width in (80, 100):
        lines = report_statistics(measured, width)
        assert max(map(len, lines)) <= width
    text = "\n".join(" ".join(line.split()) for line in lines)
    for part in (
        "41 read", "30 kept, 73.2%", "10 dropped, 24.4%: redirect",
        "1 unusable, 2.4%: invalid JSON", "0.0% of those kept are exact copies",
        "revised or fetched from 2015-05-01 to 2049-05-01",
        "languages: 2, known for 100.0%", "20 66.7% en", "10 33.3% fr", "30 100.0% a.org",
        "kept: 2 of 30", "redirect: 2 of 10", "invalid JSON: 1 of 1",
    ):  # fmt: skip
        assert part in text, part
    assert reasons_in_order(measured) == [(KEPT, 30), ("redirect", 10), ("invalid JSON", 1)]


def test_no_documents() -> None:
    assert "0 read" in " ".join(report_statistics(DocumentStatistics(3), 80))
    assert DocumentStatistics(3).dropped() == Counter()
