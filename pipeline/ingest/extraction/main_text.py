"""The main text of a web page, without navigation, forms and stubs.

resiliparse (Rust) parses the page and writes it as blocks, one per line, without elements whose
name, role or class marks them as something else (`NOT_TEXT`). Each remaining block is classified:

* prose: at least a sentence of words that are not links; always kept
* link: at least four fifths of it is a link; dropped
* in doubt: short lines, list items, cells; kept between prose, dropped among at least as many
  links, before the first heading or prose, and after the last prose, where by-lines, tags and
  addresses are
* heading: kept if something below it is kept

Short lines that surround texts everywhere (`FURNITURE`) are dropped. A page that is not mostly
prose is not a document, and a short page that asks for a subscription, cookies or JavaScript is a
stub. These are rules, not statistics: the same page always gives the same text.
"""

from __future__ import annotations

import html
import itertools
import re
from collections import Counter
from dataclasses import dataclass

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

# Themes put such names on the element with the whole text, too.
_WHOLE_PAGE = ":not(main):not(article):not(.hentry):not(.post)"
_WORDS = (
    "nav", "navbar", "menu", "sidebar", "breadcrumb", "breadcrumbs", "pagination", "pager", "ad",
    "ads", "advert", "advertisement", "promo", "modal", "popup", "login", "signup", "share",
    "sharing", "social", "related", "tags", "comments", "comment", "widget", "toolbar", "skip-link",
    "byline", "outbrain", "taboola",
)  # fmt: skip
_PARTS = (
    "sidebar", "breadcrumb", "cookie", "consent", "newsletter", "subscribe", "related-", "-related",
    "share-", "-share", "social-", "-social", "footer", "comment", "paywall", "most-read",
    "most-popular", "recommend", "trending", "read-more", "navigation", "pagination",
)  # fmt: skip
NOT_TEXT = (
    "nav", "footer", "aside", "form", "button", "select", "dialog", "figcaption", "[hidden]",
    "[role=navigation]", "[role=contentinfo]", "[role=search]", "[role=complementary]",
    "[role=dialog]", "[role=banner]", "[aria-hidden=true]",
    *(f"[class~={word}]{_WHOLE_PAGE}" for word in _WORDS),
    *(f"[id={word}]{_WHOLE_PAGE}" for word in _WORDS),
    *(f"[class*={part}]{_WHOLE_PAGE}" for part in _PARTS),
    *(f"[id*={part}]{_WHOLE_PAGE}" for part in _PARTS),
)  # fmt: skip
"""Elements that are not main text (CSS selectors), most frequent first."""

_POSTS = "(?:posts?|articles?|stor(?:y|ies)|pages?|news|topics|videos?|reading|links|entr(?:y|ies))"
FURNITURE = re.compile(
    rf"(?:share|tweet|print|e-?mail|copy link|save|by|(?:read|see|more|related|recommended|latest|"
    rf"popular|previous|next|older|newer|trending|top)(?: {_POSTS})?|read (?:more|next|also)|"
    r"share (?:this|on|via)\b.*|see also|advertisement|ad|sponsored(?: content)?|related|"
    r"you may also like|most (?:read|popular|viewed)|trending now|follow us\b.*|subscribe\b.*|"
    r"sign (?:up|in)\b.*|log ?in\b.*|leave a (?:comment|reply)|(?:\d+ )?comments?|no comments|"
    r"loading(?: comments)?|skip to \w+|back to top|menu|search|home|click here\b.*|learn more|"
    r"view (?:all|more)\b.*|show (?:all|more)\b.*|continue reading\b.*|posted (?:on|by|in)\b.*|"
    r"posted \d.*|published (?:on|by)\b.*|filed under\b.*|tags?(?::.*)?|updated:? .*\d.*|"
    r"last (?:updated|modified)\b.*|(?:©|\(c\)|copyright).*|.*\ball rights reserved\b.*|"
    r"facebook|twitter|instagram|linkedin|whatsapp|reddit|pinterest|"
    r"weiterlesen|mehr zum thema|anzeige|teilen|werbung|lire aussi\b.*|publicité|partager|"
    r"leer más|compartir|publicidad|lees (?:ook|verder)\b.*)[ :.…»→>]*",
    re.IGNORECASE,
)
"""Whole lines of at most 80 characters that surround texts."""

STUB = re.compile(
    r"enable (?:javascript|cookies)|javascript (?:is|to be) (?:disabled|enabled)|"
    r"requires javascript|(?:uses?|using|accept(?:ing)?|use of) (?:\w+ ){0,3}cookies|"
    r"cookie (?:policy|settings|consent)|(?:subscribe|sign in|log in|register|sign up) "
    r"(?:\w+ ){0,3}(?:to )?(?:continue|read|access|unlock)\b|(?:to|and) continue reading|"
    r"subscribers? only|only for subscribers|already a subscriber|"
    r"this (?:content|article|story) is (?:\w+ )?(?:for|available to|reserved)\b|"
    r"access (?:denied|to this page)|page (?:not found|cannot be found|doesn.t exist)|"
    r"404 (?:error|not found)|verify (?:that )?you are (?:a )?human|not a robot|captcha|"
    r"checking your browser|unusual traffic|verwendet cookies|nutzt cookies|jetzt abonnieren|"
    r"utilise des cookies|réservé aux abonnés|utiliza cookies|contenido exclusivo|"
    r"gebruikt cookies",
    re.IGNORECASE,
)
"""Phrases that mark a page as a stub, if its text has at most STUB_LENGTH characters."""

