"""WARC and WET files to documents: every record accounted for, no boilerplate, any order."""

import collections
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.data.preparation.holdout import validation_thresholds
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.records import BadRecord, Extract, Source
from pipeline.ingest.encodings.utf import OVERRULED
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.formats import format_of
from pipeline.ingest.extraction.web_pages import PAGES_WITH_LINE
from pipeline.recipes import recipe
from tests.pipeline.ingest.files import sniffed, texts_of
from tests.pipeline.ingest.web_archive import (
    SENTENCES,
    articles,
    conversion,
    members,
    page,
    record,
    response,
    whole_web_file,
)
from tests.pipeline.preparing import Prepare

REPEATED = "This sentence stands below every article that this newspaper has ever printed."
MORE = f"<p>{REPEATED}</p>"


def source(path: Path, *records: bytes) -> Source:
    return sniffed(path, members(records))


def read(path: Path, *records: bytes) -> list[Extract | BadRecord]:
    return [*whole_web_file(source(path, *records))]


def test_every_document_has_its_metadata(tmp_path: Path) -> None:
    found = read(
        tmp_path / "x.warc.gz",
        record("warcinfo", b"software: x\r\n"), record("request", b"GET / HTTP/1.1\r\n\r\n"),
        response(page("A bridge closes"), "https://www.paper.org/bridge", number=7),
        response(page("Gone"), status=404), response("%PDF", content_type="application/pdf"),
        response("<p>" + "\0" * 100), response(b" \r\n"),
        response("<p>long</p>" + " " * (4 << 20)),
        response(page("Cut"), more="WARC-Truncated: length\r\n"),
        response("<nav><a href=x>World</a></nav>"),
        record("revisit", b"HTTP/1.1 304 Not Modified\r\n\r\n"), record("resource", b"a file"),
        record("response", b"x", length=900), record("metadata", b"a: b\r\n"),
    )  # fmt: skip
    assert found[0] == Extract(
        id="urn:uuid:7", url="https://www.paper.org/bridge", title="A bridge closes - The Paper",
        text="\n\n".join(["A bridge closes", *SENTENCES]), dropped="",
        revised="2021-05-01T10:00:00Z", language="en", domain="paper.org",
        position=found[0].position,  # type: ignore[union-attr]
    )  # fmt: skip
    assert [item.reason if isinstance(item, BadRecord) else item.dropped for item in found[1:]] == [
        "HTTP status 404", "neither HTML nor text", "not text", "empty", "too long",
        "truncated by the crawler", "no main text", "revisit", "not a page", "record cut off",
    ]  # fmt: skip
    assert found[-1] == BadRecord("x.warc.gz:13", "record cut off")
    assert not any(item.text for item in found[1:] if isinstance(item, Extract))


WRAPPED = """A bridge closes

The council of the town voted on Tuesday to close the bridge for the
winter. Two engineers had told it in June that the arch might not
last another flood.

    "Nobody asked us," says the ferryman.

- the ferry
- the ford
"""


def test_plain_text_is_kept_as_it_was_written(tmp_path: Path) -> None:
    text = WRAPPED.replace("last", "survive “another” – or a third –").strip()
    for content_type, encoding in (
        ("text/plain", "utf-8"), ("text/plain; charset=utf-8", "utf-8-sig"),
        ("Text/Plain; charset=windows-1252", "cp1252"), ("text/plain", "utf-16"),
        ("text/plain; charset=utf-16le", "utf-16-le"), ("text/markdown", "utf-8"), ("", "utf-8"),
        ("text/plain; charset=latin-1", "utf-8"),
    ):  # fmt: skip
        body = text.replace("\n", "\r\n").encode(encoding)
        [found] = read(tmp_path / "x", response(body, content_type=content_type))
        assert isinstance(found, Extract)
        assert (found.text, found.dropped, found.title) == (text, "", ""), content_type
        assert found.language == "en"
    # texts of WET files lose what surrounds them
    lines = "\n".join(["Home", "World", "Sport", *SENTENCES, "Imprint"])
    found = read(tmp_path / "x", record("warcinfo", b"a: b"), conversion(lines), conversion(" \n"))
    kept = [(item.text, item.dropped) for item in found if isinstance(item, Extract)]
    assert kept == [("\n\n".join(SENTENCES), ""), ("", "empty")]


