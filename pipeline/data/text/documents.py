"""Pieces of raw files to batches of cleaned documents; dropped documents are counted."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xxhash

from pipeline.base.errors import DataError
from pipeline.data.text.cleaning import CleanText, clean
from pipeline.data.text.document_map import FAILED, MAP, Document, apply_map
from pipeline.data.text.excluded import EXCLUDED, load_excluded
from pipeline.data.text.giants import RUN_CHARACTERS, in_pieces
from pipeline.data.text.line_rules import KeptLines, keep_lines
from pipeline.ingest.corpora.shapes import LONG_DOCUMENT
from pipeline.ingest.documents.records import (
    PLAIN_TEXT_FORMATS,
    BadRecord,
    Dropped,
    Piece,
    Record,
    Source,
)
from pipeline.ingest.documents.time_limit import TOO_SLOW, slow_items
from pipeline.ingest.extraction.formats import stream
from pipeline.ingest.extraction.packs import PACK

BATCH_CHARACTERS = 1 << 22
"""Characters per batch: large enough for the kernels, small relative to a worker's memory."""
MOST_EXAMPLES = 3
MOST_REASONS = 1 << 12
"""Reasons to drop documents: a thousand corpora may each have copies of the others."""
WITH_HTML = "with HTML entities or tags in the text"
"""Noted of a document of JSON or a table."""
UNDO_HTML = (
    "to undo them, give --map tidy.py:tidy with this line in tidy.py: import html, re; "
    'tidy = lambda document: html.unescape(re.sub("<[^<>]+>", " ", document.text))'
)
NO_RECORDS = frozenset({"text", "book", "doc", "wiki_jsonl", "mediawiki", "html", "warc", "tar"})
"""Formats whose texts are not fields of records."""
_HTML = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|mdash|ndash|[lr][sd]quo|hellip|#\d{1,7}|#x[0-9a-fA-F]{1,6});"
    r"|</?(?:p|br|div|span|a|b|i|em|strong|ul|ol|li|h[1-6]|table|tr|td|blockquote|img)"
    r"(?:\s[^<>]*)?/?>"
)
_MOST_MARKS = 100
_RECORD_BYTES = 256  # approximate size of a record without its text


@dataclass(slots=True)
class DocumentCounts:
    """Counts of documents, kept and dropped; summed over parts."""

    documents: int = 0
    bytes: int = 0
    """Bytes of cleaned text, UTF-8."""
    characters: int = 0
    """Characters of cleaned text."""
    left_out: int = 0
    """Bytes of text that selection, `--map` and `--filter c4` took, as the user asked for."""
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Ids of the first documents that were dropped as the user asked for, by reason."""
    bad: dict[str, int] = field(default_factory=dict)
    bad_example: str = ""
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes cut from documents by reason: licences, notes."""
    noted: dict[str, int] = field(default_factory=dict)
    """Documents by what their readers noted, such as that a stated encoding was wrong."""
    packed: dict[str, int] = field(default_factory=dict)
    """Counts of `pack.count_packing`."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Unknown tokens, and the characters that they stand for."""
    taken: dict[str, int] = field(default_factory=dict)
    """Bytes of text that became no document's, by reason, without what cleaning removed."""
    plain_text: dict[str, int] = field(default_factory=dict)
    """Files and documents of plain text, and how many documents are `long`."""

    def drop(self, reason: str, number: int = 1) -> None:
        """Count documents that are dropped. Raises DataError if there are too many reasons."""
        self.dropped[reason] = self.dropped.get(reason, 0) + number
        if len(self.dropped) > MOST_REASONS:
            raise DataError(
                f"documents are dropped for over {MOST_REASONS} reasons, such as {reason!r}; a "
                "function of --map must give few, without what differs"
            )

    def reject(self, record: BadRecord) -> None:
        """Count an unusable record."""
        if record.size:
            add_counts(self.taken, {record.reason: record.size})
        self.bad[record.reason] = self.bad.get(record.reason, 0) + 1
        about = f" ({record.about})" if record.about else ""
        self.bad_example = self.bad_example or f"{record.where}: {record.reason}{about}"

    @property
    def failed_in_map(self) -> bool:
        """True if the function of `--map` failed on all unusable records, and there are some."""
        return bool(self.bad) and all(reason.startswith(FAILED) for reason in self.bad)

    def leave_out(self, id: str, reason: str, size: int) -> None:
        """Count a document of `size` bytes that is dropped as the user asked for."""
        self.drop(reason)
        self.leave_out_bytes(reason, size)
        _add_examples(self.examples, {reason: [id]})

    def leave_out_bytes(self, reason: str, size: int) -> None:
        """Count `size` bytes of text that are taken as the user asked for."""
        self.left_out += size
        add_counts(self.taken, {reason: size})

    def add(self, other: DocumentCounts) -> None:
        self.documents += other.documents
        self.bytes += other.bytes
        self.characters += other.characters
        self.left_out += other.left_out
        for reason, number in other.dropped.items():
            self.drop(reason, number)
        _add_examples(self.examples, other.examples)
        add_counts(self.bad, other.bad)
        add_counts(self.cut, other.cut)
        add_counts(self.noted, other.noted)
        add_counts(self.taken, other.taken)
        add_counts(self.packed, other.packed)
        add_counts(self.unknown, other.unknown)
        add_counts(self.plain_text, other.plain_text)
        self.bad_example = self.bad_example or other.bad_example

    def take(self, other: DocumentCounts) -> None:
        """Add the other's counts and reset them."""
        self.add(other)
        other.documents = other.bytes = other.characters = other.left_out = 0
        other.dropped, other.bad, other.cut, other.packed, other.unknown = {}, {}, {}, {}, {}
        other.plain_text, other.noted, other.bad_example = {}, {}, ""
        other.taken, other.examples = {}, {}