STUB_LENGTH = 1200
LINK_SHARE = 0.8  # share of a block's characters that makes it a link
PROSE_LENGTH = 60  # characters outside links, as `_size` counts them
SENTENCE_LENGTH = 40  # the same, if the block ends like a sentence
LINE_LENGTH = 30  # average characters of a line of plain text that is wrapped
LONG = 160  # the same, whatever its punctuation
LONG_WITHOUT_STOPS = 80  # the same in a language without full stops
PROSE_SHARE = 0.3  # least share of a document's characters, unless it has ENOUGH_PROSE
ENOUGH_PROSE = 1000

MOST_ATTRIBUTES = 4000
_TAG_STEP = 1 << 14  # so long a stretch without ">" may be in a tag
LEAST_TEXT = 100  # characters of prose in a document
REFRAIN = 3  # repeats of a block that is not prose, within a page

_WORD = re.compile(r"\w")
_BLANK_LINES = re.compile(r"\n[ \t\r\f\v]*\n\s*")
_TAG = re.compile(r"<[^>]*>")
_TAG_NAME = re.compile(r"<[a-zA-Z][^\s/>]*")
_ATTRIBUTE = re.compile(r"""[^\s"'>/=]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"']*))?""")
_LINKS = re.compile(r"<a\b[^>]*>(.*?)(?:</a>|$)")
_HEADING = re.compile(r"<h([1-6])>")
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff66-\uff9f\U00020000-\U0003fffd]")
_STOPS = "।॥؟۔։።፧។៕။།༎᠃"
"""Full stops and question marks of other scripts: Indic, Arabic, Armenian, Ethiopic, Khmer,
Burmese, Tibetan and Mongolian."""
_ENDS = (".", "!", "?", "…", ".”", '."', ".)", "!”", "?”", "。", "！", "？", "｡", *_STOPS)
_SENTENCE = re.compile(rf"[.!?…:;,،؛፣፤{_STOPS}][\"'”’»)\]]*(?:\s|$)|[。！？，、｡､၊{_STOPS}]")
_WITHOUT_STOPS = re.compile(r"[\u0e00-\u0eff]")  # Thai and Lao


@dataclass(frozen=True, slots=True)
class Page:
    """A page's title, language and main text."""

    title: str
    language: str
    """The language that the page declares, such as en; empty if none."""
    text: str
    """Blocks separated by blank lines; empty if dropped."""
    dropped: str
    """Why it is not a document."""
    noted: str = ""
    """As in `Extract`."""


@dataclass(frozen=True, slots=True)
class _TextBlock:
    text: str
    kind: str
    """prose, link, doubt, heading, or wall: a line that only stubs have."""
    level: int
    """Level of a heading, 1 to 6."""


def read_page(markup: str) -> Page:
    """The main text of an HTML page."""
    if _has_giant_tag(markup):
        return Page("", "", "", "a tag with thousands of attributes")
    tree = HTMLTree.parse(markup)
    root = tree.document.query_selector("html") if tree.document else None
    language = (root.getattr("lang") or "" if root else "").lower().partition("-")[0]
    title = _spaced(tree.title or "")
    lines = extract_plain_text(
        tree, preserve_formatting="minimal_html", links=True, list_bullets=False, alt_texts=False,
        skip_elements=NOT_TEXT,
    )  # fmt: skip
    blocks = [block for line in lines.split("\n") if (block := _block(line))]
    return _as_page(blocks, title, language)


def _has_giant_tag(markup: str) -> bool:
    """True if a tag has over MOST_ATTRIBUTES, for which the parser takes quadratic time."""
    for at in range(0, len(markup) - _TAG_STEP + 1, _TAG_STEP):
        if markup.find(">", at, at + _TAG_STEP) < 0:  # in no ordinary page
            tag = _TAG_NAME.match(markup, markup.rfind("<", 0, at))
            if tag and markup.find(">", tag.end(), at) < 0:
                end = markup.find(">", at + _TAG_STEP)
                attributes = _ATTRIBUTE.finditer(markup, tag.end(), end if end > 0 else len(markup))
                if any(True for _ in itertools.islice(attributes, MOST_ATTRIBUTES, None)):
                    return True
    return False


def read_plain(text: str) -> Page:
    """The main text of a page in plain text, one block per line (WET)."""
    blocks = [block for line in text.split("\n") if (block := _judged(_spaced(line), 0))]
    return _as_page(blocks, "", "")


