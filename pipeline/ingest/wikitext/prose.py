"""Wikitext to prose, without tables, notes and navigation.

1. What is never prose is cut (`visible`), and of each language variant the first stays
   (`variants`).
2. mwparserfromhell parses, because regular expressions cannot handle nested templates and links.
3. Each node is written as the text that a reader sees. Only templates that stand for words in a
   sentence are expanded (`templates`). Whatever shows nothing leaves a mark, `HOLE`.
4. Apostrophes of bold and italic text are removed line by line, as MediaWiki does.
5. Lines are joined to paragraphs, and what is around the marks is closed (`holes`).

Text that is not markup passes all steps as it is: what was written in `<nowiki>`, `<pre>` and
`<syntaxhighlight>` is protected by marks. No mark is left in the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from pipeline.ingest.wikitext.holes import HOLE, close_holes
from pipeline.ingest.wikitext.names import LANGUAGES
from pipeline.ingest.wikitext.templates import RAISED, constant, expand_template, shows_words
from pipeline.ingest.wikitext.variants import first_variants
from pipeline.ingest.wikitext.visible import MOST_TRIED, NOTHING, VERBATIM, tried, visible
from pipeline.ingest.wikitext.wiki import CATEGORY, FILE, MEDIA, Wiki

WIKITEXT_VERSION = 4
"""Increase it when the same wikitext gives different text."""

# Further marks; like HOLE they are removed from the page first.
_HEADING, _CODE, _APOSTROPHE = "\x02", "\x03", "\x04"
"""Marks before a heading, one per level; before a line of code; of a literal apostrophe."""
_MARKS = re.compile(f"[{HOLE}{_HEADING}{_CODE}{_APOSTROPHE}{NOTHING}]")
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:disambig\w*|dab|hndis|geodis|numberdis|schooldis|mathdab|letter-numbercombdisambig"
    r"|begriffsklärung|homonymie|desambiguación|disambigua|消歧义|消歧義)\b[^{}]*\}\}|__DISAMBIG__",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"'{2,}")
_POWER = re.compile(r"[+−-]?\d+")

LAST_SECTIONS = frozenset(
    {
        "see also", "references", "external links", "notes", "further reading", "bibliography",
        "sources", "citations", "footnotes", "works cited", "notes and references", "gallery",
        "references and notes", "general references", "cited sources", "notes and citations",
        "siehe auch", "einzelnachweise", "weblinks", "literatur", "anmerkungen", "quellen",
        "voir aussi", "références", "liens externes", "notes et références", "bibliographie",
        "véase también", "referencias", "enlaces externos", "bibliografía", "notas",
        "参考文献", "外部链接", "外部連結", "参见", "參見", "注释", "註釋", "参考资料", "參考資料",
    }
)  # fmt: skip
"""Headings of sections that hold lists of links and sources, lower-case (en, de, fr, es, zh)."""


def prose(wikitext: str, wiki: Wiki) -> str:
    """Paragraphs, headings, list items and lines of code, each on its own line, separated by blank
    lines.

    Raises ParserError if the parser would take too long, and RecursionError if it nests too deep.
    """
    shown = first_variants(visible(_MARKS.sub("", wikitext)), wiki.language)  # 1.
    if tried(shown) > MOST_TRIED:  # before parsing: C code is not interrupted
        raise ParserError("too much that does not end")  # type: ignore[no-untyped-call]
    parsed = mwparserfromhell.parse(shown, skip_style_tags=True)  # 2., with apostrophes left to 4.
    writer = _Writer(wiki)
    written, skipped = [], 0  # level of the section that is skipped
    for node in parsed.nodes:
        if isinstance(node, nodes.Heading):
            if skipped and node.level > skipped:
                continue
            title = writer.text(node.title).strip()
            bare = _QUOTES.sub("", title.replace(HOLE, "")).strip().lower()
            skipped = node.level if bare in LAST_SECTIONS else 0
            if not skipped:
                written.append(f"\n\n{_HEADING * node.level}{title}\n\n")
        elif not skipped:
            written.append(writer.node(node))  # 3.
    text = _paragraphs(_without_quotes("".join(written)))  # 4. and 5.
    return _MARKS.sub("", close_holes(text).replace(_APOSTROPHE, "'"))


def is_disambiguation(title: str, wikitext: str) -> bool:
    """True if a page only lists the articles that a title can mean."""
    return title.endswith("(disambiguation)") or bool(_DISAMBIGUATION.search(wikitext))


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the nodes of a page."""

    wiki: Wiki

    def text(self, code: Wikicode) -> str:
        return "".join(map(self.node, code.nodes))

    def node(self, node: nodes.Node) -> str:
        """The text of a node; a mark if it shows none."""
        if isinstance(node, nodes.Text):
            text = str(node.value)
            return _INDENT.sub(f"\n\n{_CODE}", text) if "\n " in text else text
        return self._show(node) or HOLE

    def _show(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Wikilink):
            return self._link(node)
        if isinstance(node, nodes.Template):
            return self._template(node)
        if isinstance(node, nodes.Tag):
            return self._tag(node)
        if isinstance(node, nodes.HTMLEntity):
            return _protect(_MARKS.sub("", str(node.normalize())))
        if isinstance(node, nodes.ExternalLink):
            return self.text(node.title) if node.title is not None else ""
        if isinstance(node, nodes.Argument):
            return self.text(node.default) if node.default is not None else ""
        if isinstance(node, nodes.Heading):
            return f"\n\n{self.text(node.title).strip()}\n\n"
        return ""  # comments

    def _link(self, link: nodes.Wikilink) -> str:
        title = _bare(link.title)
        if not title.startswith(":"):  # [[:File:A.jpg]] links to the page of an image
            namespace = self.wiki.namespace(title)
            if namespace in (FILE, CATEGORY) or (namespace == MEDIA and link.text is None):
                return ""
            if link.text is None and title.partition(":")[0] in LANGUAGES and ":" in title:
                return ""  # the same article in another language
        if link.text is not None:
            return self.text(link.text)
        return title.removeprefix(":")

    def _tag(self, tag: nodes.Tag) -> str:
        name = str(tag.tag).strip().lower()
        if name in ("table", "gallery", "ref"):
            return ""
        if name in VERBATIM:
            return self._verbatim(name, tag)
        # The tag of a list item has no contents.
        written = self.text(tag.contents) if tag.contents is not None else ""
        if name == "sup" and _POWER.fullmatch(written):
            return written.translate(RAISED)
        if name == "poem":
            return f"\n\n{written}\n\n".replace("\n", "\n\n")
        return f"\n\n{written}" if name in ("br", "hr", "li", "dd", "dt") else written

    def _verbatim(self, name: str, tag: nodes.Tag) -> str:
        if tag.contents is None:
            return ""
        # Entities in highlighted code are shown as they are written.
        is_code = name in ("syntaxhighlight", "source")
        text = "".join(
            str(node.normalize()) if isinstance(node, nodes.HTMLEntity) and not is_code
            else str(node)
            for node in tag.contents.nodes
        )  # fmt: skip
        text = _protect(_MARKS.sub("", text))
        if name == "nowiki" or tag.has("inline"):
            return text
        if name == "pre":
            text = _NOWIKI.sub("", text)
        lines = "".join(f"\n\n{_CODE}{line}" for line in text.split("\n") if line.strip())
        return f"{lines}\n\n"

    def _template(self, template: nodes.Template) -> str:
        name = _bare(template.name).replace("_", " ").lower()
        if (same := constant(name)) is not None:
            return _protect(same)
        if not shows_words(name):
            return ""
        named = {_bare(p.name): self.text(p.value).strip() for p in template.params}
        return expand_template(name, named)


