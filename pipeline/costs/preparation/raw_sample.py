"""A few megabytes of a corpus's raw files, as text and as the Parquet that is extracted from them.

Files are read by the readers of `prepare`, at evenly spaced places, the same ones every time. Those
that are extracted are also written as extraction writes them, to a temporary directory.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.data.text.document_map import MAP
from pipeline.data.text.documents import DocumentCounts, mapped
from pipeline.data.text.giants import in_pieces
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.compression.codecs import decompressed
from pipeline.ingest.documents.byte_blocks import CountedFile
from pipeline.ingest.documents.csv_tables import bytes_of_rows
from pipeline.ingest.documents.read import TABLES, is_readable, read, read_whole, rows_of
from pipeline.ingest.documents.records import BadRecord, Dropped, Extract, Piece, Record, Source
from pipeline.ingest.extraction.document_tables import (
    extract_tables,
    record_tables,
    unnamed_records,
    write_documents,
)
from pipeline.ingest.extraction.extract import extract, finished
from pipeline.ingest.extraction.formats import SlowFormat, format_of, is_extracted, is_finished
from pipeline.ingest.extraction.packs import PACK, make_group
from pipeline.ingest.extraction.zip_archives import (
    extract_zip_member,
    find_zip_members,
    member_starts,
)

PLACES = 16
"""Places sampled in a corpus's files of one kind."""
SAMPLE_BYTES = 4 << 20
"""Bytes sampled from a corpus's files of one kind, over all places."""
_LONG = 2  # times the bytes of a place; of longer documents, only as many bytes are prepared
Item = Record | Dropped | BadRecord | Extract


@dataclass(slots=True)
class Kind:
    """Files of a corpus that are read in the same way."""

    corpus: str
    is_extracted: bool
    files: list[Source] = field(default_factory=list)
    """The user's, those in groups too."""
    parts: list[tuple[Source, int]] = field(default_factory=list)
    """Sources that become a Parquet file each, and the bytes of this kind's files in it."""
    made: int = 0
    """Parquet files that are made of them; a pack counts for the kind of its first file."""

    def unit_sizes(self) -> Iterator[tuple[str, int]]:
        """The name and bytes of every unit that one process extracts."""
        for source, size in self.parts:
            yield source.name, size


def find_kinds(sources: list[Source]) -> list[Kind]:
    """The kinds of files among sources, as `extracted_so_far` returns these."""
    kinds: dict[tuple[str, ...], Kind] = {}
    for source in sources:
        sizes: dict[tuple[str, ...], int] = {}
        for file in source.files:
            packed = PACK if source.format == PACK else ""
            key: tuple[str, ...] = (file.corpus, packed, file.format, file.compression)
            kinds.setdefault(key, Kind(file.corpus, is_extracted(source))).files.append(file)
            sizes[key] = sizes.get(key, 0) + file.size
        kinds[next(iter(sizes))].made += 1
        for key, size in sizes.items():
            kinds[key].parts.append((source, size))
    return [*kinds.values()]


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """The sample that was written of a kind of files."""

    share: float
    """Share of the files' bytes."""
    reading: float
    """CPU time of reading it from the files, and of extracting it."""
    documents: float
    """Documents that each one that was written stands for: less than 1 if they were cut."""
    extracted: float
    """Bytes of the Parquet files that all the files become; 0 if they are read where they are."""


@dataclass(slots=True)
class _Place:
    """The records that were read of a piece."""

    piece: Piece
    items: list[tuple[Item, int, int]] = field(default_factory=list)
    """Records, of long ones the start; how long each was, and in how many documents it is cut."""
    passed: float = 0.0
    """Bytes on disk."""
    seconds: float = 0.0
    """CPU time."""

    @property
    def kept(self) -> float:
        """The share of the text that is kept of long documents."""
        whole = sum(length for _, length, _ in self.items)
        return sum(len(_text_of(item)) for item, _, _ in self.items) / whole if whole else 1.0


