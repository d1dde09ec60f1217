"""Books as TEI, the XML of text collections (ELTeC's novels, the Oxford Text Archive): their body.

Each `<TEI>` is a document: the paragraphs, headings and lines of its `<text><body>`, each on a line
of its own with blank lines between. Header, front and back matter, notes, figures and running heads
are cut, and so is the other reading where an edition gives two (`<sic>` beside `<corr>`, `<orig>`
beside `<reg>`, `<abbr>` beside `<expan>`). A line or page that ends inside a word, as the edition
says by `break="no"`, takes its hyphen along. What is cut is counted, in bytes without white space.

The XML is read by expat as it comes; memory holds one book's text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.entities import html5
from xml.parsers import expat

from pipeline.data.documents.books import HYPHENS
from pipeline.data.documents.byte_blocks import read_blocks
from pipeline.data.documents.records import BadRecord, Dropped, Piece, Record, Source, check_length
from pipeline.errors import DataError

TEI_VERSION = 2
"""Part of a file's identity: goes up when the same book comes out differently."""

_ROOTS = frozenset({"TEI", "TEI.2"})
_CUT = {
    "teiHeader": "TEI header", "front": "front and back matter", "back": "front and back matter",
    "note": "notes", "figure": "figures", "fw": "running heads", "del": "deleted in the source",
    "sic": "the other reading", "orig": "the other reading", "abbr": "the other reading",
}  # fmt: skip
"""Elements that are not the text, and what their bytes are counted as."""
_READINGS = frozenset({"sic", "orig", "abbr"})  # cut only where another reading stands beside
_BLOCKS = frozenset(
    {
        "ab", "argument", "byline", "castItem", "cell", "closer", "dateline", "div", "docAuthor",
        "epigraph", "head", "item", "l", "label", "lg", "list", "milestone", "opener", "p",
        "postscript", "row", "salute", "signed", "sp", "speaker", "stage", "table",
        "trailer",
    } | {f"div{level}" for level in range(8)}
)  # fmt: skip
"""Elements that stand on lines of their own."""
_BREAKS = frozenset({"lb", "pb", "cb", "gb"})
_HYPHENS = "-\u2010\u00ac\u00ad"
_SPACE = re.compile(r"\s+")


class _Book:
    """What the parser has seen of one `<TEI>`."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.paragraphs: list[str] = []
        self.words: list[str] = []
        self.cut: Counter[str] = Counter()
        self.in_body = False
        self.has_body = False
        self.size = 0

    def end_paragraph(self) -> None:
        """What follows is on another line."""
        if line := _SPACE.sub(" ", "".join(self.words)).strip():
            self.paragraphs.append(line)
        self.words.clear()

    def end_inside_a_word(self) -> None:
        """What follows belongs to the last word: white space and a hyphen behind it go."""
        while self.words and not self.words[-1].strip():
            self.words.pop()
        if self.words:
            half = self.words[-1].rstrip()
            if half[-1] in _HYPHENS and half[-2:-1].isalpha():
                self.cut[HYPHENS] += len(half[-1].encode())
                half = half[:-1]
            self.words[-1] = half


class _Reader:
    """Handlers of the parser; `books` are those that ended."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.books: list[_Book] = []
        self.book: _Book | None = None
        self.path: list[str] = []
        self.reason = ""  # why text is cut where the parser is
        self.cut_from = 0  # depth of the element that it is cut with
        self.parser = expat.ParserCreate()
        self.parser.UseForeignDTD(True)  # names of characters, &mdash;, reach `skipped`
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text
        self.parser.SkippedEntityHandler = self.skipped

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        parent = self.path[-1] if self.path else ""
        self.path.append(name)
        if name in _ROOTS:
            self.book = _Book(self.parser.CurrentByteIndex)
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
        check_length(self.source, book.size)
        book.words.append(characters)

    def skipped(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            self.text(html5.get(f"{name};", f"&{name};"))


def read_tei(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Every book of a file; DataError if its XML is truncated or broken."""
    source = piece.source
    reader = _Reader(source)
    try:
        for block in read_blocks(source.path, source.compression, 0, piece.stop):
            reader.parser.Parse(block)
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
        if book.has_body:
            yield Record(name, reader.source.name, "\n\n".join(book.paragraphs), cut)
        else:
            yield Dropped(name, "TEI without a body")
    reader.books.clear()
