"""WARC and WET files to documents: every record accounted for, no boilerplate, any order."""

from __future__ import annotations

import collections
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.data.preparation.holdout import validation_thresholds
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.records import BadRecord, Extract, PageChoice, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.encodings.utf import OVERRULED
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.web_pages import PAGES_WITH_LINE
from pipeline.recipes import recipe
from tests.pipeline.ingest.extraction.slow_files import one_pass, whole_web_file
from tests.pipeline.ingest.web_archive import (
    SENTENCES,
    articles,
    conversion,
    members,
    page,
    record,
    response,
)
from tests.pipeline.preparing import contents, finish, tiny

PREPARE = (sys.executable, "-m", "pipeline.prepare")
REPEATED = "This sentence stands below every article that this newspaper has ever printed."


def source(path: Path, records: Sequence[bytes]) -> Source:
    path.write_bytes(members(records))
    return sniff(path, "cc-news", path.name)


def read(path: Path, *records: bytes) -> list[Extract | BadRecord]:
    return [*whole_web_file(source(path, records))]


def test_every_document_has_its_metadata(tmp_path: Path) -> None:
    found = read(
        tmp_path / "x.warc.gz",
        record("warcinfo", b"software: x\r\n"),
        record("request", b"GET / HTTP/1.1\r\n\r\n"),
        response(page("A bridge closes"), "https://www.paper.org/bridge", number=7),
        response(page("Gone"), status=404),
        response("%PDF", content_type="application/pdf"),
        response("<p>" + "\0" * 100),
        response(b" \r\n"),
        response("<p>long</p>" + " " * (4 << 20)),
        response(page("Cut"), more="WARC-Truncated: length\r\n"),
        response("<nav><a href=x>World</a></nav>"),
        record("revisit", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        record("resource", b"a file"),
        record("response", b"x", length=900),
        record("metadata", b"a: b\r\n"),
    )
    assert found[0] == Extract(
        id="urn:uuid:7",
        url="https://www.paper.org/bridge",
        title="A bridge closes - The Paper",
        text="\n\n".join(["A bridge closes", *SENTENCES]),
        dropped="",
        revised="2021-05-01T10:00:00Z",
        language="en",
        domain="paper.org",
        position=found[0].position,  # type: ignore[union-attr]
    )
    assert [item.reason if isinstance(item, BadRecord) else item.dropped for item in found[1:]] == [
        "HTTP status 404", "neither HTML nor text", "not text", "empty", "too long",
        "truncated by the crawler", "no main text", "revisit", "not a page", "record cut off",
    ]  # fmt: skip
    assert found[-1] == BadRecord("x.warc.gz:13", "record cut off")
    assert not any(item.text for item in found[1:] if isinstance(item, Extract))


@pytest.mark.parametrize(
    ("encoding", "content_type", "head"),
    [
        ("utf-8", "text/html", ""),
        ("utf-8", "text/html; charset=iso-8859-1", ""),  # wrong
        ("utf-16", "text/html", ""),
        ("windows-1251", "text/html; charset=windows-1251", ""),
        ("windows-1251", "text/html", '<meta charset="windows-1251">'),
        ("windows-1251", "text/html; charset=utf-8", '<meta charset="windows-1251">'),  # wrong
        ("koi8-r", "text/html", ""),
        ("windows-1251", "text/html; charset=no-such", '<meta charset="cp1251">'),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, content_type: str, head: str) -> None:
    text = "Совет города решил во вторник закрыть мост на зиму, и никто из жителей не был опрошен."
    markup = f"<html><head>{head}</head><body><p>{text}</p><p>{text[:-1]} снова.</p>"
    [found] = read(tmp_path / "x", response(markup.encode(encoding), content_type=content_type))
    assert isinstance(found, Extract)
    assert found.text.split("\n\n")[0] == text and found.language == "ru"


WRAPPED = """A bridge closes

The council of the town voted on Tuesday to close the bridge for the
winter. Two engineers had told it in June that the arch might not
last another flood.

    "Nobody asked us," says the ferryman.

- the ferry
- the ford
"""


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("text/plain", "utf-8"), ("text/plain; charset=utf-8", "utf-8-sig"),
        ("Text/Plain; charset=windows-1252", "cp1252"), ("text/plain", "utf-16"),
        ("text/plain; charset=utf-16le", "utf-16-le"), ("text/markdown", "utf-8"), ("", "utf-8"),
        ("text/plain; charset=latin-1", "utf-8"),
    ],
)  # fmt: skip
def test_plain_text_is_kept_as_it_was_written(
    tmp_path: Path, content_type: str, encoding: str
) -> None:
    text = WRAPPED.replace("last", "survive “another” – or a third –").strip()
    body = text.replace("\n", "\r\n").encode(encoding)
    [found] = read(tmp_path / "x", response(body, content_type=content_type))
    assert isinstance(found, Extract)
    assert (found.text, found.dropped, found.title) == (text, "", "")
    assert found.language == "en"


