"""What --dump and --language ask for."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.published_dumps import Selected, chosen_language, corpus_languages
from pipeline.ingest.documents.read import file_identity
from tests.pipeline.ingest.files import LINE, sniffed
from tests.pipeline.remote.publishers import Publisher


def test_files_of_both_publishers(server: Publisher, tmp_path: Path) -> None:
    [warc] = server.put_month("2019-02", {"00001": b"a" * 10})
    [part] = server.put_dump("enwiki/20260101", {"1.xml-p1p2.bz2": b"b" * 20})
    selected = Selected(months="2019-02", dump="enwiki/20260101")
    found = selected.sources(tmp_path)
    assert selected.corpora() == [*found] == ["cc-news", "wikipedia"]
    [news], [articles] = found.values()
    assert (news.path, news.name) == (str(tmp_path / warc), Path(warc).name)
    assert (news.size, news.format, news.compression) == (10, "warc", "gz")
    assert (articles.path, articles.size) == (str(tmp_path / part), 20)
    assert (articles.format, articles.compression) == ("mediawiki", "bz2")
    own = replace(news, published=None)
    assert (chosen_language("", news), chosen_language("", own)) == ("en", "")
    assert chosen_language("any", news) == ""
    assert chosen_language("de", news) == chosen_language("de", own) == "de"
    for unknown in ("english", "xx"):
        with pytest.raises(ConfigError, match=f"--language {unknown}: give a two-letter code"):
            chosen_language(unknown, own)


def test_a_file_is_the_same_before_and_after_it_is_fetched(
    server: Publisher, tmp_path: Path
) -> None:
    [warc] = server.put_month("2019-02", {"00001": b"a" * 10})
    [source] = Selected(months="2019-02").sources(tmp_path)["cc-news"]
    before = file_identity(source)
    (tmp_path / warc).write_bytes(b"a" * 10)
    assert file_identity(source) == before


def test_what_has_no_effect_is_refused(tmp_path: Path) -> None:
    selected = Selected(dump="enwiki/20260101", skip_missing=True)
    with pytest.raises(ConfigError, match="--skip-missing is for months"):
        selected.sources(tmp_path)


def test_the_language_of_a_corpus(tmp_path: Path) -> None:
    """Pages of one language, or the dump of a wiki; not a corpus of several."""
    source = sniffed(tmp_path / "text.jsonl", LINE)
    kept = replace(source, corpus="cc-news", page_language="en")
    assert corpus_languages([source, kept]) == {"cc-news": "en"}
    assert corpus_languages([kept, replace(kept, page_language="")]) == {}
    for wiki, code in (
        ("dewiki", "de"), ("enwikinews", "en"), ("zh_min_nanwiki", "zh-min-nan"),
        ("commonswiki", ""), ("simplewiki", ""),
    ):  # fmt: skip
        published: Any = SimpleNamespace(path=f"{wiki}/20260101/{wiki}-20260101-pages.xml.bz2")
        dump = replace(source, corpus="wikipedia", format="mediawiki", published=published)
        assert corpus_languages([dump, dump]) == ({"wikipedia": code} if code else {})
