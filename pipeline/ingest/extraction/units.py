"""Units of work: a slow file cut into runs of records that take minutes, each finished by itself.

A unit is the records that start in a range of the file's bytes on disk. Any process can extract any
unit of a file that it can start to read anywhere: a plain MediaWiki dump. Compressed dumps and tars
are read from their start, so each process reads such a file once, and extracts its units on the
way. A WARC file is one unit.

Where the first record of a unit starts is a guess, such as the next `<page>`. Where the last one
ends is known, since it was parsed. So a unit is used only if it begins where the one before it
ended, and is extracted again otherwise: the records are the same as without units. Plain text is
not guessed at: its readers give the records of any piece exactly (`PieceFormat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pipeline.ingest.documents.json_lines import WITH_FIELDS, stored_record
from pipeline.ingest.documents.read import (
    READERS,
    READING_VERSION,
    cut,
    is_large_stream,
    read,
)
from pipeline.ingest.documents.records import (
    BadRecord,
    Dropped,
    Extract,
    Format,
    Piece,
    Record,
    Source,
    State,
)
from pipeline.ingest.documents.unchanged import state_of
from pipeline.ingest.extraction.html_files import extract_html, find_html
from pipeline.ingest.extraction.mediawiki import extract_page, find_pages
from pipeline.ingest.extraction.places import END, START, Place, starts_anywhere
from pipeline.ingest.extraction.tar_archives import (
    MARKUP_VERSION,
    TAR_VERSION,
    extract_member,
    find_members,
    finish_pages,
)
from pipeline.ingest.extraction.warc import Torn, WarcRecord, read_records
from pipeline.ingest.extraction.web_pages import WEB_VERSION, extract_record, without_repeats
from pipeline.ingest.extraction.zip_archives import (
    ZIP_VERSION,
    extract_zip_member,
    find_zip_members,
)
from pipeline.ingest.wikitext.prose import WIKITEXT_VERSION

UNIT_BYTES = 32 << 20
"""Bytes on disk of a unit that is compressed: about a minute of wikitext on one core."""
PLAIN_UNIT_BYTES = 128 << 20
TAR_UNIT_BYTES = 256 << 20
"""A tar is read a hundred times as fast."""
Records = Iterator[Extract | BadRecord]


@dataclass(frozen=True, slots=True)
class MarkupInArchives:
    """The reading of HTML and XML among the texts of an archive. Archives without them do not
    depend on it."""

    is_in: Callable[[Any], bool]
    """True if a raw record held some, after it was extracted."""
    codes: tuple[int, ...]
    """Versions, as in `SlowFormat.code`."""
    finish: Callable[[Source, Callable[[], Records]], Records]
    """Finishes a whole file, as `SlowFormat.finish` does."""


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """The reading of a format whose records are found on the way, and its version."""

    find: Callable[[Source, Place], Iterator[tuple[Place, Any]]]
    """Yields raw records from a place on, and their places; raises DataError if it cannot."""
    extract: Callable[[Source, Any], Iterable[Extract | BadRecord]]
    """The documents of a raw record."""
    code: int
    """Version of our code, with what it calls: increase it when a file gives different output."""
    finish: Callable[[Source, Callable[[], Records]], Records] | None = None
    """Changes the documents of a whole file; it may read them several times."""
    markup: MarkupInArchives | None = None
    """HTML and XML in archives of texts."""
    numbers_records: bool = True
    """True if unusable records end in their number in the unit, false if in their path."""

    def begin(self, source: Source) -> Records:
        """The documents in one pass; for estimates."""
        for _, raw in self.find(source, START):
            yield from self.extract(source, raw)


@dataclass(frozen=True, slots=True)
class PieceFormat:
    """A format that `read` reads, in pieces where it can, and the version of it.

    Ids have the place in the user's file, so they do not depend on what is extracted.
    """

    code: int


def _find_records(source: Source, start: Place) -> Iterator[tuple[Place, WarcRecord | Torn]]:
    return (((record.number, 0), record) for record in read_records(source))


FORMATS: dict[Format, SlowFormat | PieceFormat] = {
    "mediawiki": SlowFormat(find_pages, extract_page, WIKITEXT_VERSION),
    "html": SlowFormat(find_html, extract_html, WEB_VERSION, without_repeats),
    "tar": SlowFormat(
        find_members,
        extract_member,
        TAR_VERSION,
        markup=MarkupInArchives(
            lambda member: bool(member.has_markup), (MARKUP_VERSION, WEB_VERSION), finish_pages
        ),
        numbers_records=False,
    ),
    "zip": SlowFormat(find_zip_members, extract_zip_member, ZIP_VERSION),
    "warc": SlowFormat(_find_records, extract_record, WEB_VERSION, without_repeats),
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
    if source.format == "jsonl":
        return is_large_stream(source)
    return source.format in FORMATS


def format_of(source: Source) -> SlowFormat | PieceFormat:
    """The format of a file that is extracted."""
    return FORMATS.get(source.format) or PieceFormat(READING_VERSION)


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


@dataclass(frozen=True, slots=True)
class Unit:
    """Records of a file that start in bytes [start, stop) on disk."""

    source: Source
    start: int
    stop: int
    before: int
    """Bytes on disk that a process must read first; 0 if it can start anywhere."""


def is_exact(unit: Unit) -> bool:
    """True if the unit's records are known without its neighbours, so none are read again."""
    return isinstance(format_of(unit.source), PieceFormat)


