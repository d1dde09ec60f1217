"""Articles of a MediaWiki dump (pages-articles.xml, .bz2 or any other compression), page by page.

expat parses the XML, a hundred times as fast as wikitext is parsed, so that one process reads a
dump and several extract its pages; memory holds one page, which is dropped if it is longer than any
wiki allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlsplit
from xml.parsers import expat

from mwparserfromhell.parser import ParserError

from pipeline.base.errors import DataError
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.records import Extract, Source
from pipeline.ingest.documents.time_limit import TOO_SLOW, TimeLimitError, limited
from pipeline.ingest.wikitext.names import REDIRECTS
from pipeline.ingest.wikitext.prose import is_disambiguation, prose
from pipeline.ingest.wikitext.wiki import Wiki

_PART_BYTES = 1 << 16
_MOST_CHARACTERS = 1 << 22  # characters of a page; MediaWiki allows 2 MB
_LANGUAGE = "http://www.w3.org/XML/1998/namespace}lang"
_REDIRECT = re.compile(r"\s*#\s*([^\s:\[]{1,40})")


@dataclass(slots=True)
class RawPage:
    """A page as it is in the dump."""

    wiki: Wiki
    position: int
    """Decompressed bytes read up to its end."""
    fields: dict[str, str] = field(default_factory=dict)
    """Texts of the elements in it."""
    revision: dict[str, str] = field(default_factory=dict)
    """Texts of the elements in its last revision."""


def read_dump(source: Source) -> Iterator[Extract]:
    """Yield the text of each page of a dump, or the reason why it has none."""
    blocks = read_blocks(source.path, source.compression, 0, source.size)
    return map(extract_page, find_pages(source.path, blocks))


def find_pages(path: str, blocks: Iterable[bytes]) -> Iterator[RawPage]:
    """Yield the pages of a dump; path: its, for messages."""
    dump = _Dump()
    is_fed = False
    try:
        for block in blocks:
            is_fed = True
            yield from dump.feed(block)
        if is_fed:
            dump.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(f"{path} is truncated or damaged ({error}); fetch it again") from error


class _Dump:
    """Handlers of the parser; `pages` holds those that are complete."""

    def __init__(self) -> None:
        self.pages: list[RawPage] = []
        self.page: RawPage | None = None
        self.page_depth = 0
        self.path: list[str] = []
        self.wiki = Wiki()  # as far as the head of the file was read
        self.namespace = ""  # number of the one that is named here
        self.words: list[str] | None = None  # parts of the text that is kept of an element
        self.held = 0  # characters in these parts
        self.size = 0  # bytes of the parser's input
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True  # or each line of a text would be a call
        self.parser.buffer_size = _PART_BYTES
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.SkippedEntityHandler = self._skipped

    def feed(self, block: bytes) -> Iterator[RawPage]:
        """Parse a block; yields the pages that end in it."""
        for at in range(0, len(block), _PART_BYTES):
            part = block[at : at + _PART_BYTES]
            self.size += len(part)
            self.parser.Parse(part, False)
            yield from self.pages
            self.pages.clear()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        # Without its namespace, which has the version of the export format in it.
        name, depth = tag.rpartition("}")[2], len(self.path)
        if not depth:
            self.wiki = replace(self.wiki, language=attributes.get(_LANGUAGE, ""))
        if self.words is not None:
            self._keep()  # an element's text ends where another begins in it
        self.path.append(name)
        if self.page is None:
            if name == "page":
                self.page = RawPage(self.wiki, 0)
                self.page_depth = depth
            elif name in ("base", "namespace"):
                self.namespace = attributes.get("key", "")
                self.words = []
        elif depth == self.page_depth + 1:
            if name == "revision":
                self.page.revision.clear()  # the last one counts
            self.words = []
        elif depth == self.page_depth + 2 and self.path[-2] == "revision":
            self.words = []

    def _end(self, tag: str) -> None:
        if self.words is not None:
            self._keep()
        self.path.pop()
        if self.page is not None and len(self.path) == self.page_depth:
            self.page.position = self.size
            self.pages.append(self.page)
            self.page = None

    def _text(self, characters: str) -> None:
        # Slightly more is kept than allowed, so that `_why_not` sees that it is too long.
        if self.words is not None and self.held <= _MOST_CHARACTERS:
            self.words.append(characters)
            self.held += len(characters)

    def _keep(self) -> None:
        text, self.words, self.held = "".join(self.words or ()), None, 0
        if self.page is None:
            self._keep_of_wiki(text)
        elif len(self.path) == self.page_depth + 2:
            self.page.fields[self.path[-1]] = text
        else:
            self.page.revision[self.path[-1]] = text

    def _keep_of_wiki(self, text: str) -> None:
        if self.path[-1] == "base":
            self.wiki = replace(self.wiki, base=text.rpartition("/")[0])
        elif re.fullmatch(r"-?\d{1,9}", self.namespace):
            names = (*self.wiki.own_names, (int(self.namespace), text))
            self.wiki = replace(self.wiki, own_names=names)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        # expat would leave it out of the text without a word.
        if not is_parameter:
            raise expat.ExpatError(f"undefined entity &{name};")


def extract_page(page: RawPage) -> Extract:
    """The text of a page, or the reason why it has none."""
    title, wikitext = page.fields.get("title", ""), page.revision.get("text", "")
    text = ""
    try:
        with limited():
            dropped = _why_not(page, title, wikitext)
            if not dropped:
                text = prose(wikitext, page.wiki)
                dropped = "" if text else "no prose"
    except ParserError:
        dropped = "wikitext that cannot be parsed"
    except RecursionError:
        dropped = "wikitext that nests too deep"
    except TimeLimitError:
        text, dropped = "", TOO_SLOW
    base = page.wiki.base
    return Extract(
        id=page.fields.get("id", ""),
        url=f"{base}/{quote(title.replace(' ', '_'))}" if base else "",
        title=title,
        text=f"{title}\n\n{text}" if text else "",
        dropped=dropped,
        revised=page.revision.get("timestamp", ""),
        language=page.wiki.language,
        domain=_domain(base),
        position=page.position,
    )


def _domain(base: str) -> str:
    try:
        return urlsplit(base).netloc
    except ValueError:  # a dump may hold any text there
        return ""


def _why_not(page: RawPage, title: str, wikitext: str) -> str:
    if page.fields.get("ns", "") not in ("0", ""):
        return "not an article"
    first = _REDIRECT.match(wikitext)  # dumps of before 2009 have no element for it
    if "redirect" in page.fields or (first and first[1].lower() in REDIRECTS):
        return "redirect"
    if page.revision.get("model", "") not in ("wikitext", ""):
        return "not wikitext"
    if len(wikitext) > _MOST_CHARACTERS:
        return f"over {_MOST_CHARACTERS >> 20} million characters"
    return "disambiguation" if is_disambiguation(title, wikitext) else ""
