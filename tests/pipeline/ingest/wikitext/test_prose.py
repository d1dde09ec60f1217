"""Wikitext becomes prose."""

import pytest
from mwparserfromhell.parser import ParserError

from pipeline.ingest.wikitext.prose import is_disambiguation, prose
from pipeline.ingest.wikitext.wiki import Wiki
from tests.pipeline.ingest.dump import ARTICLE, PROSE


def shown(wikitext: str, language: str = "en") -> str:
    return prose(wikitext, Wiki(language=language))


def test_parts_of_articles_and_links_of_a_wiki() -> None:
    for wikitext, text in (
        (ARTICLE, PROSE), ("{{convert|5|km|mi}}", "5 km"),
        ("{{convert|6|ft|2|in|cm}}", "6 ft 2 in"),
        ("{{convert|3|x|4|m|ft|abbr=on}}", "3 x 4 m"), ("{{cvt|40|C|F}}", "40 °C"),
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
        ("&lt;b&gt; &amp; &eacute;", "<b> & é"), ("a <nowiki>[[b]]</nowiki> c", "a [[b]] c"),
        ("one <math>x = {{1}}</math> two", "one two"), ("{{unknown|thing}} stays out", "stays out"),
        ("'''''Bold''''' and ''amour''", "Bold and amour"),
        ("{{broken|never ends", "{{broken|never ends"), ("[[broken", "[[broken"), ("", ""),
        # lines and paragraphs
        ("one<br/>two<br />three", "one\n\ntwo\n\nthree"),
        ("{{math|x}} = 5 is\n\n{{math|1=}} = 6", "x = 5 is\n\n= 6"),
        ("__NOTOC__ __FILE__ and __LINE__", "__FILE__ and __LINE__"),
        ("<nowiki><ref></nowiki> is a tag. All this stays.<ref>x</ref>",
         "<ref> is a tag. All this stays."),
        ("One.\n[[File:x.jpg|thumb|y]]\nTwo.\n{|\n|}\nThree\n<math>x</math>, four.",
         "One.\n\nTwo.\n\nThree, four."),
        ("<poem>a rose\nis a rose</poem>", "a rose\n\nis a rose"),
        ("== One ==<!-- x -->\na\n== ==\nb", "One\n\na\n\nb"),
        ("== One ==\n=== Two ===<ref>x</ref>\n== Three ==\na", "Three\n\na"),
        ("a <gallery>X.jpg|caption</gallery> [//x.org text] [http://x.org]", "a text"),
        # quotes
        ("l'''amour'' fou", "l'amour fou"), ("''[[Titanic]]'''s crew", "Titanic's crew"),
        ("dans l'''Odyssée'' et ''l'Iliade''", "dans l'Odyssée et l'Iliade"),
        ("''a'' b'''c'' d", "a b'c d"), ("''''four''' ''''''six'''''", "'four 'six"),
        ("l'''amour\n''fou''", "lamour fou"),
        ("&#39;&#39;a&#39;&#39; it's {{'}}''b''", "''a'' it's 'b"),
    ):  # fmt: skip
        assert shown(wikitext) == text.strip()
    for language, wikitext, text in (
        ("ru", "Город.[[Категория:Города]] [[Файл:X.jpg|мини|200px|Подпись]]", "Город."),
        ("ru", "[[Изображение:X.jpg|x]]да [[File:X.jpg|thumb]] [[image:Y|Z]]", "да"),
        ("ru", "[[:Категория:Города]] [[Медиа:a.ogg|слушать]]", "Категория:Города слушать"),
        ("en", "[[Media:a.ogg|listen]] [[media:a.ogg]]", "listen"),
        ("en", "[[Datei: A Story]] [[Файл:X|y]]", "Datei: A Story y"),
        ("en", "[[CSI: Miami]] [[Re: Zero]] [[UK: a map]] [[IT: x]]",
         "CSI: Miami Re: Zero UK: a map IT: x"),
        ("en", "a [[fr:Bonjour]], b [[simple:A]] [[zh-min-nan:B]] c", "a, b c"),
        ("en", "[[:fr:Bonjour]] [[:fr:Bonjour|bonjour]] [[fr:Salut|salut]]",
         "fr:Bonjour bonjour salut"),
        ("en", "[[wikt:word|word]] [[wikt:word]] [[w:Arve]]", "word wikt:word w:Arve"),
        ("zh", "-{zh-hans:甲;zh-hant:乙}-（-{H|zh-cn:a}-）丙", "甲丙"),
        ("en", "-{zh-hans:甲}- <code>-{x}-</code>", "-{zh-hans:甲}- -{x}-"),
    ):  # fmt: skip
        assert shown(wikitext, language) == text


