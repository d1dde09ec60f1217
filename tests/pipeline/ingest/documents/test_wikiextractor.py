"""wikiextractor's <doc> mark-up; holes that cannot be text are closed."""

import html
import json
import re
from pathlib import Path

import pytest

from pipeline.ingest.documents import byte_blocks, wikiextractor
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Dropped, Record
from pipeline.ingest.documents.wikiextractor import close_bracket_holes
from tests.pipeline.ingest.documents.raw_files import count_searched
from tests.pipeline.ingest.files import read_all, sniffed, texts_of


def test_holes_are_closed_and_what_can_be_text_stays() -> None:
    for holed, closed in (
        ("Lincoln ( ; born 1809) was", "Lincoln (born 1809) was"),
        ("Lincoln (; ; ) was", "Lincoln was"), ("Lincoln ( , or ) was", "Lincoln was"),
        ("Lincoln ( ), or Abe ()", "Lincoln, or Abe"),
        ("Lincoln (born 1809; ) was", "Lincoln (born 1809) was"),
        ("團隊（）是（；1月）、（日语：、），", "團隊是（1月）、（日语），"),
        ("是（）：for (;;) { ( ) }", "是：for (;;) { ( ) }"), ("a \x01 ( ; b)", "a  (b)"),
        # Only the hole is closed in its line, and no other line changes.
        ("Où ( ; né ) : « oui » ? f( x )", "Où (né ) : « oui » ? f( x )"),
        ("( ; a) ,\nb [] , ; (c ; d) ?\n", "( ; a) ,\nb [] , ; (c ; d) ?\n"),
        ("x ( ; a) ,\nb [] , ; (c ; d) ?\n", "x (a) ,\nb [] , ; (c ; d) ?\n"),
        # The limit of the rule: a function after a space.
        ("It calls f () twice.", "It calls f twice."),
    ):  # fmt: skip
        assert close_bracket_holes(holed) == closed
    for text in (
        "Est-ce vrai ? Oui ! (voir : « mot » ; autre)", "main() calls f () ; see [] and a[]",
        "for (;;) or for ( ; i < n; i++)", "t = (1, ) ; s = ( )", "f(; x) and ( ; y)",
        "if (a) { ( ; b) }", "x -> ( ), y::z ( )", "（是；不是），、",
        "nothing (to mend; really, no); (and so on) (or not) (or) :) ;) (: hello",
        "one , two ; and three . 5 % , « a » ; b",
    ):  # fmt: skip
        assert close_bracket_holes(text) == text
    for text in (
        ":" * 90_000, "(" + " " * 90_000, " (" + " ;" * 50_000 + "x" * 90_000, " ( ; " * 50_000,
        " (" + ";" * 90_000, " (, " + "or " * 50_000, "（" + "：；" * 50_000, " ( ; a" * 30_000,
    ):  # in linear time # fmt: skip
        assert close_bracket_holes(text + "x") in (text + "x", "（x")


def test_escapes_are_undone_once_where_nothing_is_bare(tmp_path: Path) -> None:
    """WikiExtractor 3 escapes texts, not titles; the text is that of the dump."""
    texts = ["AT&T says 1 < 2 > 0.", "Write &lt;br&gt; or &amp; in HTML.", "Plain."]
    escaped = [html.escape(text, quote=False) for text in texts]
    for given, made in (
        (escaped, texts), (texts, texts), ([*escaped, texts[0]], [*escaped, texts[0]]),
        (["Plain."], ["Plain."]),
    ):  # fmt: skip
        lines, docs = [], []
        for number, text in enumerate(given):
            url = f"https://w.org/wiki?curid={number}"
            about = {"id": str(number), "revid": "9", "url": url, "title": "A&B <i>"}
            lines.append(json.dumps(about | {"text": text}) + "\n")
            head = f'<doc id="{number}" url="{url}" title="A&B <i>">\nA&B <i>\n\n'
            docs.append(f"{head}{text}\n</doc>\n")
        source = sniffed(tmp_path / "lines", "".join(lines))
        assert source.format == "wiki_jsonl"
        # by the whole file, wherever it is cut
        found = [texts_of(read(piece)) for piece in cut(source, 40)]
        assert len(found) > 1 or len(given) == 1
        assert [text for some in found for text in some] == made
        source = sniffed(tmp_path / "docs", "".join(docs))
        assert source.format == "doc"
        assert texts_of(read_all(source)) == [f"A&B <i>\n\n{text}" for text in made]


