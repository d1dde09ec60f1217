"""Templates that stand for words."""

from pipeline.ingest.wikitext.holes import HOLE
from pipeline.ingest.wikitext.templates import constant, expand_template, shows_words


def test_which_templates_show_words() -> None:
    assert constant("spaced ndash") == " – " and constant("!") == "|"
    assert constant("lang") is None
    names = ("lang", "lang-ru", "convert", "val", "nowrap", "infobox river", "cite web")
    assert [shows_words(name) for name in names] == [True] * 5 + [False] * 2
    assert expand_template("nowrap", {"1": "mot", "2": "x"}) == "mot"
    assert expand_template("nowrap", {"class": "x"}) == ""
    values = {"1": f"5{HOLE}", "2": f"to{HOLE}", "3": "7", "4": "m"}
    assert expand_template("convert", values) == "5 to 7 m"