def read_text(text: str) -> Page:
    """A page that is a plain text: the text as it was written, if it is mostly prose.

    A paragraph of short lines is a list, such as robots.txt.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip("\ufeff \t\n")
    blocks = []
    for paragraph in _BLANK_LINES.split(text):
        spaced = _spaced(paragraph)
        if block := _judged(spaced, 0):
            is_list = _size(spaced) < LINE_LENGTH * (paragraph.count("\n") + 1)
            blocks.append(_TextBlock(spaced, "doubt" if is_list else block.kind, 0))
    is_walled = any(block.kind == "wall" for block in blocks)
    dropped = _why_not(blocks, text, is_walled)
    return Page("", "", "" if dropped else text, dropped)


def is_enough(text: str) -> bool:
    """True if the text is long enough for a document."""
    return _size(text) >= LEAST_TEXT


def _as_page(blocks: list[_TextBlock], title: str, language: str) -> Page:
    kept = _main([block for block in blocks if block.kind != "wall"])
    text = "\n\n".join(block.text for block in kept)
    is_walled = any(block.kind == "wall" for block in blocks)
    dropped = _why_not(kept, text, is_walled)
    return Page(title, language, "" if dropped else text, dropped)


def _block(line: str) -> _TextBlock | None:
    """The block of a line of resiliparse's HTML; None if it has no text."""
    text = _spaced(html.unescape(_TAG.sub("", line)))  # in this order: &lt;b&gt; is text
    linked = sum(len(_TAG.sub("", link)) for link in _LINKS.findall(line)) if "<a" in line else 0
    heading = _HEADING.search(line)
    return _judged(text, linked, int(heading[1]) if heading else 0)


def _judged(text: str, linked: int, level: int = 0) -> _TextBlock | None:
    if not _WORD.search(text):
        return None
    if len(text) <= 80 and FURNITURE.fullmatch(text):  # also headings: "Related articles"
        return _TextBlock(text, "wall", 0) if STUB.search(text) else None
    if level:
        return _TextBlock(text, "heading", level)
    if linked >= LINK_SHARE * len(text):
        return _TextBlock(text, "link", 0)
    size = _size(text) - linked
    is_prose = linked <= len(text) / 2 and (
        (size >= PROSE_LENGTH and _SENTENCE.search(text))
        or (size >= SENTENCE_LENGTH and text.endswith(_ENDS))
        or size >= LONG
        or (size >= LONG_WITHOUT_STOPS and len(_WITHOUT_STOPS.findall(text)) > len(text) / 2)
    )
    return _TextBlock(text, "prose" if is_prose else "doubt", 0)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _size(text: str) -> int:
    """Characters; a Chinese, Japanese or Korean one counts as three."""
    return len(text) + 2 * len(_DENSE.findall(text))


def _main(blocks: list[_TextBlock]) -> list[_TextBlock]:
    """The blocks that are main text."""
    blocks = _from_headline(_without_lists_of_links(_without_refrains(blocks)))
    prose = [number for number, block in enumerate(blocks) if block.kind == "prose"]
    if not prose:
        return []
    headings = [number for number in range(prose[0]) if blocks[number].kind == "heading"]
    kept: list[_TextBlock] = []
    # Backwards, so that the blocks kept below a heading are known.
    for block in reversed(blocks[min([prose[0], *headings]) : prose[-1] + 1]):
        if block.kind == "heading" and (not kept or 0 < kept[-1].level <= block.level):
            continue
        kept.append(block)
    return kept[::-1]


def _without_refrains(blocks: list[_TextBlock]) -> list[_TextBlock]:
    """Drop blocks other than prose that a page repeats: photographers' names, buttons."""
    times = Counter(block.text for block in blocks)
    return [block for block in blocks if block.kind == "prose" or times[block.text] < REFRAIN]


def _without_lists_of_links(blocks: list[_TextBlock]) -> list[_TextBlock]:
    """Drop links, short blocks among at least as many links, and the heading above."""
    kept: list[_TextBlock] = []
    for kind, run in itertools.groupby(blocks, lambda block: block.kind in ("link", "doubt")):
        found = list(run)
        others = [block for block in found if block.kind != "link"]
        if kind and len(others) <= len(found) / 2:
            if kept and kept[-1].kind == "heading" and len(found) > 1:
                kept.pop()
        else:
            kept += others
    return kept


def _from_headline(blocks: list[_TextBlock]) -> list[_TextBlock]:
    """Start at the only first-level heading, if nearly all prose is below it."""
    headlines = [number for number, block in enumerate(blocks) if block.level == 1]
    if len(headlines) != 1:
        return blocks
    below = blocks[headlines[0] :]
    return below if _prose(below) >= 0.75 * _prose(blocks) > 0 else blocks


def _prose(blocks: list[_TextBlock]) -> int:
    return sum(len(block.text) for block in blocks if block.kind == "prose")


def _why_not(kept: list[_TextBlock], text: str, is_walled: bool) -> str:
    if not kept:
        return "no main text"
    if len(text) <= STUB_LENGTH and (is_walled or STUB.search(text)):
        return "cookie or paywall stub"
    if not is_enough("".join(block.text for block in kept if block.kind == "prose")):
        return "too short"
    is_text = _prose(kept) >= min(PROSE_SHARE * len(text), ENOUGH_PROSE)
    return "" if is_text else "mostly lists"
