"""The page is complete, self-contained and safe, whatever a document contains."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

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
        assert not {name for name, _ in attrs} & {"src", "href", "onerror", "onload"}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def content() -> str:
    measured = DocumentStatistics(2)
    for number in range(12):
        reason = EVIL if number % 3 == 0 else KEPT
        measured.add(
            Found("web", f"f@{number}", EVIL, EVIL, EVIL * 99, reason, False, "en", f"{number}.org")
        )
    return page(measured, f"title {EVIL}", "about")


def test_it_is_well_formed_and_shows_all(content: str) -> None:
    reader = Reader()
    reader.feed(content)
    assert not reader.open and not reader.tags & {"script", "img", "link", "iframe"}
    for part in ("12", "records read", "8", "66.7%", "Dropped, by reason", "Languages", "Sites"):
        assert part in reader.text, part
    assert reader.text.count(EVIL[:20]) > 5  # shown, not run


def test_it_is_self_contained(content: str) -> None:
    assert not re.search(r"url\(|@import|<script|<link", content)
    assert "<!doctype html>" in content and 'charset="utf-8"' in content


def test_an_empty_page() -> None:
    reader = Reader()
    reader.feed(page(DocumentStatistics(3), "none", "none"))
    assert not reader.open