def test_only_files_of_wikiextractor_change(tmp_path: Path) -> None:
    old = {"url": "https://w.org/wiki?curid=12", "text": "A (; B)", "id": "12", "title": "A"}
    new = {"id": "12", "revid": "9", "url": old["url"], "title": "A", "text": "A (; B)"}
    other = old | {"url": "https://example.org/wiki?page=12"}
    doc = '<doc id="12" url="https://w.org/wiki?curid=12" title="A">\nA (; B)\n</doc>'
    for content, format, text in (
        (json.dumps(old), "wiki_jsonl", "A (B)"), (json.dumps(new), "wiki_jsonl", "A (B)"),
        (json.dumps(other), "jsonl", "A (; B)"), (doc, "doc", "A (B)"),
    ):  # fmt: skip
        source = sniffed(tmp_path / "file", content + "\n")
        assert source.format == format
        items = read_all(source)
        assert texts_of(items) == [text] and len(items) == 1


def test_holes_of_real_articles(real_data: Path) -> None:
    """Articles with an empty bracket before: a third in English, half in Chinese; after: a few."""
    hole = re.compile(r"[(（]\s*[;,；，、]|\s\(\s*\)|（\s*）|[;,；，、]\s*[)）]")
    for folder, before, after in (("extracted", 118, 6), ("extracted-zh", 384, 2)):
        paths = sorted((real_data / "wikipedia" / folder).glob("wiki_*"))
        raw = "".join(path.read_text() for path in paths)
        articles = raw.split("</doc>") if folder.endswith("zh") else raw.split("\n")
        assert abs(sum(bool(hole.search(article)) for article in articles) - before) <= 5
        texts = texts_of(read_all(*map(sniffed, paths)))
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


def test_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = DOCS.index('<doc id="2"'), DOCS.index('\n<doc id="3"')
    tags = "No url\n\nIt says <doc> and </doc> in its text."
    for block in (1 << 22, 7, 64):
        monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", block)
        source = sniffed(tmp_path / "wiki_00", DOCS)
        [piece] = cut(source, 100)
        assert [*read(piece)] == [
            Record("wiki_00@0", "https://w.org/wiki?curid=1", "Arve\n\nThe Arve is a river."),
            Dropped(f"wiki_00@{second}", "title only"),
            Record(f"wiki_00@{third}", "wiki_00", tags),
            BadRecord("wiki_00:18", "no <doc>"), BadRecord("wiki_00:20", "no </doc>"),
        ]  # fmt: skip
    source = sniffed(tmp_path / "wiki_00", DOCS.encode().replace(b"a river", b"a \xff"))
    assert read_all(source)[0] == BadRecord("wiki_00:1", "invalid UTF-8")
    # giant ones come in parts
    monkeypatch.setattr(byte_blocks, "PART_BYTES", 64)
    text = "Arve\n\n" + "It says so.\n" * 20
    source = sniffed(tmp_path / "w", f'<doc id="1" url="u" title="Arve">\n{text}</doc>\n')
    found = [one for one in read_all(source, piece_bytes=100) if isinstance(one, Record)]
    assert "\n".join(texts_of(found)) == text.strip() and len(found) > 3
    assert {one.origin for one in found} == {"u"} and len({one.id for one in found}) == len(found)


def test_long_documents_are_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = count_searched(monkeypatch, wikiextractor, "_END")
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", 1 << 10)
    source = sniffed(tmp_path / "w", '<doc id="1">\n' + "Nothing ends here.\n" * 5_000 + "</doc>\n")
    [record] = read_all(source, piece_bytes=1)
    assert isinstance(record, Record) and 0 < sum(searched) < 1.1 * source.size
    assert wikiextractor._ATTRIBUTE.findall("a" * 200_000 + ' b="c"') == [("b", "c")]
