"""A MediaWiki dump of a few pages, one of each kind, for tests."""

from pathlib import Path
from xml.sax.saxutils import escape

ARTICLE = """{{Use dmy dates|date=May 2014}}
{{Infobox river|name=Arve|length={{convert|108|km|mi}}|source=[[Alps]]}}
[[File:Arve.jpg|thumb|The [[Arve]] at ''Geneva''.]]
The '''Arve''' ({{IPA-fr|aʁv}}; {{lang-la|Arva}}) is a [[river]] in [[France]] and [[Switzerland|the
Swiss canton]].<ref name="a">{{cite web|title=Arve|url=https://example.org}}</ref> It is
{{convert|108|km|mi}} long,<ref name="b"/> and {{convert|5|to|7|m|ft}} deep. ({{IPAc-en|x}})
<!-- not [[seen]] -->It joins the [[Rhône]] {{circa|1850}}&nbsp;years{{fact}}.

== Course ==
{| class="wikitable"
! Town !! Height
|-
| [[Chamonix]] || {{nts|1035}}
|}

=== Towns ===
* [[Cluses]]
* [[Bonneville, Haute-Savoie|Bonneville]], a {{nowrap|small town}}

== Empty ==
{{Empty section}}

== See also ==
* [[Rivers of France]]

=== Deeper ===
* [[Nothing]]

== Name ==
A name of ''unknown'' origin [https://example.org here] __NOTOC__

== References ==
{{reflist}}

[[Category:Rivers]]
[[fr:Arve]]
"""

PROSE = """The Arve (Arva) is a river in France and the Swiss canton. It is 108 km long, and 5 to \
7 m deep. It joins the Rhône c. 1850\u00a0years.

Course

Towns

Cluses

Bonneville, a small town

Name

A name of unknown origin here"""
"""The text of `ARTICLE`."""


def page(number: int, title: str, text: str, namespace: int = 0, more: str = "") -> str:
    return f"""  <page>
    <title>{escape(title)}</title>
    <ns>{namespace}</ns>
    <id>{number}</id>{more}
    <revision>
      <id>{number + 1000}</id>
      <timestamp>2016-04-22T10:19:{number % 60:02d}Z</timestamp>
      <model>wikitext</model>
      <text xml:space="preserve">{escape(text)}</text>
    </revision>
  </page>
"""


def dump(
    pages: list[str], language: str = "en", namespaces: tuple[tuple[int, str], ...] = ()
) -> bytes:
    """namespaces: numbers and names that the dump gives to them."""
    names = "".join(
        f'      <namespace key="{number}" case="first-letter">{escape(name)}</namespace>\n'
        for number, name in namespaces
    )
    names = f"    <namespaces>\n{names}    </namespaces>\n" if names else ""
    head = f"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="{language}">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <base>https://{language}.wikipedia.org/wiki/Main_Page</base>
{names}  </siteinfo>
"""
    return (head + "".join(pages) + "</mediawiki>\n").encode()


def small_dump() -> bytes:
    """An article, and a page of every other kind."""
    return dump(
        [
            page(1, "Arve", ARTICLE),
            page(2, "Arve river", "#REDIRECT [[Arve]]", more='\n    <redirect title="Arve" />'),
            page(3, "Arva", "'''Arva''' may be:\n* [[Arve]]\n{{disambiguation}}"),
            page(4, "Talk:Arve", "Is it {{convert|108|km}}?", namespace=1),
            page(5, "Table", "{|\n| a\n|}"),
        ]
    )


def large_dump(path: Path, articles: int) -> Path:
    """Articles of about 500 bytes each, all different."""
    texts = {
        n: f"The '''River {n}''' is [[long]]. " + f"It says {n} again. " * 20
        for n in range(1, articles + 1)
    }
    path.write_bytes(dump([page(n, f"River {n}", text) for n, text in texts.items()]))
    return path
