"""The body text of books in TEI, the XML of text collections (ELTeC, the Oxford Text Archive).

Each `<TEI>` is a document: the paragraphs, headings and lines of its `<text><body>`, each on its
own line, separated by blank lines. Header, front and back matter, notes, figures and running heads
are cut. Where an edition gives two readings, the second is cut (`<sic>` for `<corr>`, `<orig>` for
`<reg>`, `<abbr>` for `<expan>`). At a line or page break inside a word (`break="no"`) the hyphen is
cut. Cuts are counted in bytes without white space.

expat parses the XML as a stream; memory holds one book's text. A book of more than PART_BYTES gives
several documents.
"""

from __future__ import annotations

import copy
import re
import time
from collections import Counter
from collections.abc import Iterator
from html.entities import html5
from xml.parsers import expat

from pipeline.base.errors import DataError
from pipeline.data.documents.books import HYPHENS
from pipeline.data.documents.records import (
    PART_BYTES,
    BadRecord,
    Dropped,
    Piece,
    Record,
    Source,
)
from pipeline.data.documents.time_limit import TOO_SLOW, exceeds

TEI_VERSION = 2
"""Part of a file's identity: increase it when the same book gives different text."""

_ROOTS = frozenset({"TEI", "TEI.2"})
_CUT = {
    "teiHeader": "TEI header", "front": "front and back matter", "back": "front and back matter",
    "note": "notes", "figure": "figures", "fw": "running heads", "del": "deleted in the source",
    "sic": "the other reading", "orig": "the other reading", "abbr": "the other reading",
}  # fmt: skip
"""Elements that are cut, and the reason under which their bytes are counted."""
_READINGS = frozenset({"sic", "orig", "abbr"})  # cut only inside <choice>
_BLOCKS = frozenset(
    {
        "ab", "argument", "byline", "castItem", "cell", "closer", "dateline", "div", "docAuthor",
        "epigraph", "head", "item", "l", "label", "lg", "list", "milestone", "opener", "p",
        "postscript", "row", "salute", "signed", "sp", "speaker", "stage", "table",
        "trailer",
    } | {f"div{level}" for level in range(8)}
)  # fmt: skip
"""Elements that start a new line."""
_BREAKS = frozenset({"lb", "pb", "cb", "gb"})
_HYPHENS = "-\u2010\u00ac\u00ad"
_SPACE = re.compile(r"\s+")
_PART_BYTES = 1 << 16  # parsed between two looks at the time


class _Book:
    """Parser state for one `<TEI>`."""

    def __init__(self, position: int, depth: int) -> None:
        self.position = position
        self.depth = depth
        self.seconds = 0.0  # of CPU that it took
        self.is_slow = False
        self.paragraphs: list[str] = []
        self.words: list[str] = []
        self.cut: Counter[str] = Counter()
        self.in_body = False
        self.has_body = False
        self.size = 0

    def end_paragraph(self) -> None:
        """Start a new line."""
        if line := _SPACE.sub(" ", "".join(self.words)).strip():
            self.paragraphs.append(line)
        self.words.clear()

    def part(self, position: int) -> _Book:
        """The paragraphs so far, as a book; this one continues with the open one.

        A paragraph that is giant itself is cut after a word. position: where to continue.
        """
        line = "".join(self.words)
        if not self.paragraphs:
            end = max(line.rfind(" "), line.rfind("\n")) + 1 or len(line)
            self.words, line = [line[:end]], line[end:]
            self.end_paragraph()
        before = copy.copy(self)
        self.position, self.size = position, len(line)
        self.paragraphs, self.words, self.cut = [], [line], Counter()
        return before

    def end_inside_a_word(self) -> None:
        """Continue the last word: remove trailing white space and a hyphen."""
        while self.words and not self.words[-1].strip():
            self.words.pop()
        if self.words:
            half = self.words[-1].rstrip()
            if half[-1] in _HYPHENS and half[-2:-1].isalpha():
                self.cut[HYPHENS] += len(half[-1].encode())
                half = half[:-1]
            self.words[-1] = half


class _Reader:
    """Handlers of the parser; `books` holds the completed ones."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.books: list[_Book] = []
        self.book: _Book | None = None
        self.path: list[str] = []
        self.reason = ""  # why text at the current position is cut; empty if it is kept
        self.cut_from = 0  # depth of the outermost element that is cut
        self.parser = expat.ParserCreate()
        self.parser.UseForeignDTD(True)  # so that named entities, &mdash;, reach `skipped`
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text
        self.parser.SkippedEntityHandler = self.skipped

    def parse(self, part: bytes) -> None:
        """Parse what follows; a book that took too long is skipped up to its end."""
        began_at = time.thread_time()
        self.parser.Parse(part)
        if (book := self.book) is None or book.is_slow:
            return
        book.seconds += time.thread_time() - began_at
        if exceeds(book.seconds):
            book.is_slow = True
            book.paragraphs.clear()
            book.words.clear()
            self.reason, self.cut_from = TOO_SLOW, book.depth
        elif book.size > PART_BYTES:
            self.books.append(book.part(self.parser.CurrentByteIndex))

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        parent = self.path[-1] if self.path else ""
        self.path.append(name)
        if name in _ROOTS:
            self.book = _Book(self.parser.CurrentByteIndex, len(self.path))
        book = self.book
        if book is None or self.reason:
            return
        if name in _CUT and not (name in _READINGS and parent != "choice"):
            self.reason, self.cut_from = _CUT[name], len(self.path)
        elif name == "body":
            book.in_body = book.has_body = True
        elif name in _BLOCKS:
            book.end_paragraph()
        elif name in _BREAKS and attributes.get("break") == "no":
            book.end_inside_a_word()
        elif name == "lb":
            book.words.append(" ")

    def end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        book = self.book
        if book is not None and not self.reason:
            if name == "body":
                book.end_paragraph()
                book.in_body = False
            elif name in _BLOCKS:
                book.end_paragraph()
        if self.reason and len(self.path) == self.cut_from:
            self.reason = ""
        self.path.pop()
        if book is not None and name in _ROOTS:
            self.books.append(book)
            self.book = None

    def text(self, characters: str) -> None:
        book = self.book
        if book is None:
            return
        if self.reason or not book.in_body:
            size = len("".join(characters.split()).encode())
            book.cut[self.reason or "outside of the body"] += size
            return
        book.size += len(characters)
        book.words.append(characters)

    def skipped(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self.text(html5.get(f"{name};", f"&{name};"))


def read_tei(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield every book of a file. Raises DataError if its XML is truncated or invalid."""
    source = piece.source
    reader = _Reader(source)
    try:
        for block in piece.blocks():
            for at in range(0, len(block), _PART_BYTES):
                reader.parse(block[at : at + _PART_BYTES])
                yield from _finished(reader)
        reader.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(
            f"{source.path} is truncated or damaged ({error}); fetch it again"
        ) from error


def _finished(reader: _Reader) -> Iterator[Record | Dropped]:
    for book in reader.books:
        name = f"{reader.source.name}@{book.position}"
        cut = tuple(sorted((+book.cut).items()))
        if book.is_slow:
            yield Dropped(name, TOO_SLOW)
        elif book.has_body:
            yield Record(name, reader.source.name, "\n\n".join(book.paragraphs), cut)
        else:
            yield Dropped(name, "TEI without a body")
    reader.books.clear()
