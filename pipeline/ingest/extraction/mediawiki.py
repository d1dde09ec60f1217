"""Articles of a MediaWiki dump (pages-articles.xml, .bz2 or any other compression), page by page.

expat parses the XML, far faster than wikitext is parsed; memory holds one page, which is dropped if
it is longer than any wiki allows. Reading can start anywhere: what precedes the first page of the
file is parsed again, since it names the wiki's language and namespaces, then the first page from
there on. (In XML, `<page>` is a tag and never text. In comments and CDATA sections it could be
both, but no dump has them, and `units` notices a page that was none.)
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlsplit
from xml.parsers import expat

from mwparserfromhell.parser import ParserError

from pipeline.base.errors import DataError
from pipeline.ingest.documents.records import Extract, Source
from pipeline.ingest.documents.time_limit import TOO_SLOW, TimeLimitError, limited
from pipeline.ingest.extraction.places import START, Block, Place, blocks_from
from pipeline.ingest.wikitext.names import REDIRECTS
from pipeline.ingest.wikitext.prose import is_disambiguation, prose
from pipeline.ingest.wikitext.wiki import Wiki

_PART_BYTES = 1 << 16
_MOST_CHARACTERS = 1 << 22  # characters of a page; MediaWiki allows 2 MB
_LANGUAGE = "http://www.w3.org/XML/1998/namespace}lang"
_PAGE = re.compile(rb"<page[\s>]")
_TAG_BYTES = len(b"<page>")
_REDIRECT = re.compile(r"\s*#\s*([^\s:\[]{1,40})")


@dataclass(slots=True)
class RawPage:
    """A page as it is in the dump."""

    place: Place
    wiki: Wiki
    position: int
    """Decompressed bytes read up to its end."""
    fields: dict[str, str] = field(default_factory=dict)
    """Texts of the elements in it."""
    revision: dict[str, str] = field(default_factory=dict)
    """Texts of the elements in its last revision."""


def find_pages(source: Source, start: Place) -> Iterator[tuple[Place, RawPage]]:
    """Yield the pages that start from `start` on, and their places."""
    dump = _Dump()
    blocks = blocks_from(source.path, source.compression, start)
    try:
        if start != START:
            blocks = _from_page(source, blocks)
        is_fed = False
        for block in blocks:
            is_fed = True
            for page in dump.feed(block):
                yield page.place, page
        if is_fed:
            dump.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(
            f"{source.path} is truncated or damaged ({error}); fetch it again"
        ) from error


def _from_page(source: Source, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the start of the file up to its first page, then the blocks from their first page."""
    tail = Block(0, 0, b"")
    for block in blocks:
        if first := _PAGE.search(tail.content + block.content):
            yield Block(0, 0, _before_pages(source))
            if first.start() < len(tail.content):  # the tag lies across two blocks
                yield tail.after(first.start())
                yield block
            else:
                yield block.after(first.start() - len(tail.content))
            yield from blocks
        tail = block.after(max(0, len(block.content) - _TAG_BYTES + 1))


def _before_pages(source: Source) -> bytes:
    head = b""
    for block in blocks_from(source.path, source.compression, START):
        head += block.content
        if first := _PAGE.search(head):
            return head[: first.start()]
    return head


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
        self.fed: list[tuple[int, Place]] = []  # bytes of the parser's input, from which place on
        self.size = 0
        self.parser = expat.ParserCreate(namespace_separator="}")
        self.parser.buffer_text = True  # or each line of a text would be a call
        self.parser.buffer_size = _PART_BYTES
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.SkippedEntityHandler = self._skipped

    def feed(self, block: Block) -> Iterator[RawPage]:
        """Parse a block; yields the pages that end in it."""
        for at in range(0, len(block.content), _PART_BYTES):
            part = block.content[at : at + _PART_BYTES]
            # The parser's index only grows, so earlier entries are never asked for again.
            while len(self.fed) > 1 and self.fed[1][0] <= self.parser.CurrentByteIndex:
                del self.fed[0]
            self.fed.append((self.size, (block.position, block.offset + at)))
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
                self.page = RawPage(self._place(), self.wiki, 0)
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

    def _place(self) -> Place:
        index = self.parser.CurrentByteIndex
        start, (position, offset) = self.fed[bisect_right(self.fed, index, key=lambda f: f[0]) - 1]
        return position, offset + index - start

    def _skipped(self, name: str, is_parameter: bool) -> None:
        # expat would leave it out of the text without a word.
        if not is_parameter:
            raise expat.ExpatError(f"undefined entity &{name};")


def extract_page(source: Source, page: RawPage) -> Iterator[Extract]:
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
    yield Extract(
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