def is_joined(source: Source, units: list[Unit]) -> bool:
    """True if a file is put together from files of its units, which wait on the disk."""
    format = format_of(source)
    # A finish reads all documents again, and an archive may turn out to hold pages at its end.
    whole = isinstance(format, SlowFormat) and (format.finish or format.markup)
    return len(units) > 1 or bool(whole)


def cut_units(source: Source) -> list[Unit]:
    """The units of a slow file, in order. They can be extracted side by side."""
    if isinstance(format_of(source), PieceFormat):
        pieces = cut(source, PLAIN_UNIT_BYTES)
        return [Unit(source, piece.start, piece.stop, 0) for piece in pieces]
    if source.format == "tar":
        return _cut(source, TAR_UNIT_BYTES)
    return _cut(source, source.size) if _is_one_unit(source) else expected_units(source)


def expected_units(source: Source) -> list[Unit]:
    """The units of a WARC file or a dump that is not here; it may turn out to be one unit."""
    # Plain units are four times as large, about as much text.
    return _cut(source, UNIT_BYTES if source.compression else PLAIN_UNIT_BYTES)


def _cut(source: Source, size: int) -> list[Unit]:
    starts_here = _starts_anywhere(source)
    return [
        Unit(source, start, min(start + size, source.size), 0 if starts_here else start)
        for start in range(0, source.size, size)
    ]


def _is_one_unit(source: Source) -> bool:
    return source.format in ("html", "zip", "warc")


def _starts_anywhere(source: Source) -> bool:
    """True if each of the file's units can be read without what is before it."""
    return source.format == "mediawiki" and starts_anywhere(source.compression)


@dataclass(slots=True)
class Span:
    """The records that were found in a unit."""

    begin: Place = END
    """Place of the first record at or after the unit's start."""
    end: Place = END
    """Place of the first record after the unit."""
    records: int = 0
    """Raw records in it."""
    has_markup: bool = False
    """True if it is of an archive and holds HTML or XML."""


def unit_records(unit: Unit, start: Place, span: Span) -> Records:
    """Yield the documents of a unit of a `SlowFormat` from `start` on; fills `span`, which is right
    at the end."""
    format = format_of(unit.source)
    assert isinstance(format, SlowFormat)
    stop = (unit.stop, 0) if unit.stop < unit.source.size else END
    span.begin, span.end, span.records, span.has_markup = END, END, 0, False
    found = _found(unit.source, start)
    for place, raw in found:
        if span.begin == END:
            span.begin = place
        if place >= stop:
            span.end = place  # known, as this record was parsed, while a begin is a guess
            # The first of the next unit was taken.
            _remember(unit.source, stop, chain([(place, raw)], found))
            return
        span.records += 1
        yield from format.extract(unit.source, raw)
        if format.markup and format.markup.is_in(raw):
            span.has_markup = True


_Found = Iterator[tuple[Place, Any]]
_last: list[tuple[Source, State, Place, _Found]] = []
"""The file that this process reads from its start, its state, a place, and the rest from there."""


def _found(source: Source, start: Place) -> _Found:
    """Raw records from `start` on; reads on in a file that is open."""
    if start == END:
        return iter(())
    found = None
    while _last:
        last, state, place, rest = _last.pop()  # popped: reading on uses it up
        if last == source and place <= start and state == state_of(source):  # it cannot go back
            found = rest
    if found is None:
        format = format_of(source)
        assert isinstance(format, SlowFormat)
        found = format.find(source, start)
    return (item for item in found if item[0] >= start)


def _remember(source: Source, place: Place, found: _Found) -> None:
    if not _starts_anywhere(source):
        _last[:] = [(source, state_of(source), place, found)]
