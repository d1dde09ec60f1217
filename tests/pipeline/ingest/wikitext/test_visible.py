"""What is never prose is cut before parsing, whatever begins first."""

from __future__ import annotations

import pytest

from pipeline.ingest.wikitext.holes import HOLE
from pipeline.ingest.wikitext.visible import tried, visible


@pytest.mark.parametrize(
    ("wikitext", "kept"),
    [
        ("a<ref>b</ref>c <math>x</math> d", "a#c # d"),
        ("a <!-- b --> c", "a # c"),
        ("<!-- a -->* b <!-- c -->\n<!-- d -->== e ==<!-- f -->", "* b\n== e =="),
        ("== a ==<ref>b</ref>\n<ref>c</ref> == d ==", "== a ==\n== d =="),
        ("<math>x</math>: b\n(<ref/>) c", "#: b\n(#) c"),
        ("__NOTOC__ __FILE__ __БЕЗ_ОГЛ__ __init__ __目次__", " __FILE__ # __init__"),
        ("a<br/>b<br />c<wbr/>d", "a<br/>b<br />c#d"),
        ("<nowiki><ref></nowiki> a <ref>b</ref>", "<nowiki><ref></nowiki> a #"),
        ("<pre><!-- a __TOC__</pre><!-- b -->", "<pre><!-- a __TOC__</pre>"),
        ("<!-- <nowiki> -->a<ref>b</ref></nowiki>", "a#</nowiki>"),
        ("<syntaxhighlight lang=c>a <math> b</syntaxhighlight>",
         "<syntaxhighlight lang=c>a <math> b</syntaxhighlight>"),
        ("<nowiki>never ends <ref>a</ref>", "<nowiki>never ends #"),
    ],
)  # fmt: skip
def test_cuts(wikitext: str, kept: str) -> None:
    assert visible(wikitext) == kept.replace("#", HOLE)


@pytest.mark.parametrize(
    "begin", ["<!--", "<ref>", "<math ", "<ref name=a", "__A ", "{{dab", "<section x", "</ref ",
              "<nowiki>", "__a_", "__aa__"]
)  # fmt: skip
def test_what_never_ends_is_looked_for_once(begin: str) -> None:
    """Each of these took seconds to minutes: the end was looked for from every beginning."""
    text = begin * 40_000
    assert visible(text) == text
    assert visible(f"a<ref>b</ref>{text}") == f"a{HOLE}{text}"


@pytest.mark.parametrize("cut", ["<!---->", " <!---->", "<ref/>", " <ref/>", "== <ref/>"])
def test_many_cuts_take_linear_time(cut: str) -> None:
    assert len(visible(cut * 40_000 + "x")) <= 40_000 * 4 + 1


def test_long_pages_of_any_kind_are_tried() -> None:
    """Unclosed elements in a long page, and a page with as many beginnings as ends."""
    rest = "{{lang|fr|mot}} [[a|b]]<ref>c</ref> {|\n|d\n|} <div>e<br>f</div> {{g|}}\n\n" * 3000
    assert tried(rest) == 0
    assert tried("{{ [[ <div> " + rest) < 4 * len(rest)
