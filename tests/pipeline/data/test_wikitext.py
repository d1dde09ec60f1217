"""Wikitext becomes what a reader reads."""

from __future__ import annotations

import pytest

from pipeline.data.wikitext import close_holes, is_disambiguation, prose
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
        ("x<sup>2</sup> H<sub>2</sub>O <i>y</i>", "x2 H2O y"),
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


@pytest.mark.parametrize(
    ("holed", "mended"),
    [
        ("Lincoln ( ; born 1809) was", "Lincoln (born 1809) was"),
        ("Lincoln (; ; ) was", "Lincoln was"),
        ("Lincoln ( , or ) was", "Lincoln was"),
        ("Lincoln (born 1809; ) was", "Lincoln (born 1809) was"),
        ("one , two ; and three .", "one, two; and three."),
        ("one, , two", "one, two"),
        ("nothing (to mend; really, no).", "nothing (to mend; really, no)."),
        ("f(x, y) = :) and ... e.g. this", "f(x, y) = :) and ... e.g. this"),
        ("(and so on) (or not)", "(and so on) (or not)"),
    ],
)
def test_holes(holed: str, mended: str) -> None:
    assert close_holes(holed) == mended


def test_disambiguation() -> None:
    assert is_disambiguation("Arve (disambiguation)", "")
    assert is_disambiguation("Arve", "x {{Disambig|geo}}")
    assert is_disambiguation("Arve", "x {{hndis}}")
    assert not is_disambiguation("Arve", "{{other uses|Arve (disambiguation)}} {{dabble}}")
