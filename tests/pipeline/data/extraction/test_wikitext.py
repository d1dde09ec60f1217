"""Wikitext becomes prose."""

from __future__ import annotations

import pytest
from mwparserfromhell.parser import ParserError

from pipeline.data.extraction import wikitext
from pipeline.data.extraction.wikitext import is_disambiguation, prose
from tests.pipeline.data.dump import ARTICLE, PROSE


def test_an_article() -> None:
    assert prose(ARTICLE) == PROSE


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("{{convert|5|km|mi}}", "5 km"),
        ("{{convert|6|ft|2|in|cm}}", "6 ft 2 in"),
        ("{{convert|3|x|4|m|ft|abbr=on}}", "3 x 4 m"),
        ("{{cvt|40|C|F}}", "40 °C"),
        ("{{lang|fr|fin de siècle}}", "fin de siècle"),
        ("{{as of|2015|4}}, all", "As of April 2015, all"),
        ("{{frac|1|2}} and {{frac|3|1|4}}", "1/2 and 3 1/4"),
        ("{{nowrap|{{lang|la|ab [[urbe]]}}}}", "ab urbe"),
        ("a{{spaced ndash}}b {{·}} c", "a – b · c"),
        ("{{as of|2015|6|30}}; {{as of|2015}}", "As of 30 June 2015; As of 2015"),
        ("{{val|6.24|0.01|e=18|u=C}}, {{val|12|e=-3}}", "6.24 ± 0.01×10¹⁸ C, 12×10⁻³"),
        ("{{nowrap|1=''Q'' = ''It''}} {{lang|fr|2=mot}}", "Q = It mot"),
        ("{{quote|text=All [[men]].|author=X}} {{quote|sign=X}}", "All men."),
        ("{{angbr|{{IPA|a}}}} {{HMS|Ajax|22|6}}", "a HMS Ajax"),
        ("x<sup>2</sup> 10<sup>−7</sup> 1<sup>st</sup> H<sub>2</sub>O", "x² 10⁻⁷ 1st H2O"),
        ("<i>y</i><sup/>", "y"),
        ("[[:Category:Rivers|all]] [[w:Arve|it]] [[Arve (river)|Arve]]", "all it Arve"),
        ("[[Star Wars: A New Hope]]", "Star Wars: A New Hope"),
        ("one[http://x.org] [http://x.org two] http://x.org", "one two "),
        ("&lt;b&gt; &amp; &eacute;", "<b> & é"),
        ("a <nowiki>[[b]]</nowiki> c", "a [[b]] c"),
        ("one <math>x = {{1}}</math> two", "one two"),
        ("{{unknown|thing}} stays out", "stays out"),
        ("'''''Bold''''' and l'''amour''", "Bold and lamour"),
        ("{{broken|never ends", "{{broken|never ends"),
        ("[[broken", "[[broken"),
        ("", ""),
    ],
)
def test_parts(wikitext: str, text: str) -> None:
    assert prose(wikitext) == text.strip()


def test_disambiguation() -> None:
    assert is_disambiguation("Arve (disambiguation)", "")
    assert is_disambiguation("Arve", "x {{Disambig|geo}}")
    assert is_disambiguation("Arve", "x {{hndis}}")
    assert not is_disambiguation("Arve", "{{other uses|Arve (disambiguation)}} {{dabble}}")


@pytest.mark.parametrize(
    "begin", ["<!--", "<ref>", "<math ", "<ref name=a", "__A ", "{{dab", "<section x", "</ref "]
)
def test_what_never_ends_is_looked_for_once(begin: str) -> None:
    """Each of these took seconds to minutes: the end was looked for from every beginning."""
    text = begin * 40_000
    assert wikitext._visible(text) == text
    assert wikitext._visible(f"a<ref>b</ref>{text}") == f"a{text}"


@pytest.mark.parametrize(
    "begin", ["<!-- ", "<div ", "<div a=b ", "<ref>", "{{a|", "{{{a|", "{|\n|-\n"]
)
def test_what_would_be_tried_for_minutes_is_not_parsed(begin: str) -> None:
    with pytest.raises(ParserError, match="does not end"):
        prose(begin * 40_000)


def test_long_pages_of_any_kind_are_parsed() -> None:
    """Unclosed elements in a long page, and a page with as many beginnings as ends."""
    rest = "{{lang|fr|mot}} [[a|b]]<ref>c</ref> {|\n|d\n|} <div>e<br>f</div> {{g|}}\n\n" * 3000
    assert wikitext._tried(rest) == 0
    assert wikitext._tried("{{ [[ <div> " + rest) < 4 * len(rest)
    text = prose("{{unclosed <b>" + rest[:9000])
    assert "mot b" in text
