"""Wikitext to prose, without tables, notes and navigation.

mwparserfromhell parses, because regular expressions cannot handle nested templates and links. It
takes most of the time (1 MB/s), so comments, references and formulas, half of a page's text, are
cut first. Only templates that stand for words in a sentence are expanded (`TEMPLATES`), because a
dump of articles does not contain the definitions of templates. Any other template leaves a hole
such as "( ; born 1809)", which `close_holes` closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from pipeline.data.documents.wikiextractor import close_holes

WIKITEXT_VERSION = 3
"""Increase it when the same wikitext gives different text."""

# Cut before parsing: never prose, whatever it contains. A comment or one of these elements is cut
# up to its end, if it has one; an empty element by itself.
_BEGINNING = re.compile(
    r"<!--"
    r"|<ref\b[^<>]*/\s*>"
    r"|<(ref|math|gallery|timeline|score|source|syntaxhighlight|imagemap|templatedata|chem|hiero"
    r"|graph|mapframe|maplink|inputbox|section)\b[^<>]*(?<!/)>"
    r"|<(?:references|templatestyles|section|nowiki|br|wbr)\b[^<>]*/\s*>"
    r"|__[A-Z]+__",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"<section\b[^<>]*/\s*>", re.IGNORECASE)
# What the parser looks for the end of. A tag without end in it is tried like one with an end.
_OPEN_OR_CLOSE = re.compile(
    r"<!--|\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\})|<(/?)([a-z]\w*)[^<>]*(/?>)?", re.I
)
_CLOSES = {"}}": "{{", "]]": "[[", "|}": "{|"}
_VOID = frozenset({"br", "hr", "wbr", "li", "dd", "dt", "td", "th", "tr", "p"})
_MOST_TRIED = 1e8
"""Characters that the parser reads again because something does not end: half a minute."""
_DISAMBIGUATION = re.compile(
    r"\{\{\s*(?:disambig\w*|dab|hndis|geodis|numberdis|schooldis|mathdab|letter-numbercombdisambig"
    r"|begriffsklärung|homonymie|desambiguación|disambigua|消歧义|消歧義)\b[^{}]*\}\}|__DISAMBIG__",
    re.IGNORECASE,
)
_QUOTES = re.compile(r"'{2,5}")
_NOT_TEXT = ("file:", "image:", "media:", "category:", "datei:", "bild:", "kategorie:", "fichier:",
             "catégorie:", "archivo:", "categoría:", "文件:", "分类:", "分類:")  # fmt: skip
_OTHER_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:", re.IGNORECASE)

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

_UNITS = {
    "km2": "km²", "m2": "m²", "sqmi": "sq mi", "sqft": "sq ft", "C": "°C", "F": "°F", "m3": "m³",
    "km3": "km³", "ft2": "sq ft", "cuft": "cu ft", "kg/m3": "kg/m³", "mi2": "sq mi", "-": "–",
    "m/s2": "m/s²", "in2": "sq in", "x": "×", "acre": "acres",
}  # fmt: skip
"""How `convert` writes its unit codes, if not unchanged."""
_JOINING = frozenset({"to", "and", "-", "–", "x", "by", "or", "+/-", "×", "to(-)"})
_POWER = re.compile(r"[+−-]?\d+")
_RAISED = str.maketrans("+−-0123456789", "⁺⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NUMBER = re.compile(r"[−-]?[\d.,/+]+(?:e[+-]?\d+)?$")

_CONSTANTS = {
    "·": "·", "•": "•", "ndash": "–", "en dash": "–", "spaced ndash": " – ", "snd": " – ",
    "spnd": " – ", "mdash": "—", "em dash": "—", "'": "'", "'s": "'s", '"': '"', "nbsp": " ",
    "mdashb": "—", "' \"": "'\"", "\" '": "\"'",
    "spaces": " ", "space": " ", "pipe": "|", "!": "|", "=": "=", "shy": "", "zwj": "\u200d",
    "dot": "·", "bullet": "•", "times": "×", "plus-minus": "±", "thinsp": " ", "hair space": " ",
}  # fmt: skip
_FIRST = frozenset(
    {
        "nowrap", "nobr", "small", "smaller", "big", "larger", "sc", "smallcaps", "nobold", "em",
        "strong", "vanchor", "visible anchor", "abbr", "tooltip", "keypress", "key", "angbr",
        "flag", "flagcountry", "flagu", "dts", "nts", "quote", "blockquote", "cquote", "bquote",
        "quotation", "nihongo", "sic", "not a typo", "proper name", "noitalic", "ill",
        "interlanguage link", "link-interwiki", "ship", "script", "unicode", "polytonic", "tq",
        "xt", "ipa", "mvar", "math", "linktext", "wikt-lang", "oldstyledate", "underline", "italic",
        "ussfooter", "hlist", "plainlist", "longitem", "native name", "asiantitle", "wdl", "bigger",
        "sup", "sub",
    }
)  # fmt: skip
"""Templates that show their first argument."""
_QUOTED = ("text", "quote", "content")
"""Names of the quoted argument, if it is named."""
_LAST = frozenset(
    {
        "lang",
        "transl",
        "transliteration",
        "rtl-lang",
        "color",
        "font color",
        "fontcolor",
        "columns-list",
    }
)


def prose(wikitext: str) -> str:
    """Paragraphs, headings and list items, each on its own line, separated by blank lines.

    Raises ParserError if the parser would take too long, and RecursionError if it nests too deep.
    """
    visible = _visible(wikitext)
    if _tried(visible) > _MOST_TRIED:
        raise ParserError("too much that does not end")  # type: ignore[no-untyped-call]
    parsed = mwparserfromhell.parse(visible, skip_style_tags=True)
    written, skipped = [], 0  # level of the section that is skipped
    for node in parsed.nodes:
        if isinstance(node, nodes.Heading):
            if skipped and node.level > skipped:
                continue
            title = _written(node.title).strip()
            skipped = node.level if _QUOTES.sub("", title).lower() in LAST_SECTIONS else 0
            if not skipped:
                written.append(f"\n\n{'=' * node.level}{title}\n\n")
        elif not skipped:
            written.append(_node(node))
    return close_holes(_paragraphs(_QUOTES.sub("", "".join(written))))


def is_disambiguation(title: str, wikitext: str) -> bool:
    """Whether a page only lists the articles that a title can mean."""
    return title.endswith("(disambiguation)") or bool(_DISAMBIGUATION.search(wikitext))


def _visible(wikitext: str) -> str:
    """The page without what is never prose; each end is looked for once."""
    parts, kept_to, at = [], 0, 0
    endless: set[str] = set()  # what has no further end
    while found := _BEGINNING.search(wikitext, at):
        end, name = found.end(), "!" if found[0] == "<!--" else (found[1] or "").lower()
        if name:
            end = -1 if name in endless else _end_of(name, wikitext, found.end())
            if end < 0:
                endless.add(name)
                empty = _EMPTY.match(wikitext, found.start()) if name == "section" else None
                end = empty.end() if empty else -1
        if end < 0:
            at = found.start() + 1
        else:
            parts.append(wikitext[kept_to : found.start()])
            kept_to = at = end
    return "".join([*parts, wikitext[kept_to:]]) if parts else wikitext


def _end_of(name: str, wikitext: str, start: int) -> int:
    pattern = r"-->" if name == "!" else rf"</{name}\s*>"
    found = re.compile(pattern, re.IGNORECASE).search(wikitext, start)
    return found.end() if found else -1


def _tried(wikitext: str) -> int:
    """About the characters that the parser reads again: up to the end, for all without one."""
    size = len(wikitext)
    begins = sum(map(wikitext.count, ("{{", "[[", "{|", "<")))
    if begins * size < _MOST_TRIED:
        return 0
    stack: list[tuple[str, int]] = []
    tried = 0
    for found in _OPEN_OR_CLOSE.finditer(wikitext):
        mark, closes, end = found[2] or found[0], found[1], found[3]
        if found[2]:
            mark = mark.lower()
        elif mark in _CLOSES:
            mark, closes = _CLOSES[mark], True
        if mark == "<!--" or (found[2] and not end):
            tried += size - found.start()
        elif closes:
            if stack and stack[-1][0] == mark:
                stack.pop()
        elif mark not in _VOID and not found[0].endswith("/>"):
            stack.append((mark, found.start()))
    return tried + sum(size - start for _, start in stack)


def _written(code: Wikicode) -> str:
    return "".join(_node(node) for node in code.nodes)


def _node(node: nodes.Node) -> str:
    if isinstance(node, nodes.Text):
        return str(node.value)
    if isinstance(node, nodes.Wikilink):
        return _link(node)
    if isinstance(node, nodes.Template):
        return _template(node)
    if isinstance(node, nodes.Tag):
        return _tag(node)
    if isinstance(node, nodes.HTMLEntity):
        return str(node.normalize())
    if isinstance(node, nodes.ExternalLink):
        return _written(node.title) if node.title is not None else ""
    if isinstance(node, nodes.Argument):
        return _written(node.default) if node.default is not None else ""
    if isinstance(node, nodes.Heading):
        return f"\n\n{_written(node.title).strip()}\n\n"
    return ""  # comments


def _link(link: nodes.Wikilink) -> str:
    title = str(link.title).strip()
    if not title.startswith(":"):
        if title.lower().startswith(_NOT_TEXT):
            return ""
        if _OTHER_LANGUAGE.match(title) and link.text is None:
            return ""  # the same article in another language
    if link.text is not None:
        return _written(link.text)
    return title.removeprefix(":")


def _tag(tag: nodes.Tag) -> str:
    name = str(tag.tag).strip().lower()
    if name in ("table", "gallery", "ref"):
        return ""
    # The tag of a list item has no contents.
    written = _written(tag.contents) if tag.contents is not None else ""
    if name == "sup" and _POWER.fullmatch(written):
        return written.translate(_RAISED)
    return f"\n\n{written}" if name in ("br", "hr", "li", "dd", "dt") else written


def _template(template: nodes.Template) -> str:
    name = str(template.name).strip().replace("_", " ").lower()
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    shows_first = name in _FIRST or name.startswith("lang-")
    if not (shows_first or name in _LAST or name in TEMPLATES or name == "val"):
        return ""
    named = {str(p.name).strip(): _written(p.value).strip() for p in template.params}
    values = [named[str(n)] for n in range(1, len(named) + 1) if str(n) in named]
    values = values or [named[key] for key in _QUOTED if key in named]
    if not values:
        return ""
    if name == "val":
        return _value(values, named)
    if name in TEMPLATES:
        return TEMPLATES[name](values)
    return values[0] if shows_first else values[-1]


def _converted(values: list[str]) -> str:
    """The given measure, not the converted one: 5 km; 5 to 10 km; 6 ft 2 in."""
    words = [values[0]]
    index = 1
    while index + 1 < len(values) and values[index] in _JOINING:
        words += [values[index].removesuffix("(-)"), values[index + 1]]
        index += 2
    if index < len(values):
        words.append(_UNITS.get(values[index], values[index]))
        index += 1
    if index + 1 < len(values) and _NUMBER.match(values[index]) and index == 2:
        words += [values[index], _UNITS.get(values[index + 1], values[index + 1])]
    return " ".join(words)


_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December")  # fmt: skip


def _as_of(values: list[str]) -> str:
    year, *rest = values
    month = int(rest[0]) if rest and rest[0].isdecimal() and 1 <= int(rest[0]) <= 12 else 0
    if not month:
        return f"As of {year}"
    day = f"{rest[1]} " if rest[1:] and rest[1].isdecimal() else ""
    return f"As of {day}{_MONTHS[month - 1]} {year}"


def _value(values: list[str], named: dict[str, str]) -> str:
    """A number with its error, power of ten and unit: 6.24 ± 0.01 ×10¹⁸ C."""
    power = named.get("e", "")
    words = [" ± ".join(values[:2]) + (f"×10{power.translate(_RAISED)}" if power else "")]
    return " ".join([*words, *filter(None, (named.get(key) for key in ("u", "ul", "up")))])


def _fraction(values: list[str]) -> str:
    if len(values) == 1:
        return f"1/{values[0]}"
    return "/".join(values[-2:]) if len(values) == 2 else f"{values[0]} {values[1]}/{values[2]}"


TEMPLATES: dict[str, Callable[[list[str]], str]] = {
    "convert": _converted,
    "cvt": _converted,
    "as of": _as_of,
    "c.": lambda values: f"c. {'–'.join(values[:2])}",
    "circa": lambda values: f"c. {'–'.join(values[:2])}",
    "fl.": lambda values: f"fl. {'–'.join(values[:2])}",
    "reign": lambda values: f"r. {'–'.join(values[:2])}",
    "frac": _fraction,
    "sfrac": _fraction,
    "chem": "".join,
    "chem2": "".join,
    "unbulleted list": "\n\n".join,
    "ordered list": "\n\n".join,
    "hms": lambda values: f"HMS {values[0]}",
    "uss": lambda values: f"USS {values[0]}",
}
"""Templates that do not simply show one of their arguments."""


_BLANK_LINE = re.compile(r"\n\s*\n")
_HEADING = re.compile(r"(=+)(.*)")


def _paragraphs(text: str) -> str:
    """One paragraph per line, since a single newline is a space; drops headings of empty
    sections."""
    kept: list[str] = []
    headings: list[tuple[int, str]] = []
    for line in (" ".join(part.split()) for part in _BLANK_LINE.split(text)):
        if heading := _HEADING.match(line):
            level = len(heading[1])
            headings = [other for other in headings if other[0] < level]
            if heading[2].strip():
                headings.append((level, heading[2].strip()))
        elif any(character.isalnum() for character in line):
            kept += [title for _, title in headings]
            headings = []
            kept.append(line)
    return "\n\n".join(kept)