def write_sample(kind: Kind, path: Path) -> WrittenSample:
    """Write some documents as JSON lines, of long ones the start."""
    pieces = [piece for task in cut_tasks(kind.files, finer=1) for piece in task.pieces]
    # Of small files, as many as hold the sample.
    mean = sum(piece.weight for piece in pieces) / len(pieces)
    number = min(len(pieces), max(PLACES, math.ceil(SAMPLE_BYTES / max(1.0, mean))))
    chosen = [pieces[i * len(pieces) // number] for i in range(number)]  # the same ones every time
    quota = SAMPLE_BYTES // len(chosen)
    for piece in chosen[:PLACES]:
        next(_read_start(piece, 1))  # imports packages; all of a table tells what its quotes mean
    places = [_read_place(piece, quota) for piece in chosen]
    passed = sum(place.passed for place in places)
    taken = sum(place.passed * place.kept for place in places)
    reading = sum(place.seconds * place.kept for place in places)
    items = [(place.piece.source.name, item) for place in places for item in place.items]
    found = written = characters = 0
    with path.open("w") as file:
        for _, (item, _, documents) in items:
            if text := _text_of(item):
                print(json.dumps({"text": text}), file=file)
                characters, found, written = characters + len(text), found + documents, written + 1
    if chosen[0].source.format in TABLES:
        # Rows are decoded many at a time, so the first of a place cost as much as all these.
        seconds, size = time_to_read(pieces[len(pieces) // 2])
        reading = seconds * characters / max(1, size)
    share, extracted = taken / sum(source.size for source in kind.files), 0.0
    if kind.is_extracted:
        rows = [(name, item) for name, (item, _, _) in items]
        least = [(name, _shortened(item, 0)) for name, item in rows[:1]]
        empty = _store(kind, least, path.parent)  # bytes of a file without much text
        started_at = time.process_time()
        size = _store(kind, rows, path.parent)
        reading += time.process_time() - started_at
        if kind.parts[0][0].format == PACK:
            reading = _time_of_pack(kind, chosen, path.parent) * taken
        extracted = max(0, size - empty) / max(share, 1e-12) + empty * kind.made
    return WrittenSample(
        share=share,
        reading=reading,
        documents=found / max(1, written) * taken / max(1.0, passed),
        extracted=extracted,
    )


def _read_place(piece: Piece, quota: int) -> _Place:
    place = _Place(piece)
    started_at = time.process_time()
    for item in _read_start(piece, quota):
        if isinstance(item, float):
            place.passed = item  # the last item: bytes on disk
            continue
        place.seconds += time.process_time() - started_at
        text = _text_of(item)
        documents = sum(1 for _ in in_pieces(Record("", "", text)))
        place.items.append((_shortened(item, quota), len(text), documents))
        started_at = time.process_time()
    return place


def _time_of_pack(kind: Kind, chosen: list[Piece], folder: Path) -> float:
    """CPU time of extracting a byte of small files.

    Most of it is what each file costs, however little it holds: it is found unchanged four times.
    """
    files = [*dict.fromkeys(piece.source for piece in chosen)]
    pack = make_group(files, "sample", PACK)
    started_at = time.process_time()
    extract([pack], folder / "packed", local_executor(1))
    return (time.process_time() - started_at) / max(1, pack.size)


def time_to_read(piece: Piece) -> tuple[float, int]:
    """CPU time of reading a piece, or the start of a large one, and the characters read."""
    size = 0
    started_at = time.process_time()
    for record in _with_texts(piece.source, read(piece)):
        size += len(_text_of(record))
        if size >= SPLIT_BYTES:
            break
    return time.process_time() - started_at, size


def _with_texts(
    source: Source, records: Iterator[Record | Dropped | BadRecord]
) -> Iterator[Record | Dropped | BadRecord]:
    """The records; those without a text with the one that the user's function makes of them."""
    for record in records:
        if isinstance(record, Record) and record.textless:
            yield mapped(record, source, DocumentCounts()) or Dropped(record.id, MAP)
        else:
            yield record


def _text_of(item: Item) -> str:
    """The text of a document; empty if it is dropped."""
    if isinstance(item, Extract):
        return "" if item.dropped else item.text
    return item.text if isinstance(item, Record) else ""


def _shortened(item: Item, size: int) -> Item:
    """A record with at most a few times `size` of its text."""
    if isinstance(item, (Record, Extract)) and len(item.text) > _LONG * size:
        return replace(item, text=item.text[:size])
    return item


def _store(kind: Kind, rows: list[tuple[str, Item]], folder: Path) -> int:
    """Write rows as they are when `kind` is extracted; returns the bytes of the file."""
    source, _ = kind.parts[0]
    if isinstance(format_of(source), SlowFormat):
        tables = extract_tables(cast(list[Extract | BadRecord], [item for _, item in rows]))
    else:
        found = cast(list[tuple[str, Record | Dropped | BadRecord]], rows)
        tables = record_tables(found, named=source.group is not None)
    path, unit = folder / "extracted.parquet", folder / "unit.parquet"
    if is_finished(source):
        write_documents(tables, source, unit, {})
        tables = finished(source, unit)
    write_documents(tables, source, path, {})
    return path.stat().st_size


def _read_start(piece: Piece, quota: int) -> Iterator[Item | float]:
    """Records that start in a piece, `quota` bytes of text or a little more; then their size on
    disk.

    One record after them is read too: its position is where the last one ended.
    """
    source = piece.source
    if source.format == "zip":
        yield from _members_at_places(source, quota)
        return
    if not is_readable(source):
        yield from _first_extracts(piece, quota)
        return
    is_table = source.format in TABLES
    is_cut = not is_table and not read_whole(source)
    on_disk = piece.weight / max(1, piece.stop - piece.start)  # per byte; not 1 if compressed
    size, start, end = 0, piece.start, 0
    is_empty = True  # so a document of an earlier piece goes through all of it
    for row, record in enumerate(_with_texts(source, unnamed_records(piece))):
        is_empty = False
        if not isinstance(record, Record):
            yield record
            continue
        position = row if is_table else int(record.id.rpartition("@")[2])
        if size >= quota:
            yield (position - start) * on_disk if is_cut else _bytes_before(piece, position)
            return
        if not size and piece.start:  # a document of an earlier piece ends here
            start = position
        size += len(record.text)
        end = position + len(record.text.encode())
        yield record
    if is_cut and end:
        yield (max(piece.stop, end) - start) * on_disk  # the last one may end in a later piece
    else:
        yield 0.0 if is_cut and is_empty else float(piece.weight)


def _first_extracts(piece: Piece, quota: int) -> Iterator[Item | float]:
    size, source = 0, piece.source
    format = format_of(source)
    assert isinstance(format, SlowFormat)
    for page in format.begin(source):
        yield page
        if isinstance(page, BadRecord):
            continue
        size += len(_text_of(page))
        if size >= quota:
            yield _bytes_before(piece, page.position)
            return
    yield float(piece.weight)


def _members_at_places(source: Source, quota: int) -> Iterator[Item | float]:
    """Documents of members at even distances in an archive, which may be of different formats.

    So a place has bytes on disk, not text: a quarter of the quota, as text is packed.
    """
    starts, stop = member_starts(source)
    in_order = sorted(starts)
    places = [stop * number // PLACES for number in range(PLACES)]
    at_places = Counter(in_order[max(0, bisect_right(in_order, place) - 1)] for place in places)
    left = passed = 0.0
    for start, member in zip(starts, find_zip_members(source)):
        left += at_places[start] * min(source.size, quota / 4) / PLACES
        if left <= 0:
            continue
        end = [*in_order, stop][bisect_right(in_order, start)]
        for page in extract_zip_member(source, member, Path(tempfile.gettempdir())):
            yield page
            if isinstance(page, Extract) and page.position - start >= left:
                end = page.position
                break
        passed, left = passed + end - start, left - (end - start)
    yield passed * source.size / stop  # with its share of the list, long if the members are short


def _bytes_before(piece: Piece, position: int) -> float:
    """Bytes on disk before a record, from the piece's start; position: its row in the piece of a
    table, else as in its id."""
    source = piece.source
    if source.format in TABLES:
        return float(piece.weight * position / len(rows_of(piece)))
    if source.format == "csv":
        position = bytes_of_rows(piece, position)
    if not source.compression:
        return float(position)
    # Packed bytes are read many at a time and become several blocks, so the two are compared where
    # the next ones are read.
    taken = end = 0
    with Path(source.path).open("rb") as file:
        packed = CountedFile(file)
        for block in decompressed(cast(BinaryIO, packed), source.compression):
            if packed.taken > taken and end >= position:
                break
            taken, end = packed.taken, end + len(block)
    return taken * min(1.0, position / max(1, end))
