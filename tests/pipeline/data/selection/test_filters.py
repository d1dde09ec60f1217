"""Filters against their definitions, and invalid arguments."""

import re
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.data.selection.filters import Filters, filters_by_corpus, rewrite_texts
from pipeline.data.text.line_rules import LINES_VERSION
from pipeline.ingest.documents.records import Rewriting
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.data.selection.conftest import arrays
from tests.pipeline.preparing import write_jsonl

TEXTS = ["one two three four", "one 2 3 4", "one\ntwo\none\none", "one", "... 5"]


def reasons(*given: str) -> dict[str, list[str]]:
    return {
        reason: [found for found, is_held in zip(TEXTS, held) if is_held]
        for reason, held in Filters.parse([*given]).reasons(*arrays(TEXTS))
        if held.any()
    }


def test_each_filter() -> None:
    """Bounds are inclusive."""
    assert reasons() == {}
    assert reasons("min-words=4") == {"too few words": ["one", "... 5"]}
    assert reasons("max-words=1") == {"too many words": TEXTS[:3]}
    assert reasons("min-letters=0.25") == {"too few letters": ["... 5"]}
    assert reasons("min-letters=0.3") == {"too few letters": ["one 2 3 4", "... 5"]}
    assert reasons("max-repeated=0.5") == {}
    assert reasons("max-repeated=0.49") == {"repeated lines": ["one\ntwo\none\none"]}
    assert [*reasons("max-repeated=0.4", "max-words=3")] == ["too many words", "repeated lines"]
    # texts in other languages are dropped; short texts are kept
    german = "Die Katze schläft den ganzen Tag auf dem Sofa, und niemand weiß, warum sie das tut."
    english = "The cat sleeps on the sofa all day long, and nobody knows why she would do that."
    text = arrays([german, english, "April 6", german, english.upper(), german.upper()])
    [(reason, held)] = Filters(language="en").reasons(*text)
    assert reason == "language de" and held.tolist() == [True, False, False, True, False, True]


def test_invalid_filters_are_refused() -> None:
    for given, says in (
        ("min-word=5", "did you mean min-words?"), ("min-words", "e.g. min-words=50"),
        ("min-words=-1", "min-words needs"), ("min-words=nan", "min-words needs"),
        ("min-letters=80", "e.g. min-letters=0.8"), ("max-repeated=two", "max-repeated needs"),
        ("gopher", "did you mean gopher-quality?"), ("c4=5", "c4 takes no value"),
        ("language=english", "e.g. language=en"),
        ("min-words=5 max-words=4", "min-words is above max-words"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=re.escape(says)):
            Filters.parse(given.split())


def test_sets_by_name() -> None:
    """A document has the reason of the first set that drops it, in a fixed order; C4's is read."""
    given = ["fineweb", "c4", "gopher-quality", "fineweb"]
    filters = Filters.parse(given)
    assert filters.sets == ("gopher-quality", "fineweb") and filters.c4
    text = arrays(["One end.", "No end mark\nNo end mark"])
    assert filters.first_reasons(*text).tolist() == ["gopher-quality: under 50 words"] * 2
    assert Filters.parse(["fineweb"]).first_reasons(*text).tolist() == [
        "fineweb: over 67 % of lines under 30 letters",
        "fineweb: under 12 % of lines with an end mark",
    ]


def test_the_description_of_bounds_is_as_before_there_were_sets() -> None:
    """It is part of the names of decisions, and of the fingerprints of shards."""
    bounds = {
        "min_words": "5.0", "max_words": "inf", "min_letters": "0", "max_repeated": "1",
        "language": "",
    }  # fmt: skip
    assert Filters.parse(["min-words=5"]).describe() == bounds
    assert Filters.parse(["min-words=5", "c4"]).describe() == bounds
    assert Filters.parse(["min-words=5", "fineweb"]).describe().keys() == {*bounds, "sets"}


def test_filters_of_each_corpus(tmp_path: Path) -> None:
    given = ["min-words=5", "news=min-words=7", "news=fineweb", "web=c4", "language=en"]
    filters = filters_by_corpus(given, ["news", "web", "books"])
    assert filters == {
        "news": Filters(min_words=7, language="en", sets=("fineweb",)),
        "web": Filters(min_words=5, language="en", c4=True),
        "books": Filters(min_words=5, language="en"),
    }
    assert filters["web"].let_all_pass is False and Filters(c4=True).let_all_pass
    with pytest.raises(ConfigError, match="new is not a corpus"):
        filters_by_corpus(["new=fineweb"], ["news"])
    paths = {name: write_jsonl(tmp_path / f"{name}.jsonl", ["One."]) for name in ("news", "web")}
    sources = [sniff(path, name, path.name) for name, path in paths.items()]
    found = rewrite_texts(sources, "", ["web=c4", "fineweb"])
    assert found[0] == sources[0] and found[1].rewriting == Rewriting(lines=LINES_VERSION)