def holds_html(text: str) -> bool:
    """True if a text has entities or tags of HTML, as where it was not unescaped."""
    # found one by one, as a search for either mark takes ten times as long; the first hundred of
    # each tell, and in code there are many
    for mark in "&<":
        at = -1
        for _ in range(_MOST_MARKS):
            if (at := text.find(mark, at + 1)) < 0:
                break
            if _HTML.match(text, at):
                return True
    return False


def add_counts(mine: dict[str, int], theirs: dict[str, int]) -> None:
    """Add each count in `theirs` to the one of the same name in `mine`."""
    for name, count in theirs.items():
        mine[name] = mine.get(name, 0) + count


def _add_examples(mine: dict[str, list[str]], theirs: dict[str, list[str]]) -> None:
    for reason, ids in theirs.items():
        mine[reason] = [*mine.get(reason, []), *ids][:MOST_EXAMPLES]


@dataclass(slots=True)
class DocumentBatch:
    """Cleaned documents of one part, with their ids, origins and licences."""

    ids: list[str]
    origins: list[str]
    licences: list[str]
    buffer: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]

    def only(self, chosen: npt.NDArray[np.bool_]) -> DocumentBatch:
        """The chosen documents."""
        if chosen.all():
            return self
        kept, sizes = np.flatnonzero(chosen), np.diff(self.offsets)
        return DocumentBatch(
            [self.ids[index] for index in kept],
            [self.origins[index] for index in kept],
            [self.licences[index] for index in kept],
            self.buffer[np.repeat(chosen, sizes)],
            np.concatenate([[0], np.cumsum(sizes[kept])]),
            self.hashes[kept],
        )


def read_batches(
    pieces: tuple[Piece, ...],
    seed: int,
    counts: DocumentCounts,
    most_characters: int = sys.maxsize,
) -> Iterator[DocumentBatch]:
    """Yield the non-empty cleaned documents of `pieces` in order; adds the others to `counts`.

    most_characters: of a batch, if fewer than BATCH_CHARACTERS.
    """
    records: list[Record] = []
    sources: list[Source] = []
    size = 0
    for piece in pieces:
        source = piece.source
        excluded = load_excluded(source.rewriting)
        for read in _count_records(piece, counts):
            # before the user's function, which must not see what somebody wants removed
            if excluded and isinstance(read, Record) and {read.id, read.origin} & excluded:
                counts.leave_out(read.id, EXCLUDED, len(read.text.encode(errors="replace")))
                continue
            record = mapped(read, source, counts) if source.rewriting.function else read
            if record is None:  # dropped by --map, and counted there
                continue
            if isinstance(record, BadRecord):
                counts.reject(record)
                continue
            if isinstance(record, Dropped):
                counts.drop(record.reason)
                continue
            add_counts(counts.cut, dict(record.cut))
            add_counts(counts.taken, dict(record.cut))
            if record.noted:
                add_counts(counts.noted, {record.noted: 1})
            if source.raw_format not in NO_RECORDS and holds_html(record.text):
                add_counts(counts.noted, {WITH_HTML: 1})
            # nearly every document is spared a generator
            is_short = len(record.text) <= RUN_CHARACTERS
            for part in (record,) if is_short else in_pieces(record):
                if part.id in excluded:  # a part of a giant, which has an id of its own
                    counts.leave_out(part.id, EXCLUDED, len(part.text.encode(errors="replace")))
                    continue
                records.append(part)
                sources.append(source)
                size += len(part.text) + _RECORD_BYTES
                if size >= min(BATCH_CHARACTERS, most_characters):
                    yield from _batch(records, sources, seed, counts)
                    records, sources, size = [], [], 0
    yield from _batch(records, sources, seed, counts)


