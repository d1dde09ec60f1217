"""Filters against their definitions, and invalid arguments."""

from __future__ import annotations

import pytest

from pipeline.base.errors import ConfigError
from pipeline.data.selection.filters import Filters
from pipeline.data.text.cleaning import clean

TEXTS = ["one two three four", "one 2 3 4", "one\ntwo\none\none", "one", "... 5"]


def reasons(*given: str) -> dict[str, list[str]]:
    text = clean(TEXTS)
    return {
        reason: [found for found, is_held in zip(TEXTS, held) if is_held]
        for reason, held in Filters.parse([*given]).reasons(text.buffer, text.offsets)
        if held.any()
    }


def test_no_filters() -> None:
    assert reasons() == {}


def test_each_filter() -> None:
    """Bounds are inclusive."""
    assert reasons("min-words=4") == {"too few words": ["one", "... 5"]}
    assert reasons("max-words=1") == {"too many words": TEXTS[:3]}
    assert reasons("min-letters=0.25") == {"too few letters": ["... 5"]}
    assert reasons("min-letters=0.3") == {"too few letters": ["one 2 3 4", "... 5"]}
    assert reasons("max-repeated=0.5") == {}
    assert reasons("max-repeated=0.49") == {"repeated lines": ["one\ntwo\none\none"]}
    assert [*reasons("max-repeated=0.4", "max-words=3")] == ["too many words", "repeated lines"]


def test_language() -> None:
    """The sample is English; texts in other languages are dropped; short texts are kept."""
    german = "Die Katze schläft den ganzen Tag auf dem Sofa, und niemand weiß, warum sie das tut."
    english = "The cat sleeps on the sofa all day long, and nobody knows why she would do that."
    text = clean([german, english, "April 6", german])
    [(reason, held)] = Filters(language="en").reasons(text.buffer, text.offsets)
    assert reason == "language de" and held.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("min-word=5", "unknown filter; did you mean min-words?"),
        ("min-words", "min-words needs a number of words, e.g. min-words=50"),
        ("min-words=-1", "min-words needs"),
        ("min-words=nan", "min-words needs"),
        ("min-letters=80", "min-letters needs a share from 0 to 1, e.g. min-letters=0.8"),
        ("max-repeated=two", "max-repeated needs a share"),
        ("language=english", "unknown language; give its two-letter code, e.g. language=en"),
    ],
)
def test_invalid_filters_are_refused(given: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Filters.parse([given])


def test_bounds_that_no_document_can_satisfy() -> None:
    with pytest.raises(ConfigError, match="min-words is above max-words"):
        Filters.parse(["min-words=5", "max-words=4"])
