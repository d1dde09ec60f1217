"""What is around a mark is closed; everything else stays as it was written."""

from pipeline.ingest.wikitext.holes import HOLE, close_holes


def test_holes_are_closed_and_other_text_stays() -> None:
    for holed, closed in (
        ("Lincoln (# ; born 1809) was", "Lincoln (born 1809) was"),
        ("Lincoln (#; #; #) was", "Lincoln was"), ("Lincoln (#, or #), the", "Lincoln, the"),
        ("Lincoln (# ou #) was", "Lincoln was"),
        ("Lincoln (born 1809; #) was", "Lincoln (born 1809) was"),
        ("a (b (#) c) and ((#)) d [#].", "a (b c) and d."),
        ("one #, two #; and three #.", "one, two; and three."),
        ("one, #, two, # three, #.", "one, two, three."),
        ("one # , two #! # three", "one, two! three"),
        ("Why #? See #.NET, a #.# b", "Why? See .NET, a. b"),
        ("mot # ? mot #\u00a0: a # ; b\u202f# !", "mot ? mot\u00a0: a ; b !"),
        ("est : #, mot ; # autre", "est : mot ; autre"),
        ("«\u00a0# mot #\u00a0»", "«\u00a0mot\u00a0»"), ("# one #\n#, two, #", "one\n, two,"),
        ("團隊（#）是（#；1月）、（日语：#、#），", "團隊是（1月）、（日语），"),
    ):  # fmt: skip
        assert close_holes(holed.replace("#", HOLE)) == closed
    for text in (
        "Est-ce vrai ? Oui ! Le fait : « mot » ; voilà.",
        "one , two ; and three . (; born) ( ) [] , ; ,",
        "for (;;) { a[i] = f( ); } main () ; x = (1, )", "（）、（；一）", "two  spaces",
    ):  # fmt: skip
        assert close_holes(text) == text
        assert close_holes(f"{text} and {HOLE} more") == f"{text} and more"
        assert close_holes(f"{text}\nand {HOLE}, more") == f"{text}\nand, more"


def test_holes_are_closed_in_linear_time() -> None:
    for text in (
        ":" * 90_000, "a（" + "#：；" * 50_000, "(;" * 90_000 + "#",
        "(" * 90_000 + "#" + ")" * 90_000, "( or" * 50_000 + "#", "#a" * 90_000,
        " (" * 90_000 + "#", "# " * 90_000,
    ):  # fmt: skip
        assert HOLE not in close_holes(text.replace("#", HOLE))
