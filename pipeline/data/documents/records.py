"""Raw files as sources and pieces, and the records that are read from them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import xxhash

from pipeline.base.errors import DataError, escaped
from pipeline.data.compression.codecs import Compression
from pipeline.data.documents.byte_blocks import count_lines
from pipeline.remote.kept_lists import PublishedFile

TEXT_FIELDS = ("text", "body", "content")

ORIGIN_FIELDS = ("url", "path", "id")

Format = Literal[
    "jsonl", "json_array", "wiki_jsonl", "csv", "parquet", "arrow", "text", "book", "doc",
    "mediawiki", "html", "warc", "tar", "zip", "extracted",
]  # fmt: skip
"""`wiki_jsonl`, `doc`: written by wikiextractor; `extracted`: written by `extraction`."""
PlainText = Literal["file", "book", "blank_lines", "lines"]
PLAIN_TEXT_FORMATS: tuple[Format, ...] = ("text", "book")
EXTRACTED: Format = "extracted"
FORMAT_NAMES: dict[Format, str] = {
    "jsonl": "JSON lines",
    "wiki_jsonl": "JSON lines of wikiextractor",
    "json_array": "JSON array",
    "csv": "CSV or TSV",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "text": "plain text",
    "book": "plain text (book)",
    "doc": "wikiextractor mark-up",
    "mediawiki": "MediaWiki dump",
    "html": "HTML",
    "zip": "zip archive",
    "tar": "archive of text files",
    "warc": "WARC",
    EXTRACTED: "extracted documents",
}
"""Names for messages."""

MAX_DOCUMENT_BYTES = 1 << 27  # a longer document means that the format was misdetected
PART_BYTES = 1 << 24  # in which such documents are decoded; War and Peace has 3.3 MB


@dataclass(frozen=True, slots=True)
class Source:
    """One raw file and how it is read."""

    corpus: str
    path: str
    """Absolute."""
    name: str
    """Label in ids and messages, relative to what the user gave."""
    size: int
    """Bytes on disk."""
    format: Format
    compression: Compression
    text_field: str
    """For JSON and tables; empty: text, body and content, see `first_text`."""
    plain_text: PlainText
    """Whether plain text is one document, one book, or documents between blank lines or lines."""
    licence: str
    pages_per_domain: int = 0
    """For WARC and WET: most pages of a site kept per file; 0: no limit."""
    mtime_ns: int = field(default=0, compare=False)
    """When it was last written to, at the time it was found, see `content`."""
    language: str = ""
    """For WARC and WET: ISO 639-1 code of the pages that are kept; empty: any."""
    published: PublishedFile | None = None
    """Where it is fetched from if there is no file at `path`; None: it is the user's."""
    pages: tuple[tuple[str, str], ...] = ()
    """Of a group of HTML files: names and paths."""
    raw: Source | None = field(default=None, compare=False, repr=False)
    """Of an extracted file: the file that was extracted; None: it is not here."""

    @property
    def paths(self) -> list[str]:
        """The file, or the files of a group."""
        return [path for _, path in self.pages] or [self.path]


class ReadSpan(NamedTuple):
    """Bytes [start, stop) of a file, before decompression, and their hash.

    Of a file that `extraction` wrote: no bytes, and the hash of its raw file.
    """

    corpus: str
    file: str
    """The source's name."""
    start: int
    stop: int
    xxh3_64: str


@dataclass(slots=True)
class PieceReading:
    """The bytes of a piece that were read so far; `content` reads and hashes them."""

    source: Source
    start: int = 0
    size: int = 0
    hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)
    extraction: str = ""
    """The content of the raw file if this one was extracted."""

    def take(self, block: bytes) -> None:
        """Add the bytes that follow."""
        self.hash.update(block)
        self.size += len(block)

    @property
    def span(self) -> ReadSpan:
        """What was read, and its hash."""
        source, stop = self.source, self.start + self.size
        digest = self.extraction if source.format == EXTRACTED else self.hash.hexdigest()
        return ReadSpan(source.corpus, source.name, self.start, stop, digest)


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of reading: bytes [start, stop) of a file, Parquet row groups or Arrow batches."""

    source: Source
    start: int
    stop: int
    weight: int
    """Its share of the bytes on disk; the weights of a file's pieces add up to its size."""
    reading: PieceReading | None = field(default=None, compare=False, repr=False)
    """Hashes what a reader takes, see `content`; None: nobody asks."""


