"""What raw files are and what they give: sources, their pieces, and the records read from these."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from pipeline.data.documents.byte_blocks import Compression, count_lines
from pipeline.errors import DataError

TEXT_FIELDS = ("text", "body", "content")

ORIGIN_FIELDS = ("url", "path", "id")

Format = Literal[
    "jsonl", "wiki_jsonl", "parquet", "text", "book", "tei", "doc", "mediawiki", "warc", "tar",
    "extracted",
]  # fmt: skip
"""`wiki_jsonl`, `doc`: wikiextractor's; `extracted`: what `extraction` wrote."""
PlainText = Literal["file", "book", "blank_lines"]
EXTRACTED: Format = "extracted"
FORMAT_NAMES: dict[Format, str] = {
    "jsonl": "JSON lines",
    "wiki_jsonl": "JSON lines of wikiextractor",
    "parquet": "Parquet",
    "text": "plain text",
    "book": "plain text (book)",
    "tei": "TEI",
    "doc": "wikiextractor mark-up",
    "mediawiki": "MediaWiki dump",
    "tar": "archive of text files",
    "warc": "WARC",
    EXTRACTED: "extracted documents",
}
"""In words, for messages."""

MAX_DOCUMENT_BYTES = 1 << 28  # a longer one is a file that is not what it was taken for


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
    """Of JSON lines and Parquet; empty: the first of text, body, content that has a string."""
    plain_text: PlainText
    """Whether plain text is one document, one book, or documents with blank lines between."""
    licence: str
    pages_per_domain: int = 0
    """Of WARC and WET: no more pages of a site are kept of a file; 0: any number."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is read in one go: bytes [start, stop) of a plain file, row groups of Parquet."""

    source: Source
    start: int
    stop: int
    weight: int
    """Bytes on disk that it stands for; the weights of a file's pieces add up to its size."""


@dataclass(slots=True)
class Record:
    """One document as read; not cleaned."""

    id: str
    """Unique in the corpus, and the same in every run."""
    origin: str
    """Its url, path or id field, or else the source's name."""
    text: str
    cut: tuple[tuple[str, int], ...] = ()
    """Why parts of it were left out, and their bytes."""


@dataclass(slots=True)
class Dropped:
    """A record that is no document, as it should be: a redirect, say."""

    id: str
    reason: str


@dataclass(slots=True)
class BadRecord:
    """A record that cannot be used."""

    where: str
    """name:line, for Parquet name:row, from 1."""
    reason: str


@dataclass(frozen=True, slots=True)
class Extract:
    """A record of a file that is slow to read, as text or with the reason why it is none.

    What is unknown is empty.
    """

    id: str
    """What the file calls it."""
    url: str
    title: str
    text: str
    """Empty when it was dropped."""
    dropped: str
    """Why there is no text; empty when there is."""
    revised: str
    """When it was made or fetched: 2016-04-22T10:19:33Z."""
    language: str
    """ISO 639-1: en."""
    domain: str
    """Host of the url."""
    position: int
    """Bytes of the file, decompressed, that were read up to its end or little more."""


@dataclass(slots=True)
class Where:
    """Names lines of a piece; those before it are counted when one is first asked for."""

    source: Source
    start: int
    before: int = -1

    def __call__(self, number: int) -> str:
        """The piece's line `number`, from 1, as name:line of the file."""
        if self.before < 0:
            self.before = count_lines(self.source.path, self.start)
        return f"{self.source.name}:{self.before + number}"


def end_of(piece: Piece) -> int:
    """Records that begin before this position in the decompressed file are the piece's."""
    return sys.maxsize if piece.source.compression else piece.stop


def check_length(source: Source, size: int) -> None:
    """DataError when a document of `size` bytes cannot be one."""
    if size > MAX_DOCUMENT_BYTES:
        raise DataError(
            f"{source.path} has a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; if it "
            "holds many documents, have blank lines between them and say so"
        )


def text_fields(source: Source) -> tuple[str, ...]:
    """Fields whose first string is a record's text."""
    return (source.text_field,) if source.text_field else TEXT_FIELDS
