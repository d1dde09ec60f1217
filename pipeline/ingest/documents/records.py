"""Raw files as sources and pieces, and the records that are read from them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import xxhash

from pipeline.base.errors import DataError
from pipeline.ingest.compression.codecs import BLOCK_BYTES, Compression, decompressed, naming
from pipeline.ingest.documents.byte_blocks import CountedFile, first_line_start, plain_blocks
from pipeline.ingest.documents.packed_rows import unpack_rows
from pipeline.remote.copies import PublishedFile

TEXT_FIELDS = ("text", "body", "content")
ORIGIN_FIELDS = ("url", "path", "id")

Format = Literal[
    "jsonl", "json_array", "wiki_jsonl", "csv", "parquet", "arrow", "text", "book", "doc",
    "mediawiki", "html", "warc", "tar", "zip", "pack", "extracted",
]  # fmt: skip
"""`wiki_jsonl`, `doc`: written by wikiextractor; `pack`: small files of any format, see `packs`;
`extracted`: written by `extraction`."""
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
    "pack": "small files",
    EXTRACTED: "extracted documents",
}
"""Names for messages."""

MAX_DOCUMENT_BYTES = 1 << 27  # a longer document means that the format was misdetected


State = tuple[int, int]
"""Size and modification time in nanoseconds: what tells at once that a file may have changed."""


class FoundAs(NamedTuple):
    """Facts seen of a file when it was found, besides its size."""

    mtime_ns: int = 0
    """When it was last written to."""
    ends: str = ""
    """The `file_ends` of a short file; empty: they are to be read."""


class Rewriting(NamedTuple):
    """Changes to the text of a file's documents after they are read."""

    path: str = ""
    """Absolute path of the file with the user's function; see `document_map`."""
    function: str = ""
    """Its name; empty: none."""
    sha256: str = ""
    """Hash of that file."""
    lines: int = 0
    """Version of the rules that keep some lines, see `line_rules`; 0: all stay."""
    excluded: str = ""
    """Absolute path of a file that names documents to drop, see `excluded`; empty: none."""
    excluded_hash: str = ""
    """SHA-256 of that file."""

    def identity(self) -> dict[str, Any]:
        """Identity of the changes, for fingerprints and manifests; empty if there are none."""
        function = {"map": f"{self.function} {self.sha256}"} if self.function else {}
        lines = {"lines": self.lines} if self.lines else {}
        return function | lines | ({"excluded": self.excluded_hash} if self.excluded else {})


FileKind = tuple[Format, Compression, int, int]
"""A kind of files: format, compression, their number and their bytes on disk."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of a corpus that are read as one, see `packs`, in about 40 bytes each."""

    rows: bytes
    """`Source.row` of each, as `pack_rows` packs them."""
    kinds: tuple[FileKind, ...]
    identity: str
    """A hash of the files as they were found; empty if the ends of one are to be read for it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One raw file, or a group of them, and how it is read."""

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
    """Field with the text of JSON and tables; empty: text, body and content, see `first_text`."""
    plain_text: PlainText
    """Unit of plain text: one document, one book, or documents between blank lines or lines."""
    licence: str
    page_language: str = ""
    """ISO 639-1 code of the pages that are kept of WARC and WET files; empty: any."""
    rewriting: Rewriting = field(default=Rewriting())
    found: FoundAs = field(default=FoundAs(), compare=False)
    published: PublishedFile | None = None
    """Source to fetch it from if there is no file at `path`; None: it is the user's."""
    group: FileGroup | None = field(default=None, compare=False, repr=False)
    """The files of a group, of which `path` is the first."""
    raw: Source | None = field(default=None, compare=False, repr=False)
    """The file that an extracted file was made from, which may be gone by now."""

    @property
    def row(self) -> tuple[object, ...]:
        """The fields that differ between files of a group, for `alike`."""
        return (self.path, self.name, self.size, self.format, self.compression, *self.found)

    def alike(self, row: Sequence[Any]) -> Source:
        """The file of a row, which is read as this one is."""
        path, name, size, format, compression, *found = row
        return Source(
            self.corpus, path, name, size, format, compression, self.text_field,
            self.plain_text, self.licence, self.page_language, self.rewriting, FoundAs(*found),
        )  # fmt: skip

    @property
    def files(self) -> list[Source]:
        """The file itself, or those of a group, which are made again at each call."""
        return [*map(self.alike, unpack_rows(self.group.rows))] if self.group else [self]

    @property
    def paths(self) -> list[str]:
        """Path of the file, or those of a group's files."""
        return [path for path, *_ in unpack_rows(self.group.rows)] if self.group else [self.path]

    @property
    def kinds(self) -> tuple[FileKind, ...]:
        """The kinds of files that are read as this."""
        one = (self.format, self.compression, 1, self.size)
        return self.group.kinds if self.group else (one,)

    @property
    def raw_files(self) -> list[Source]:
        """The user's file, or the files of a group, also after they were extracted."""
        return (self.raw or self).files

    @property
    def raw_format(self) -> Format:
        """The format of the user's file, also after it was extracted."""
        return (self.raw or self).format

    @property
    def state(self) -> State:
        """The state in which it was found, see `unchanged`."""
        return self.size, self.found.mtime_ns

    @property
    def is_stream(self) -> bool:
        """True if it is compressed, so that it is read from its start."""
        return bool(self.compression)


