"""What is never prose is cut before parsing, whatever begins first."""

from pipeline.ingest.wikitext.holes import HOLE
from pipeline.ingest.wikitext.visible import tried, visible


def test_cuts() -> None:
    code = "<syntaxhighlight lang=c>a <math> b</syntaxhighlight>"
    for wikitext, kept in (
        ("a<ref>b</ref>c <math>x</math> d", "a#c # d"), ("a <!-- b --> c", "a # c"),
        ("<!-- a -->* b <!-- c -->\n<!-- d -->== e ==<!-- f -->", "* b\n== e =="),
        ("== a ==<ref>b</ref>\n<ref>c</ref> == d ==", "== a ==\n== d =="),
        ("<math>x</math>: b\n(<ref/>) c", "#: b\n(#) c"),
        ("__NOTOC__ __FILE__ __БЕЗ_ОГЛ__ __init__ __目次__", " __FILE__ # __init__"),
        ("a<br/>b<br />c<wbr/>d", "a<br/>b<br />c#d"),
        ("<nowiki><ref></nowiki> a <ref>b</ref>", "<nowiki><ref></nowiki> a #"),
        ("<pre><!-- a __TOC__</pre><!-- b -->", "<pre><!-- a __TOC__</pre>"),
        ("<!-- <nowiki> -->a<ref>b</ref></nowiki>", "a#</nowiki>"), (code, code),
        ("<nowiki>never ends <ref>a</ref>", "<nowiki>never ends #"),
    ):  # fmt: skip
        assert visible(wikitext) == kept.replace("#", HOLE)


def test_hostile_pages_take_linear_time() -> None:
    """They took seconds to minutes: the end of each element was looked for from every beginning."""
    for begin in (
        "<!--", "<ref>", "<math ", "<ref name=a", "__A ", "{{dab", "<section x", "</ref ",
        "<nowiki>", "__a_", "__aa__",
    ):  # fmt: skip
        text = begin * 40_000
        assert visible(text) == text
        assert visible(f"a<ref>b</ref>{text}") == f"a{HOLE}{text}"
    for cut in ("<!---->", " <!---->", "<ref/>", " <ref/>", "== <ref/>"):
        assert len(visible(cut * 40_000 + "x")) <= 40_000 * 4 + 1
    # unclosed elements in a long page, and a page with as many beginnings as ends
    rest = "{{lang|fr|mot}} [[a|b]]<ref>c</ref> {|\n|d\n|} <div>e<br>f</div> {{g|}}\n\n" * 3000
    assert tried(rest) == 0
    assert tried("{{ [[ <div> " + rest) < 4 * len(rest)
