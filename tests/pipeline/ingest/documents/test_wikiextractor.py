"""wikiextractor's <doc> mark-up; holes that cannot be text are closed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline.ingest.documents import wikiextractor
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Dropped, Record
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.documents.wikiextractor import close_bracket_holes


@pytest.mark.parametrize(
    ("holed", "closed"),
    [
        ("Lincoln ( ; born 1809) was", "Lincoln (born 1809) was"),
        ("Lincoln (; ; ) was", "Lincoln was"),
        ("Lincoln ( , or ) was", "Lincoln was"),
        ("Lincoln ( ), or Abe ()", "Lincoln, or Abe"),
        ("Lincoln (born 1809; ) was", "Lincoln (born 1809) was"),
        ("團隊（）是（；1月）、（日语：、），", "團隊是（1月）、（日语），"),
        ("是（）：for (;;) { ( ) }", "是：for (;;) { ( ) }"),
        ("a \x01 ( ; b)", "a  (b)"),
        # Only the hole is closed in its line, and no other line changes.
        ("Où ( ; né ) : « oui » ? f( x )", "Où (né ) : « oui » ? f( x )"),
        ("( ; a) ,\nb [] , ; (c ; d) ?\n", "( ; a) ,\nb [] , ; (c ; d) ?\n"),
        ("x ( ; a) ,\nb [] , ; (c ; d) ?\n", "x (a) ,\nb [] , ; (c ; d) ?\n"),
        # The limit of the rule: a function after a space.
        ("It calls f () twice.", "It calls f twice."),
    ],
)
def test_holes(holed: str, closed: str) -> None:
    assert close_bracket_holes(holed) == closed


@pytest.mark.parametrize(
    "text",
    [
        "Est-ce vrai ? Oui ! (voir : « mot » ; autre)",
        "main() calls f () ; see [] and a[]",
        "for (;;) or for ( ; i < n; i++)",
        "t = (1, ) ; s = ( )",
        "f(; x) and ( ; y)",
        "if (a) { ( ; b) }",
        "x -> ( ), y::z ( )",
        "nothing (to mend; really, no); (and so on) (or not) (or) :) ;) (: hello",
        "one , two ; and three . 5 % , « a » ; b",
        "（是；不是），、",
    ],
)
def test_what_can_be_text_stays(text: str) -> None:
    assert close_bracket_holes(text) == text


OLD = {"url": "https://en.wikipedia.org/wiki?curid=12", "text": "A (; B)", "id": "12", "title": "A"}
NEW = {"id": "12", "revid": "9", "url": OLD["url"], "title": "A", "text": "A (; B)"}
OTHER = {"url": "https://example.org/wiki?page=12", "text": "A (; B)", "id": "12", "title": "A"}
DOC = '<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="A">\nA (; B)\n</doc>\n'


@pytest.mark.parametrize(
    ("content", "format", "text"),
    [
        (json.dumps(OLD), "wiki_jsonl", "A (B)"),
        (json.dumps(NEW), "wiki_jsonl", "A (B)"),
        (json.dumps(OTHER), "jsonl", "A (; B)"),
        (DOC, "doc", "A (B)"),
    ],
    ids=["old", "new", "other", "doc"],
)
def test_only_files_of_wikiextractor_change(
    tmp_path: Path, content: str, format: str, text: str
) -> None:
    (tmp_path / "file").write_text(content + "\n")
    source = sniff(tmp_path / "file", "wikipedia", "file")
    assert source.format == format
    [record] = [record for piece in cut(source, 1 << 20) for record in read(piece)]
    assert isinstance(record, Record) and record.text == text


def test_holes_of_real_articles(real_data: Path) -> None:
    """Articles with an empty bracket before: a third in English, half in Chinese; after: a few."""
    hole = re.compile(r"[(（]\s*[;,；，、]|\s\(\s*\)|（\s*）|[;,；，、]\s*[)）]")
    for folder, before, after in (("extracted", 118, 6), ("extracted-zh", 384, 2)):
        raw = "".join(
            path.read_text() for path in sorted((real_data / "wikipedia" / folder).glob("wiki_*"))
        )
        articles = raw.split("</doc>") if folder.endswith("zh") else raw.split("\n")
        assert abs(sum(bool(hole.search(article)) for article in articles) - before) <= 5
        texts = [
            record.text
            for path in (real_data / "wikipedia" / folder).glob("wiki_*")
            for piece in cut(sniff(path, "wikipedia", path.name), 1 << 30)
            for record in read(piece)
            if isinstance(record, Record)
        ]
        assert sum(bool(hole.search(text)) for text in texts) <= after


DOCS = """<doc id="1" url="https://w.org/wiki?curid=1" title="Arve">
Arve

