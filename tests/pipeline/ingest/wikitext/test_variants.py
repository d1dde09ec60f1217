"""Language variants: the first is shown, in wikis that know the markup."""

from pipeline.ingest.wikitext.holes import HOLE
from pipeline.ingest.wikitext.variants import VARIANTS, first_variants


def test_rules() -> None:
    for rule, shown in (
        ("-{zh-hans:计算机;zh-hant:電腦;}-", "计算机"),
        ("-{ zh-tw : 電腦 ; zh-cn : 计算机 }-", "電腦"),
        ("-{A}-B-{ C }-", "AB C "), ("-{zh-hans:A}-", "A"), ("-{zh-cn:;zh-tw:B}-", "B"),
        ("-{zh-hans:a;b;zh-hant:c}-", "a;b"), ("-{zh-hans:&lt;a&gt;;zh-hant:c}-", "&lt;a&gt;"),
        ("-{zh-hans:a;zh-xx:c}-", "a;zh-xx:c"), ("-{xx:a;zh-hant:c}-", "xx:a;zh-hant:c"),
        ("-{时间: 3:40; 4:50}-", "时间: 3:40; 4:50"), ("-{A|zh-hans:A;zh-hant:B}-", "A"),
        ("-{D|zh-hans:A;zh-hant:B}-", "A"), ("-{A;T|zh-hans:A;zh-hant:B}-", "A"),
        ("-{H;D|zh-hans:A;zh-hant:B}-", "A"), ("-{H|zh-hans:A;zh-hant:B}-", HOLE),
        ("-{-|zh-hans:A;zh-hant:B}-", HOLE), ("-{T|zh-hans:A;zh-hant:B}-", HOLE),
        ("-{N|zh-hans}-", HOLE), ("-{}-", HOLE), ("-{R|zh-hans:A}-", "zh-hans:A"),
        ("-{zh-hans;zh-hant|A:B}-", "A:B"), ("-{|A}-", "A"), ("-{我=>zh-cn:你}-", "你"),
        ("-{我=&gt;zh-cn:你;zh-tw:他}-", "他"), ("-{[[a|b]]}-", "[[a|b]]"),
        ("-{zh-cn:a-{zh-hans:b;zh-hant:c}-;zh-tw:d}-", "ab"),
        ("-{zh-cn:{{lang|en|q}}}-", "{{lang|en|q}}"),
        ("{{lang|zh|-{zh-cn:a;zh-tw:b}-}}", "{{lang|zh|a}}"), ("a-{{b}}-{c}-", "a-{{b}}c"),
        ("-{{b}}- x }- y }} z -{", "-{{b}}- x }- y }} z -{"), ("-{ open -{A}-", "-{ open A"),
        ("<nowiki>-{A}-</nowiki>-{A}-<pre>-{B}-</pre><nowiki>-{C}-",
         "<nowiki>-{A}-</nowiki>A<pre>-{B}-</pre><nowiki>C"),
    ):  # fmt: skip
        assert first_variants(rule, "zh") == shown
    for language, rule, shown in (
        ("sr", "-{sr-ec:ћ;sr-el:ć}- -{реч|a}- -{sr-Cyrl:б}-", "ћ a б"),
        ("kk", "-{kk-cyrl:а;kk-latn:b}-", "а"), ("iu", "-{ike-cans:ᐃ;ike-latn:i}-", "ᐃ"),
        ("zh-Hans", "-{A}-", "A"), ("sr", "-{zh-hans:A}-", "zh-hans:A"), ("en", "-{A}-", "-{A}-"),
        ("ja", "-{A}-", "-{A}-"), ("", "-{A}-", "-{A}-"),
    ):  # fmt: skip
        assert first_variants(rule, language) == shown
    assert all(language in codes.split() for language, codes in VARIANTS.items())


def test_rules_are_found_in_linear_time() -> None:
    for text in (
        "-{" * 90_000, "-{a;" * 50_000, "{{" * 90_000 + "}}" * 90_000,
        "-{" * 50_000 + "}-" * 50_000, "-{zh:a" + ";x" * 90_000 + "}-",
        "-{" + "a=>" * 90_000 + "}-", "-{" + " " * 90_000 + "}-",
        "-{zh-cn:a;" * 12 + "x" * 90_000 + "}-" * 12, "<nowiki>-{" * 20_000, "}}" * 90_000,
    ):  # fmt: skip
        assert len(first_variants(text, "zh")) <= len(text)