def mapped(
    record: Record | Dropped | BadRecord, source: Source, counts: DocumentCounts
) -> Record | Dropped | BadRecord | None:
    """The record after the user's function; None: it drops the document, which is counted."""
    if not isinstance(record, Record):
        return record
    found = apply_map(
        source.rewriting,
        Document(
            record.text,
            record.id,
            source.corpus,
            record.origin,
            record.language,
            record.date,
            record.fields or {},
        ),
    )
    if isinstance(found, BadRecord):
        return found
    if found == "" and record.textless:  # it made no text of the fields either
        return record.textless
    size = len(record.text.encode(errors="replace"))
    if isinstance(found, Dropped):
        counts.leave_out(record.id, found.reason, size)
        return None
    if (taken := size - len(found.encode(errors="replace"))) > 0:
        counts.leave_out_bytes(MAP, taken)
    return replace(record, text=found)


def _count_records(piece: Piece, counts: DocumentCounts) -> Iterator[Record | Dropped | BadRecord]:
    """The records of a piece; those of plain text are counted."""
    files = piece.source.raw_files
    plain = {file.name for file in files if file.format in PLAIN_TEXT_FORMATS}
    return _count_plain(piece, plain, counts) if plain else stream(piece)


def _count_plain(
    piece: Piece, plain: set[str], counts: DocumentCounts
) -> Iterator[Record | Dropped | BadRecord]:
    """The records of a piece; plain: names of the files of plain text in it."""
    files = 0 if piece.start else len(plain)  # a file counts with its first piece
    add_counts(counts.plain_text, {"files": files, "documents": 0, "long": 0})
    is_pack = piece.source.raw_format == PACK
    for record in stream(piece):
        if isinstance(record, Record) and (not is_pack or _file_of(record) in plain):
            found = counts.plain_text  # another one after each batch
            found["documents"] = found.get("documents", 0) + 1
            if len(record.text) > LONG_DOCUMENT:
                found["long"] = found.get("long", 0) + 1
        yield record


def _file_of(record: Record) -> str:
    """The file of a record, by its id."""
    return record.id.rpartition("@")[0]


def _batch(
    records: list[Record], sources: list[Source], seed: int, counts: DocumentCounts
) -> Iterator[DocumentBatch]:
    text, slow = _clean_in_time([record.text for record in records])
    filled = np.diff(text.offsets) > 1  # an empty document is only its NUL byte
    for index in np.flatnonzero(~filled).tolist():
        counts.drop(TOO_SLOW if index in slow else "empty")
    by_lines = filled & np.array([source.rewriting.lines > 0 for source in sources], np.bool_)
    if by_lines.any():
        lines = keep_lines(text, by_lines)
        _count_lines(records, np.diff(text.offsets) - 1, lines, counts)
        text = lines.text
        filled[[*lines.dropped]] = False
    if not filled.any():
        return
    view = text.buffer.data
    bounds = itertools.pairwise(text.offsets.tolist())
    hashes = [xxhash.xxh3_64_intdigest(view[start : stop - 1], seed) for start, stop in bounds]
    ids, origins = [record.id for record in records], [record.origin for record in records]
    licences = [source.licence for source in sources]
    yield DocumentBatch(
        ids, origins, licences, text.buffer, text.offsets, np.array(hashes, np.uint64)
    ).only(filled)


def _count_lines(
    records: list[Record], sizes: npt.NDArray[np.int64], lines: KeptLines, counts: DocumentCounts
) -> None:
    """Count what the rules for lines took; sizes: of the documents before, in bytes."""
    for index, reason in lines.dropped.items():
        counts.leave_out(records[index].id, reason, int(sizes[index]))
    for reason, size in lines.cut.items():
        counts.leave_out_bytes(reason, size)
    add_counts(counts.cut, lines.cut)


def _clean_in_time(texts: list[str]) -> tuple[CleanText, list[int]]:
    """The texts cleaned; those that took too long become empty, and their indices are returned."""
    began_at = time.thread_time()
    cleaned = clean(texts)
    slow = slow_items(began_at, lambda index: clean([texts[index]]), len(texts))
    if slow:
        # emptied, not removed: positions are those of the records
        cleaned = clean(["" if index in slow else text for index, text in enumerate(texts)])
    return cleaned, slow