def test_disambiguation() -> None:
    assert is_disambiguation("Arve (disambiguation)", "")
    assert is_disambiguation("Arve", "x {{Disambig|geo}}")
    assert is_disambiguation("Arve", "x {{hndis}}")
    assert not is_disambiguation("Arve", "{{other uses|Arve (disambiguation)}} {{dabble}}")


def test_what_would_be_tried_for_minutes_is_not_parsed() -> None:
    for begin in ("<!-- ", "<div ", "<div a=b ", "<ref>", "{{a|", "{{{a|", "{|\n|-\n"):
        with pytest.raises(ParserError, match="does not end"):
            shown(begin * 40_000)
    rest = "{{lang|fr|mot}} [[a|b]]<ref>c</ref> {|\n|d\n|} <div>e<br>f</div> {{g|}}\n\n" * 300
    assert "mot b" in shown("{{unclosed <b>" + rest), "long pages of any kind are parsed"


FRENCH = """Est-ce vrai ? Oui ! Voici le fait : « mot » ; voilà.

Un\u00a0fait\u00a0: «\u00a0autre\u00a0»\u202f? L'été, 5\u00a0%, n\u00ba\u00a04 [sic], (non)"""
RUSSIAN = "«Слово» — это ( да ) , нет ; см. [1] и №\u00a05."
CHINESE = "他说：“好（）。”，《书》；、？！（；）"
THAI = "ภาษาไทย ๆ ( ก ) ฯลฯ"
ARABIC = "قال : « نعم » ؛ ثم ؟"
CODE = """main () calls for (;;) , a[] and f( ) ; x = (1, )

if (a ? b : c) { return []; } // -{x}- __FILE__ {0}"""


def test_text_that_is_no_markup_comes_out_as_it_is() -> None:
    for text in (FRENCH, RUSSIAN, CHINESE, THAI, ARABIC, CODE):
        for language in ("fr", "en"):
            assert shown(text, language) == text
            assert shown(f"{text} {{{{unknown}}}} <ref>x</ref>", language) == text
    marks, entities = "\x01\x02\x03\x04\x05", "&#1;&#2;&#3;&#4;&#5;"
    text = shown(f"a {marks}b ({marks}) {entities} ( ) <pre>{marks}{entities}c</pre> {marks}= d")
    assert text == "a b () ( )\n\nc\n\n= d", "no mark is left"


def test_code_comes_out_as_it_is() -> None:
    """`''` and `[]` in it, lines with no letter, and what looks like markup."""
    lines = ["for (;;) {", "  s = '' + '''x''' + a[];", "  <b> [[x]] {{y}} __TOC__ <ref>", "}"]
    code = "\n".join(lines)
    as_lines = "\n\n".join(lines)
    for name in ("pre", "syntaxhighlight lang=c", "source lang=c"):
        end = name.partition(" ")[0]
        text = shown(f"One:\n<{name}>\n{code}\n</{end}>\nTwo<ref>x</ref>.")
        assert text == f"One:\n\n{as_lines}\n\nTwo."
    assert shown("a <code>f(;;) { x[] ; }</code> ; b") == "a f(;;) { x[] ; } ; b"
    assert shown("a <nowiki>''[[x]]'' ( )</nowiki> b") == "a ''[[x]]'' ( ) b"
    inline = "a <syntaxhighlight lang=c inline>x = ''; &lt;</syntaxhighlight> b"
    assert shown(inline) == "a x = ''; &lt; b"
    assert shown("One:\n if (a) {\n   f() ;\n }\ntwo\nthree") == (
        "One:\n\nif (a) {\n\n  f() ;\n\n}\n\ntwo three"
    )
    assert shown("<pre>&lt;b&gt; &amp;lt; <nowiki>{{x}}</nowiki></pre>") == "<b> &lt; {{x}}"