def test_what_is_read_as_text_and_as_html(tmp_path: Path) -> None:
    """HTML whatever its type says; data of any type is no text."""
    markup, prose = page("A bridge closes"), " ".join(SENTENCES)
    robots = "User-agent: *\n" + "".join(f"Disallow: /{name}/\n" for name in "abcdefghijkl")
    html = "\n\n".join(["A bridge closes", *SENTENCES])
    neither = "neither HTML nor text"
    for body, content_type, text, dropped in (
        (markup, "text/plain", html, ""), (markup, "", html, ""),
        (markup, "application/xhtml+xml; charset=utf-8", html, ""),
        (f'<?xml version="1.0"?>{markup}', "application/xml", html, ""),
        (prose, "text/plain", prose, ""),
        (f"<rss><item>{prose}</item></rss>", "text/xml", "", neither),
        (f'{{"text": "{prose}"}}', "", "", neither), (f"%PDF-1.4 {prose}", "", "", neither),
        (f"\x7fELF\1\2 {prose}", "text/plain", "", neither),
        (prose, "application/json", "", neither), (robots, "text/plain", "", "too short"),
        ("Just a line.", "text/plain", "", "too short"),
    ):  # fmt: skip
        [item] = read(tmp_path / "x", response(body, content_type=content_type))
        assert isinstance(item, Extract) and (item.text, item.dropped) == (text, dropped)


def test_lines_that_a_site_repeats_are_removed(tmp_path: Path) -> None:
    mine = articles(PAGES_WITH_LINE, more=MORE)
    found = read(tmp_path / "x", *mine, *articles(PAGES_WITH_LINE - 1, "b.org", MORE))
    texts = [(item.domain, REPEATED in item.text) for item in found if isinstance(item, Extract)]
    assert collections.Counter(texts) == {("paper.org", False): 5, ("b.org", True): 4}
    assert all("says page" in text for text in texts_of(found))
    # an article that is fetched many times counts once; a page of boilerplate alone is dropped
    found = read(tmp_path / "x", *articles(1, more=MORE) * 9)
    assert len(found) == 9 and all(REPEATED in text for text in texts_of(found))
    same = [response(page(f"Title {n}"), f"https://a.org/{n}") for n in range(PAGES_WITH_LINE)]
    found = read(tmp_path / "x", *same)
    assert {getattr(item, "dropped", "") for item in found} == {"nothing but what its site repeats"}


def test_order_does_not_matter(tmp_path: Path) -> None:
    records = [*articles(12), *articles(7, "b.org", MORE)]
    found = []
    for name, order in (("x", records), ("y", random.Random(1).sample(records, len(records)))):
        given = source(tmp_path / name, *order)
        items = [item for item in whole_web_file(given) if isinstance(item, Extract)]
        found.append({(item.domain, item.url, item.text, item.dropped) for item in items})
    assert found[0] == found[1] and len(found[0]) == 19
    assert {item[3] for item in found[0]} == {""}


def test_every_record_of_real_files(real_data: Path) -> None:
    """The files have 17, 24, 1, 29, 3 x 16 and 20 responses and texts."""
    counts = {}
    for path in [*real_data.glob("cc-news/warc/*"), *real_data.glob("formats/w[ae]*/*[!4]")]:
        given = sniffed(path)
        found = [*whole_web_file(given)]
        assert len(found) == len([*format_of(given).begin(given)])
        kept = [item for item in found if isinstance(item, Extract) and not item.dropped]
        assert all(item.text and item.domain and item.language for item in kept)
        counts[path.name] = (len(found), len(kept))
    assert counts.pop("clipped.warc.gz") == (1, 0)
    assert counts.pop("clueweb-quirk.warc.gz") == (29, 0)  # pages of sold-out bags
    assert {name: count for name, (count, _) in counts.items()} == {
        "sample-0000.warc.gz": 24, "sample-0001.warc.gz": 17, "warcfile.warc": 16,
        "warcfile.warc.gz": 16, "cc_docs.warc.wet.gz": 20,
    }  # fmt: skip
    assert counts["warcfile.warc"] == counts["warcfile.warc.gz"]
    assert counts["sample-0000.warc.gz"][1] == 22 and counts["sample-0001.warc.gz"][1] == 15