_INDENT = re.compile(r"\n (?! *\n)")
_NOWIKI = re.compile(r"</?nowiki\s*>", re.IGNORECASE)


def _bare(code: Wikicode) -> str:
    """A name or title as it was written, without marks."""
    return _MARKS.sub("", str(code)).strip()


def _protect(text: str) -> str:
    """Text whose apostrophes do not make text bold or italic."""
    return text.replace("'", _APOSTROPHE)


def _without_quotes(text: str) -> str:
    if "''" not in text:
        return text
    return "\n".join(
        _without_line_quotes(line) if "''" in line else line for line in text.split("\n")
    )


def _without_line_quotes(line: str) -> str:
    """The line without apostrophes of bold and italic text, by MediaWiki's rules (doQuotes).

    Two are italic, three bold, five both; four are one of text and three, and more than five the
    rest of text and five. If neither bold nor italic text ends, one `'''` is an apostrophe and
    `''`, as in "l'''amour''": after a word of one letter, else after a longer one, else after a
    space.
    """
    runs = [*_QUOTES.finditer(line)]
    sizes = [len(run[0]) for run in runs]
    kept = [1 if size == 4 else max(0, size - 5) for size in sizes]
    marks = [size - literal for size, literal in zip(sizes, kept)]
    italic, bold = sum(size != 3 for size in marks), sum(size != 2 for size in marks)
    if italic % 2 and bold % 2:
        places: dict[int, int] = {}
        for index, run in enumerate(runs):
            if marks[index] == 3:
                before = line[max(0, run.start() - 2) : run.start()].rjust(2)
                kind = 2 if before[1] == " " else 0 if before[0] == " " else 1
                places.setdefault(kind, index)
        if places:
            kept[places[min(places)]] += 1
    pieces, at = [], 0
    for run, literal in zip(runs, kept):
        pieces += [line[at : run.start()], "'" * literal]
        at = run.end()
    return "".join([*pieces, line[at:]])


_BLANK_LINE = re.compile(rf"\n[\s{HOLE}]*\n")  # an image on a line of its own parts paragraphs
_SPACES = re.compile(r"[ \t\n\r\f\v]{2,}|[\t\n\r\f\v]")
_LETTER = re.compile(r"[^\W_]")


def _paragraphs(text: str) -> str:
    """One paragraph per line, since a single newline is a space; drops headings of empty
    sections."""
    kept: list[str] = []
    headings: list[tuple[int, str]] = []
    for part in _BLANK_LINE.split(text):
        code, line = "", part
        if part.startswith(_CODE):
            code, _, line = part[1:].partition("\n")
        line = _SPACES.sub(" ", line).strip()
        if line.startswith(_HEADING):
            title = line.lstrip(_HEADING).strip()
            level = len(line) - len(line.lstrip(_HEADING))
            # Waiting headings of this level or below have no text under them: drop them.
            headings = [other for other in headings if other[0] < level]
            if title:
                headings.append((level, title))
            continue
        lines = [code.rstrip()] if code.replace(HOLE, "").strip() else []
        lines += [line] if _LETTER.search(line) else []
        if lines:
            kept += [title for _, title in headings]
            headings = []
            kept += lines
    return "\n\n".join(kept)