@dataclass(slots=True)
class Record:
    """One document as read, before cleaning."""

    id: str
    """Unique in the corpus, and the same in every run."""
    origin: str
    """Its url, path or id field, else the source's name."""
    text: str
    cut: tuple[tuple[str, int], ...] = ()
    """(reason, bytes) of the parts that were cut."""
    noted: str = ""
    """As in `Extract`."""


@dataclass(slots=True)
class Dropped:
    """A valid record that is not a document, such as a redirect."""

    id: str
    reason: str


@dataclass(slots=True)
class BadRecord:
    """A record that cannot be used."""

    where: str
    """name:line, or name:row for Parquet, from 1; name@byte where no line is known."""
    reason: str


@dataclass(frozen=True, slots=True)
class Extract:
    """A record of a file that is slow to read: its text, or the reason why it was dropped.

    Unknown fields are empty.
    """

    id: str
    """Its id in the file."""
    url: str
    title: str
    text: str
    """Empty if it was dropped."""
    dropped: str
    """Why there is no text; empty if there is."""
    revised: str
    """Time of the revision or fetch: 2016-04-22T10:19:33Z."""
    language: str
    """ISO 639-1: en."""
    domain: str
    """Host of the url."""
    position: int
    """Decompressed bytes of the file up to the record's end, or slightly more."""
    noted: str = ""
    """What to know about a text that is kept, such as that its stated encoding was wrong."""


@dataclass(frozen=True, slots=True)
class Where:
    """Names places in a piece that starts at the byte `start`."""

    source: Source
    start: int

    def __call__(self, number: int, position: int) -> str:
        """The piece's line `number`, from 1, as name:line; name@byte if the piece is not the first.

        position: the same place, in bytes of the file. The lines before the piece are not counted,
        since that means reading the file up to there; `with_line` does it for one place.
        """
        if self.start:
            return f"{self.source.name}@{position}"
        return f"{self.source.name}:{number}"


def shown_name(name: str) -> str:
    """A file's name in ids and messages: one line, in which nothing is invisible.

    Ids are printed, pasted, and listed a line each (`takedown --documents`). So what does not print
    (newlines, tabs, no-break spaces, joiners) is written as in Python, `\\n` or `\\u200d`. In such
    a name a backslash is doubled; all others stay as they are.
    """
    return name if name.isprintable() else escaped(name.replace("\\", "\\\\"))


def with_line(example: str, sources: Iterable[Source]) -> str:
    """An example of a bad record, with the line instead of the byte where it has one.

    example: "where: reason", see `BadRecord`; reads the file up to that line.
    """
    for source in sources:
        if not source.compression and example.startswith(f"{source.name}@"):
            position, _, reason = example.removeprefix(f"{source.name}@").partition(": ")
            if position.isdecimal():
                line = count_lines(source.path, int(position)) + 1
                return f"{source.name}:{line}: {reason}"
    return example


def end_of(piece: Piece) -> int:
    """The piece's records start before this position in the decompressed file."""
    return sys.maxsize if piece.source.compression else piece.stop


def check_length(source: Source, size: int) -> None:
    """Raises DataError if `size` bytes are too many for one document."""
    if size > MAX_DOCUMENT_BYTES:
        raise DataError(
            f"{source.path} has a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; if it "
            "holds many documents, give --plain-text lines, or put blank lines between them and "
            "give --plain-text blank_lines"
        )


def parts_of(document: bytes) -> Iterator[tuple[int, bytes]]:
    """A document and 0; of a giant one parts of at most PART_BYTES, and where they start.

    A decoded text can take four times its bytes. Parts end at a blank line, else at a line, else
    between characters.
    """
    start = 0
    while len(document) - start > PART_BYTES:
        most = start + PART_BYTES
        for mark in (b"\n\n", b"\n", b" "):
            if (last := document.rfind(mark, most - PART_BYTES // 4, most)) >= 0:
                stop = last + len(mark)
                break
        else:
            stop = most
            while stop > most - 3 and document[stop] >> 6 == 0b10:  # inside a character of UTF-8
                stop -= 1
        yield start, document[start:stop]
        start = stop
    yield start, document[start:] if start else document


def text_fields(source: Source) -> tuple[str, ...]:
    """Fields to search for a record's text, in order."""
    return (source.text_field,) if source.text_field else TEXT_FIELDS


def first_text(values: Iterable[Any]) -> str | bytes | None:
    """The text of a record of any format, by the values of its text fields in their order.

    It is the first string, be it empty, as CSV writes null: a field that is missing, null or of
    another type is passed over. Bytes stand for a string that is damaged; they are returned, since
    the fields after them may hold something else than the text.
    """
    return next((value for value in values if isinstance(value, (str, bytes))), None)
