"""The formats whose files are extracted, and the records of a file of any format."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.ingest.documents.json_lines import WITH_FIELDS, stored_record
from pipeline.ingest.documents.read import READERS, READING_VERSION, is_large_stream, read
from pipeline.ingest.documents.records import (
    BadRecord,
    Dropped,
    Extract,
    Format,
    Piece,
    Record,
    Source,
)
from pipeline.ingest.extraction.html_files import read_html
from pipeline.ingest.extraction.mediawiki import read_dump
from pipeline.ingest.extraction.tar_archives import TAR_VERSION, finish_pages, read_tar
from pipeline.ingest.extraction.web_pages import WEB_VERSION, read_web, without_repeats
from pipeline.ingest.extraction.zip_archives import ZIP_VERSION, read_zip
from pipeline.ingest.wikitext.prose import WIKITEXT_VERSION

Records = Iterator[Extract | BadRecord]


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """A format whose documents need more than reading."""

    read: Callable[[Source, Path], Records]
    """Yields the documents of a file in one pass, given a folder for what it unpacks."""
    code: int | tuple[int, ...]
    """Versions of our code, with what it calls: increase one when a file gives different output."""
    finish: Callable[[Source, Callable[[], Records]], Records] | None = None
    """Changes the documents of a whole file; it may read them several times."""

    def begin(self, source: Source) -> Records:
        """The documents in one pass; for estimates and reports, which write nothing."""
        return self.read(source, Path(tempfile.gettempdir()))


@dataclass(frozen=True, slots=True)
class PieceFormat:
    """A format that `read` reads. Ids have the place in the user's file, so they do not depend on
    what is extracted."""

    code: int
    """As of `SlowFormat`."""


FORMATS: dict[Format, SlowFormat | PieceFormat] = {
    "mediawiki": SlowFormat(lambda source, folder: read_dump(source), WIKITEXT_VERSION),
    "html": SlowFormat(lambda source, folder: read_html(source), WEB_VERSION, without_repeats),
    "tar": SlowFormat(
        lambda source, folder: read_tar(source), (TAR_VERSION, WEB_VERSION), finish_pages
    ),
    "zip": SlowFormat(read_zip, ZIP_VERSION),
    "warc": SlowFormat(lambda source, folder: read_web(source), WEB_VERSION, without_repeats),
    "text": PieceFormat(READING_VERSION),
    "book": PieceFormat(READERS["book"]),
    "doc": PieceFormat(READERS["doc"]),
    "wiki_jsonl": PieceFormat(READERS["wiki_jsonl"]),
    "json_array": PieceFormat(READERS["json_array"]),
    "csv": PieceFormat(READERS["csv"]),
    "pack": PieceFormat(READING_VERSION),
}
"""Formats that are extracted, with JSON lines in one large compressed file; others are read."""


def is_extracted(source: Source) -> bool:
    """True if a file is read from the Parquet file that is extracted from it."""
    return is_large_stream(source) if source.format == "jsonl" else source.format in FORMATS


def format_of(source: Source) -> SlowFormat | PieceFormat:
    """The format of a file that is extracted."""
    return FORMATS.get(source.format) or PieceFormat(READING_VERSION)


def is_finished(source: Source) -> bool:
    """True if what is extracted from a file is written twice, as `SlowFormat.finish` reads it."""
    format = format_of(source)
    return isinstance(format, SlowFormat) and format.finish is not None


def stream(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
    """Yield the records of a piece of any file, as `read` does, without extracting it.

    What needs the whole file is left out: lines that a site repeats stay.
    """
    source, format = piece.source, FORMATS.get(piece.source.format)
    if not isinstance(format, SlowFormat):
        yield from read(piece)
        return
    for row, record in enumerate(format.begin(source)):
        if isinstance(record, BadRecord):
            yield record
        elif record.dropped:
            yield Dropped(f"{source.name}@{row}", record.dropped)
        elif record.noted == WITH_FIELDS:
            id = f"{source.name}@{row}"
            yield stored_record(source, record.text, id)
        else:
            origin = record.url or f"{source.name}/{record.id}"
            yield Record(f"{source.name}@{row}", origin, record.text, noted=record.noted)
