"""Wikitext without what is never prose, before it is parsed.

mwparserfromhell takes most of the time (1 MB/s), so comments, references and formulas, half of a
page's text, are cut first. Whatever begins first counts, as in MediaWiki: `<ref>` in a `<nowiki>`
is text, and a comment hides all in it.
"""

from __future__ import annotations

import re

from pipeline.ingest.wikitext.holes import HOLE
from pipeline.ingest.wikitext.names import SWITCHES

MOST_TRIED = 1e8
"""Characters that the parser reads again because something does not end: half a minute."""
VERBATIM = frozenset({"nowiki", "pre", "syntaxhighlight", "source"})
"""Elements whose content is text and not markup."""

# A comment or one of these elements is cut up to its end, if it has one; an empty element by
# itself. Elements of text are skipped: what looks like markup in them is none.
_BEGINNING = re.compile(
    r"<!--"
    r"|<ref\b[^<>]*/\s*>"
    r"|<(ref|math|gallery|timeline|score|imagemap|templatedata|chem|hiero"
    rf"|graph|mapframe|maplink|inputbox|section|{'|'.join(sorted(VERBATIM))})\b[^<>]*(?<!/)>"
    r"|<(?:references|templatestyles|section|nowiki|wbr)\b[^<>]*/\s*>"
    r"|__(?=[^\W_])(\w{2,40}?)__",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"<section\b[^<>]*/\s*>", re.IGNORECASE)
NOTHING = "\x05"
"""Mark of a removed comment or switch: nothing at the edges of a line, a hole elsewhere. Neither it
nor `HOLE` may be in the page."""
_EDGES = re.compile(rf"^{NOTHING}+|(?<![ \t{NOTHING}])[ \t]*{NOTHING}[ \t{NOTHING}]*$", re.M)
# A mark next to a heading would hide it.
_BESIDE_HEADING = re.compile(rf"^[ \t{HOLE}]+(?==)|(?<==)[ \t{HOLE}]+$", re.MULTILINE)
# What the parser looks for the end of. A tag without end in it is tried like one with an end.
_OPEN_OR_CLOSE = re.compile(
    r"<!--|\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\})|<(/?)([a-z]\w*)[^<>]*(/?>)?", re.I
)
_CLOSES = {"}}": "{{", "]]": "[[", "|}": "{|"}
_VOID = frozenset({"br", "hr", "wbr", "li", "dd", "dt", "td", "th", "tr", "p"})


def visible(wikitext: str) -> str:
    """The page with a mark in place of what is never prose; each end is looked for once."""
    parts, kept_to, at = [], 0, 0
    endless: set[str] = set()  # elements without a further end
    while found := _BEGINNING.search(wikitext, at):
        end, name = found.end(), "!" if found[0] == "<!--" else (found[1] or "").lower()
        if name:
            end = -1 if name in endless else _end_of(name, wikitext, found.end())
            if end < 0:
                endless.add(name)
                empty = _EMPTY.match(wikitext, found.start()) if name == "section" else None
                end = empty.end() if empty else -1
        elif found[2] and found[2].lower() not in SWITCHES:
            end = -1
        if end < 0:
            at = found.start() + 1
        elif name in VERBATIM:  # kept; what looks like markup in it is skipped
            at = end
        else:
            is_element = found[0][0] == "<" and name != "!"
            parts += [wikitext[kept_to : found.start()], HOLE if is_element else NOTHING]
            kept_to = at = end
    if not parts:
        return wikitext
    cut = _EDGES.sub("", "".join([*parts, wikitext[kept_to:]])).replace(NOTHING, HOLE)
    return _BESIDE_HEADING.sub("", cut)


def _end_of(name: str, wikitext: str, start: int) -> int:
    pattern = r"-->" if name == "!" else rf"</{name}\s*>"
    found = re.compile(pattern, re.IGNORECASE).search(wikitext, start)
    return found.end() if found else -1


def tried(wikitext: str) -> int:
    """About the characters that the parser reads again: up to the end, for all without one."""
    size = len(wikitext)
    begins = sum(map(wikitext.count, ("{{", "[[", "{|", "<")))
    # A bound from above: nearly all pages need no count of what is open.
    if begins * size < MOST_TRIED:
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
