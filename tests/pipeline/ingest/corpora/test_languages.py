"""The language of each corpus: named, in its name, or known from how its files were chosen."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.languages import corpus_languages, describe_languages
from pipeline.ingest.documents.records import Source
from tests.pipeline.ingest.files import LINE, sniffed


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return sniffed(tmp_path / "text.jsonl", LINE)


def named(source: Source, *corpora: str) -> list[Source]:
    return [replace(source, corpus=corpus) for corpus in corpora]


def test_names_of_folders_begin_with_a_language(source: Source) -> None:
    names = ("en", "en-web", "deu_books", "zho_Hans", "srp-Cyrl-wiki", "srp_Latn", "aai_Latn")
    found = corpus_languages(["by-folder"], named(source, *names, *names))
    assert [*found.values()] == ["en", "en", "deu", "zho-Hans", "srp-Cyrl", "srp-Latn", "aai-Latn"]
    assert [*found] == [*names]
    for bad in ("wikipedia", "EN", "e", "en2", "_en", "xx", "web", "old-web", "aai"):
        with pytest.raises(ConfigError, match=f"{bad} does not begin with a code"):
            corpus_languages(["by-folder"], named(source, "en", bad))
    other = corpus_languages(["by-folder", "wikipedia=de"], named(source, "en", "wikipedia"))
    assert other == {"en": "en", "wikipedia": "de"}


def test_one_code_is_of_all_corpora_or_of_one(source: Source) -> None:
    sources = named(source, "news", "web")
    assert corpus_languages([], sources) == {}
    assert corpus_languages(["sw"], sources) == {"news": "sw", "web": "sw"}
    assert corpus_languages(["news=pt-BR"], sources) == {"news": "pt-BR"}
    assert corpus_languages(["web=yo", "sw"], sources) == {"news": "sw", "web": "yo"}
    for given, message in (
        (["English"], "'English' is not a language"), (["news="], "'' is not a language"),
        (["books=en"], "no corpus books"), (["en", "by-folder"], "en by-folder"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            corpus_languages(given, sources)
    found = {"web": "en", "wiki": "en", "yo": "yo"}
    assert describe_languages(found) == "languages: 3 corpora in 2: en 2, yo 1"
    many = {f"l{n}": f"l{n}" for n in range(1833)}
    assert describe_languages(many).endswith("l7 1, and 1,825 more")


def test_what_was_chosen_is_known(source: Source) -> None:
    """Pages of one language, or the dump of a wiki; not a corpus of several."""
    kept = replace(source, corpus="cc-news", page_language="en")
    assert corpus_languages([], [kept]) == {"cc-news": "en"}
    assert corpus_languages(["cc-news=eng"], [kept]) == {"cc-news": "eng"}
    assert corpus_languages([], [kept, replace(kept, page_language="")]) == {}
    for wiki, code in (
        ("dewiki", "de"), ("enwikinews", "en"), ("zh_min_nanwiki", "zh-min-nan"),
        ("commonswiki", ""), ("simplewiki", ""),
    ):  # fmt: skip
        published: Any = SimpleNamespace(path=f"{wiki}/20260101/{wiki}-20260101-pages.xml.bz2")
        dump = replace(source, corpus="wikipedia", format="mediawiki", published=published)
        assert corpus_languages([], [dump, dump]) == ({"wikipedia": code} if code else {})