class ReadSpan(NamedTuple):
    """Bytes [start, stop) of a file, before decompression, their hash, and the file's state.

    Of a file that `extraction` wrote: no bytes, and the hash of its raw file.
    """

    corpus: str
    file: str
    """The source's name."""
    start: int
    stop: int
    xxh3_64: str
    size: int = 0
    """Bytes of the file; 0 if another copy of the shards was read."""
    mtime_ns: int = 0


@dataclass(slots=True)
class PieceReading:
    """The bytes [start, stop) of a file that were read so far, and their hash."""

    start: int = 0
    stop: int = 0
    hash: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def begin(self, start: int) -> None:
        """Forget what was read; the bytes from `start` on follow."""
        self.start = self.stop = start
        self.hash.reset()

    def take(self, block: bytes) -> None:
        """Add the bytes that follow."""
        self.hash.update(block)
        self.stop += len(block)

    def take_file(self, path: str, start: int = 0, stop: int = sys.maxsize) -> PieceReading:
        """Read the bytes of a file and nothing else; returns this."""
        self.begin(start)
        with naming(path), Path(path).open("rb") as file:
            file.seek(start)
            while self.stop < stop and (block := file.read(min(BLOCK_BYTES, stop - self.stop))):
                self.take(block)
        return self

    @property
    def digest(self) -> str:
        """xxh3_64 of the bytes, 16 hex digits."""
        return self.hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Piece:
    """A unit of reading: bytes [start, stop) of a file, Parquet row groups or Arrow batches."""

    source: Source
    start: int
    stop: int
    weight: int
    """Its share of the bytes on disk; the weights of a file's pieces add up to its size."""
    reading: PieceReading | None = field(default=None, compare=False, repr=False)
    """Hashes what is read, see `unchanged`; None: nothing is recorded."""

    def first_line(self) -> int:
        """Start of its first line."""
        return first_line_start(self.source.path, self.start)

    def blocks(self, start: int | None = None) -> Iterator[bytes]:
        """The blocks of the file as `read_blocks` yields them, from `start` (None: its own) on.

        Raises DataError if the file does not end where it did when it was found.
        """
        source, start = self.source, self.start if start is None else start
        if self.reading:
            self.reading.begin(start)
        with naming(source.path), Path(source.path).open("rb") as file:
            file.seek(start)
            raw = CountedFile(file, self.reading.take if self.reading else None)
            if source.compression:
                yield from decompressed(cast(BinaryIO, raw), source.compression)
            else:
                yield from plain_blocks(cast(BinaryIO, raw), self.stop - start)
        if (end := start + raw.taken) != source.size:  # only for readers that read to the end
            raise DataError(
                f"{source.path} changed while it was read: {end:,} bytes, {source.size:,} when the "
                "command started; rerun when nothing writes to it"
            )


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
    language: str = ""
    """As in `Extract`; read if a function is given it, see `Rewriting`."""
    date: str = ""
    """`Extract.revised`, likewise."""
    fields: dict[str, Any] | None = field(default=None, compare=False)
    """The whole record of JSON or a table; None: no function is given it."""
    textless: BadRecord | None = None
    """What it is unless the function makes a text of `fields`."""


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
    about: str = field(default="", compare=False)
    """More about this one record."""
    size: int = field(default=0, compare=False)
    """Bytes of text that are lost with it; 0: none, or unknown."""


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
    """A remark on a text that is kept, such as that its stated encoding was wrong."""


def end_of(piece: Piece) -> int:
    """The piece's records start before this position in the decompressed file."""
    return sys.maxsize if piece.source.is_stream else piece.stop  # its `stop` is a place on disk


def check_length(source: Source, size: int) -> None:
    """Raises DataError if `size` bytes are too many for one document."""
    if size > MAX_DOCUMENT_BYTES:
        raise DataError(
            f"{source.path} has a document of more than {MAX_DOCUMENT_BYTES >> 20} MiB; if it "
            "holds many documents, give --plain-text lines, or put blank lines between them and "
            "give --plain-text blank_lines"
        )


def text_fields(source: Source) -> tuple[str, ...]:
    """Fields to search for a record's text, in order."""
    return (source.text_field,) if source.text_field else TEXT_FIELDS


def first_text(values: Iterable[Any]) -> str | bytes | None:
    """The first string, be it empty as CSV writes null, among the text fields of a record.

    Bytes stand for a damaged string; the fields after it may hold something else than the text.
    """
    return next((value for value in values if isinstance(value, (str, bytes))), None)
