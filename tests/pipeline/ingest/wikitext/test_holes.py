"""What is around a mark is closed; everything else stays as it was written."""

from __future__ import annotations

import pytest

from pipeline.ingest.wikitext.holes import HOLE, close_holes


@pytest.mark.parametrize(
    ("holed", "closed"),
    [
        ("Lincoln (# ; born 1809) was", "Lincoln (born 1809) was"),
        ("Lincoln (#; #; #) was", "Lincoln was"),
        ("Lincoln (#, or #), the", "Lincoln, the"),
        ("Lincoln (# ou #) was", "Lincoln was"),
        ("Lincoln (born 1809; #) was", "Lincoln (born 1809) was"),
        ("a (b (#) c) and ((#)) d [#].", "a (b c) and d."),
        ("one #, two #; and three #.", "one, two; and three."),
        ("one, #, two, # three, #.", "one, two, three."),
        ("one # , two #! # three", "one, two! three"),
        ("Why #? See #.NET, a #.# b", "Why? See .NET, a. b"),
        ("mot # ? mot #\u00a0: a # ; b\u202f# !", "mot ? mot\u00a0: a ; b !"),
        ("est : #, mot ; # autre", "est : mot ; autre"),
        ("«\u00a0# mot #\u00a0»", "«\u00a0mot\u00a0»"),
        ("# one #\n#, two, #", "one\n, two,"),
        ("團隊（#）是（#；1月）、（日语：#、#），", "團隊是（1月）、（日语），"),
    ],
)
def test_holes(holed: str, closed: str) -> None:
    assert close_holes(holed.replace("#", HOLE)) == closed


@pytest.mark.parametrize(
    "text",
    [
        "Est-ce vrai ? Oui ! Le fait : « mot » ; voilà.",
        "one , two ; and three . (; born) ( ) [] , ; ,",
        "for (;;) { a[i] = f( ); } main () ; x = (1, )",
        "（）、（；一）",
        "two  spaces",
    ],
)
def test_text_without_marks_stays_as_it_is(text: str) -> None:
    assert close_holes(text) == text
    with_hole = close_holes(f"{text} and {HOLE} more")
    assert with_hole == f"{text} and more"
    assert close_holes(f"{text}\nand {HOLE}, more") == f"{text}\nand, more"


@pytest.mark.parametrize(
    "text",
    [":" * 90_000, "a（" + "#：；" * 50_000, "(;" * 90_000 + "#", "(" * 90_000 + "#" + ")" * 90_000,
     "( or" * 50_000 + "#", "#a" * 90_000, " (" * 90_000 + "#", "# " * 90_000],
)  # fmt: skip
def test_holes_are_closed_in_linear_time(text: str) -> None:
    assert HOLE not in close_holes(text.replace("#", HOLE))