def test_pages_in_other_languages_are_dropped_with_their_reason(tmp_path: Path) -> None:
    """Without a change of what is kept, and only if a language is asked for."""
    german = (
        "Der Rat der Stadt hat am Dienstag beschlossen, die Brücke über den Winter zu schließen.",
        "Zwei Ingenieure hatten ihm im Juni gesagt, dass der Bogen kein Hochwasser mehr aushält.",
        "Niemand, der am linken Ufer wohnt, wurde gefragt, und das soll nach Angaben so bleiben.",
    )
    foreign = response(page("Die Brücke", german), "https://zeitung.de/1")
    given = source(tmp_path / "x.warc.gz", *articles(2), foreign)
    limited = replace(given, page_language="en")
    everything, english = [*whole_web_file(given)], [*whole_web_file(limited)]
    assert english[:2] == everything[:2]
    other = everything[2]
    assert isinstance(other, Extract) and other.text and other.language != "en"
    assert english[2] == replace(other, text="", dropped=f"language {other.language}")
    for declared in ('<html lang="en">', "<html>"):  # English in capitals, as courts write it
        capitals = page("The bridge", map(str.upper, SENTENCES)).replace(
            '<html lang="en">', declared
        )
        [found] = read(tmp_path / "capitals", response(capitals))
        assert isinstance(found, Extract) and found.language == "en"
    made = extract([given, limited], tmp_path / "made", local_executor(1))
    assert len({source.path for source in made}) == 2


def test_a_file_without_a_document_says_why(tmp_path: Path) -> None:
    menu = response("<nav><a href=x>World</a></nav>")
    for records, message in (
        ([menu, menu], "no text in 1 file.*: 2 no main text"),
        ([record("response", b"x", length=9)], "x.warc.gz:1: record cut off"),
        ([record("warcinfo", b"a: b")], "x.warc.gz: only white space"),
    ):
        made = extract([source(tmp_path / "x.warc.gz", *records)], tmp_path, local_executor(1))
        with pytest.raises(DataError, match=message):
            validation_thresholds(cut_tasks(made), recipe("roberta_tiny").data)


def test_news_from_a_crawl_to_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Prepare
) -> None:
    """Dropped and damaged records are counted separately."""
    torn = record("response", b"x", length=900)
    german = page("Die Brücke", [f"Große Brücke: {text}" for text in SENTENCES])
    latin = "text/html; charset=latin-1"
    wrong = response(german, "https://zeitung.de/1", content_type=latin)
    path = tmp_path / "x.warc.gz"
    source(path, *articles(29), torn, response("x", status=500), wrong)
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    said = make("--corpus", "cc-news", "--input", path, "--max-bad-fraction", "0.05")
    assert "1 WARC" in said and "cc-news: kept 1 in another encoding than stated" in said
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    news = manifest["corpora"]["cc-news"]
    assert news["noted"] == {OVERRULED: 1}
    assert manifest["totals"]["documents"] == 30
    assert news["dropped"] == {"HTTP status 500": 1} and news["bad"] == {"record cut off": 1}


def test_a_slow_page_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.1)
    slow = response("<p>" + "<b>x</b> word. " * 240_000, number=1)
    found = read(tmp_path / "x", response(page("Quick"), number=2), slow)
    assert [getattr(item, "dropped", item) for item in found] == ["", "over 10 s of CPU"]
