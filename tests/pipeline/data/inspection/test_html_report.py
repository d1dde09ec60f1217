"""The page is complete, self-contained and safe, whatever a document contains."""

import re
from html.parser import HTMLParser

from pipeline.data.inspection.document_statistics import KEPT, DocumentStatistics, Found
from pipeline.data.inspection.html_report import page

EVIL = "<script>alert(1)</script><img src=http://x/y.png onerror=z>&amp;\"'"


class Reader(HTMLParser):
    """Collects tags and text; fails on an unmatched closing tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onerror", "onload", "style"}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_it_is_well_formed_self_contained_and_shows_all() -> None:
    measured = DocumentStatistics(2)
    for number in range(12):
        about = (f"f@{number}", EVIL, EVIL, EVIL * 99, KEPT if number % 3 else EVIL)
        measured.add(Found("web", *about, False, "en", f"{number}.org"))
    measured.dates = ("<b>0</b>", "<script>")
    content = page(measured, f"title {EVIL}", "about")
    reader = Reader()
    reader.feed(content)
    assert not reader.open and not reader.tags & {"script", "img", "link", "iframe"}
    for part in ("12", "records read", "8", "66.7%", "Dropped, by reason", "Languages", "Sites"):
        assert part in reader.text, part
    assert reader.text.count(EVIL[:20]) > 5  # shown, not run
    assert not re.search(r"url\(|@import|<script|<link", content)
    assert "<!doctype html>" in content and 'charset="utf-8"' in content
    assert 0 < content.index("Content-Security-Policy") < content.index("<style>")


def test_an_empty_page() -> None:
    reader = Reader()
    reader.feed(page(DocumentStatistics(3), "none", "none"))
    assert not reader.open