def test_what_is_read_as_text_and_as_html(tmp_path: Path) -> None:
    """HTML whatever its type says; data of any type is no text."""
    markup, prose = page("A bridge closes"), " ".join(SENTENCES)
    robots = "User-agent: *\n" + "".join(f"Disallow: /{name}/\n" for name in "abcdefghijkl")
    found = read(
        tmp_path / "x",
        response(markup, content_type="text/plain"),
        response(markup, content_type=""),
        response(markup, content_type="application/xhtml+xml; charset=utf-8"),
        response(f'<?xml version="1.0"?>{markup}', content_type="application/xml"),
        response(prose, content_type="text/plain"),
        response(f"<rss><item>{prose}</item></rss>", content_type="text/xml"),
        response(f'{{"text": "{prose}"}}', content_type=""),
        response(f"%PDF-1.4 {prose}", content_type=""),
        response(f"\x7fELF\1\2 {prose}", content_type="text/plain"),
        response(prose, content_type="application/json"),
        response(robots, content_type="text/plain"),
        response("Just a line.", content_type="text/plain"),
    )
    html = "\n\n".join(["A bridge closes", *SENTENCES])
    neither = "neither HTML nor text"
    assert [(item.text, item.dropped) for item in found if isinstance(item, Extract)] == [
        *[(html, "")] * 4, (prose, ""), *[("", neither)] * 5, ("", "too short"), ("", "too short"),
    ]  # fmt: skip


def test_lines_that_a_site_repeats_are_removed(tmp_path: Path) -> None:
    more = f"<p>{REPEATED}</p>"
    mine = articles(PAGES_WITH_LINE, more=more)
    found = read(tmp_path / "x", *mine, *articles(PAGES_WITH_LINE - 1, "b.org", more))
    texts = [(item.domain, REPEATED in item.text) for item in found if isinstance(item, Extract)]
    assert collections.Counter(texts) == {("paper.org", False): 5, ("b.org", True): 4}
    assert all("says page" in item.text for item in found if isinstance(item, Extract))


def test_an_article_fetched_many_times_counts_once(tmp_path: Path) -> None:
    found = read(tmp_path / "x", *articles(1, more=f"<p>{REPEATED}</p>") * 9)
    assert all(isinstance(item, Extract) and REPEATED in item.text for item in found)


def test_a_page_of_boilerplate_alone_is_dropped(tmp_path: Path) -> None:
    same = [response(page(f"Title {n}"), f"https://a.org/{n}") for n in range(PAGES_WITH_LINE)]
    found = read(tmp_path / "x", *same)
    assert {getattr(item, "dropped", "") for item in found} == {"nothing but what its site repeats"}


def test_the_order_of_records_does_not_matter(tmp_path: Path) -> None:
    records = [*articles(12), *articles(7, "b.org", f"<p>{REPEATED}</p>")]
    found = []
    for name, order in (("x", records), ("y", random.Random(1).sample(records, len(records)))):
        given = replace(source(tmp_path / name, order), pages=PageChoice(4))
        items = [item for item in whole_web_file(given) if isinstance(item, Extract)]
        found.append({(item.domain, item.url, item.text, item.dropped) for item in items})
    assert found[0] == found[1] and len(found[0]) == 19
    kept = collections.Counter(domain for domain, _, text, _ in found[0] if text)
    assert kept == {"paper.org": 4, "b.org": 4}
    assert {item[3] for item in found[0]} == {"", "over the number of pages of its site"}


def test_wet_files(tmp_path: Path) -> None:
    lines = "\n".join(["Home", "World", "Sport", *SENTENCES, "Imprint"])
    found = read(tmp_path / "x", record("warcinfo", b"a: b"), conversion(lines), conversion(" \n"))
    assert [(item.text, item.dropped) for item in found if isinstance(item, Extract)] == [
        ("\n\n".join(SENTENCES), ""),
        ("", "empty"),
    ]