The Arve is a river.
</doc>
<doc id="2" url="https://w.org/wiki?curid=2" title="Title alone">
Title alone



</doc>

<doc id="3" title="No url">
No url

It says <doc> and </doc> in its text.
</doc>
not a document
</doc>
<doc id="4" title="Cut
"""


@pytest.mark.parametrize("block", [1 << 22, 7, 64])
def test_documents(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", block)
    path = tmp_path / "wiki_00"
    path.write_text(DOCS)
    source = sniff(path, "wikipedia", "wiki_00")
    [piece] = cut(source, 100)
    second = DOCS.index('<doc id="2"')
    third = DOCS.index('\n<doc id="3"')
    assert [*read(piece)] == [
        Record("wiki_00@0", "https://w.org/wiki?curid=1", "Arve\n\nThe Arve is a river."),
        Dropped(f"wiki_00@{second}", "title only"),
        Record(f"wiki_00@{third}", "wiki_00", "No url\n\nIt says <doc> and </doc> in its text."),
        BadRecord("wiki_00:18", "no <doc>"),
        BadRecord("wiki_00:20", "no </doc>"),
    ]


def test_invalid_utf8_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    path.write_bytes(DOCS.encode().replace(b"a river", b"a \xff"))
    [piece] = cut(sniff(path, "wikipedia", "wiki_00"), 100)
    assert next(iter(read(piece))) == BadRecord("wiki_00:1", "invalid UTF-8")


@pytest.mark.parametrize(
    "text",
    [":" * 90_000, "(" + " " * 90_000, " (" + " ;" * 50_000 + "x" * 90_000, " ( ; " * 50_000,
     " (" + ";" * 90_000, " (, " + "or " * 50_000, "（" + "：；" * 50_000, " ( ; a" * 30_000],
)  # fmt: skip
def test_holes_are_found_in_linear_time(text: str) -> None:
    assert close_bracket_holes(text + "x") in (text + "x", "（x")


def test_an_attribute_without_a_value_is_found_in_linear_time() -> None:
    assert wikiextractor._ATTRIBUTE.findall("a" * 200_000 + ' b="c"') == [("b", "c")]


def test_a_long_document_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0

    class Counting:
        def search(self, buffer: bytes, begin: int) -> re.Match[bytes] | None:
            nonlocal searched
            searched += len(buffer) - begin
            return pattern.search(buffer, begin)

    pattern = wikiextractor._END
    monkeypatch.setattr(wikiextractor, "_END", Counting())
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.BLOCK_BYTES", 1 << 10)
    path = tmp_path / "wiki_00"
    path.write_text('<doc id="1">\n' + "Nothing ends here.\n" * 5_000 + "</doc>\n")
    [record] = [record for piece in cut(sniff(path, "w", "w"), 1) for record in read(piece)]
    assert isinstance(record, Record) and searched < 1.1 * path.stat().st_size


def test_giant_documents_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.ingest.documents.byte_blocks.PART_BYTES", 64)
    text = "Arve\n\n" + "It says so.\n" * 20
    (tmp_path / "wiki_00").write_text(f'<doc id="1" url="u" title="Arve">\n{text}</doc>\n')
    [piece] = cut(sniff(tmp_path / "wiki_00", "w", "w"), 100)
    found = [one for one in read(piece) if isinstance(one, Record)]
    assert "\n".join(one.text for one in found) == text.strip() and len(found) > 3
    assert {one.origin for one in found} == {"u"} and len({one.id for one in found}) == len(found)