def test_every_record_of_real_files(real_data: Path) -> None:
    """The files have 17, 24, 1, 29, 3 x 16 and 20 responses and texts."""
    counts = {}
    for path in [*real_data.glob("cc-news/warc/*"), *real_data.glob("formats/w[ae]*/*")]:
        given = sniff(path, "cc-news", path.name)
        found = [*whole_web_file(given)]
        assert len(found) == len([*one_pass(given)])
        kept = [item for item in found if isinstance(item, Extract) and not item.dropped]
        assert all(item.text and item.domain and item.language for item in kept)
        counts[path.name] = (len(found), len(kept))
    assert counts.pop("clipped.warc.gz") == (1, 0)
    assert counts.pop("clueweb-quirk.warc.gz") == (29, 0)  # pages of sold-out bags
    assert {name: count for name, (count, _) in counts.items()} == {
        "sample-0000.warc.gz": 24, "sample-0001.warc.gz": 17, "warcfile.warc": 16,
        "warcfile.warc.gz": 16, "warcfile.warc.lz4": 16, "cc_docs.warc.wet.gz": 20,
    }  # fmt: skip
    assert counts["warcfile.warc"] == counts["warcfile.warc.gz"] == counts["warcfile.warc.lz4"]
    assert counts["sample-0000.warc.gz"][1] == 22 and counts["sample-0001.warc.gz"][1] == 15


def test_documents_do_not_depend_on_workers_or_restarts(tmp_path: Path) -> None:
    given = [
        source(tmp_path / f"{n}.warc.gz", articles(20, f"s{n}.org", f"<p>{REPEATED}</p>"))
        for n in range(3)
    ]
    extract(given, tmp_path / "one", local_executor(1))
    made = extract(given, tmp_path / "two", local_executor(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    Path(made[1].path).unlink()
    extract(given, tmp_path / "two", local_executor(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    capped = [replace(item, pages=PageChoice(3)) for item in given]
    assert {item.path for item in extract(capped, tmp_path / "two", local_executor(1))}.isdisjoint(
        item.path for item in made
    )


def test_pages_in_other_languages_are_dropped_with_their_reason(tmp_path: Path) -> None:
    """Without a change of what is kept, and only if a language is asked for."""
    german = (
        "Der Rat der Stadt hat am Dienstag beschlossen, die Brücke über den Winter zu schließen.",
        "Zwei Ingenieure hatten ihm im Juni gesagt, dass der Bogen kein Hochwasser mehr aushält.",
        "Niemand, der am linken Ufer wohnt, wurde gefragt, und das soll nach Angaben so bleiben.",
    )
    foreign = response(page("Die Brücke", german), "https://zeitung.de/1")
    given = source(tmp_path / "x.warc.gz", [*articles(2), foreign])
    everything = [*whole_web_file(given)]
    english = [*whole_web_file(replace(given, pages=PageChoice(language="en")))]
    assert english[:2] == everything[:2]
    other = everything[2]
    assert isinstance(other, Extract) and other.text and other.language != "en"
    assert english[2] == replace(other, text="", dropped=f"language {other.language}")
    limited = replace(given, pages=PageChoice(language="en"))
    made = extract([given, limited], tmp_path / "made", local_executor(1))
    assert made[0].path != made[1].path


def test_a_file_without_a_document_says_why(tmp_path: Path) -> None:
    menu = response("<nav><a href=x>World</a></nav>")
    for records, message in (
        ([menu, menu], "no text in 1 file.*: 2 no main text; give other files"),
        ([record("response", b"x", length=9)], "x.warc.gz:1: record cut off; give other files"),
        ([record("warcinfo", b"a: b")], "x.warc.gz: only white space; give other files"),
    ):
        made = extract([source(tmp_path / "x.warc.gz", records)], tmp_path, local_executor(1))
        with pytest.raises(DataError, match=message):
            validation_thresholds(cut_tasks(made), recipe("roberta_tiny").data)


def test_news_from_a_crawl_to_shards(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Dropped and damaged records are counted separately."""
    torn = record("response", b"x", length=900)
    wrong = response(
        page("Die Brücke", [f"Große Brücke: {text}" for text in SENTENCES]),
        "https://zeitung.de/1",
        content_type="text/html; charset=latin-1",
    )
    source(tmp_path / "x.warc.gz", [*articles(29), torn, response("x", status=500), wrong])
    command = (
        *PREPARE, "--corpus", "cc-news", "--input", tmp_path / "x.warc.gz",
        *tiny(tiny_tokenizer, tmp_path / "out"),
    )  # fmt: skip
    result = finish(*command, "--max-bad-fraction", "0.05", TENFOLD_ROOT=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "1 WARC" in result.stdout
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    news = manifest["corpora"]["cc-news"]
    assert news["noted"] == {OVERRULED: 1}
    assert "cc-news: kept 1 in another encoding than stated" in result.stdout
    assert manifest["totals"]["documents"] == 30
    assert news["dropped"] == {"HTTP status 500": 1} and news["bad"] == {"record cut off": 1}


def test_a_page_that_takes_too_long_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.1)
    slow = response("<p>" + "<b>x</b> word. " * 240_000, number=1)
    found = read(tmp_path / "x", response(page("Quick"), number=2), slow)
    assert [getattr(item, "dropped", item) for item in found] == ["", "over 10 s of CPU"]
