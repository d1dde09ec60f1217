"""Statistics of documents before preparation: counts, lengths, languages, sites, samples, copies.

One pass over the files, in bounded memory. Samples are the documents whose ids have the smallest
hashes, so they are the same in every run. Copies are counted on a share of documents chosen by the
hash of their text, which contains either all copies of a text or none.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import xxhash

from pipeline.data.text.documents import NO_RECORDS, holds_html
from pipeline.ingest.documents.json_lines import WITH_FIELDS, stored_record
from pipeline.ingest.documents.parquet import read_rows
from pipeline.ingest.documents.read import extracted_id, read
from pipeline.ingest.documents.records import (
    EXTRACTED,
    BadRecord,
    Dropped,
    Piece,
    Record,
    Source,
)
from pipeline.ingest.extraction.formats import FORMATS, Records, SlowFormat

KEPT = ""
"""The reason of kept documents."""
STEPS = 8
"""Length bins per octave: a quantile is off by at most a twelfth."""
MOST_HASHES = 1 << 22
"""Text hashes kept to count copies: all of up to 4 M documents, a share of more."""
MOST_SITES = 1 << 20
"""Sites counted separately; the rest are counted together."""
OTHER_SITES = "(further sites)"
_EXCERPT = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """A record of a file, kept or dropped."""

    corpus: str
    id: str
    origin: str
    title: str
    text: str
    """Empty if extraction dropped it, which does not store the text."""
    reason: str
    """The reason to drop it, or KEPT."""
    is_bad: bool
    language: str
    site: str
    date: str = ""
    """Time of the revision or fetch, 2016-04-22T10:19:33Z; empty if unknown."""
    fields: dict[str, Any] = field(default_factory=dict)
    """As in `Record`."""
    textless: BadRecord | None = None
    """Likewise."""
    is_field: bool = False
    """True if the text is a field of a record of JSON or a table."""


@dataclass(frozen=True, slots=True, order=True)
class Sample:
    """A document to show."""

    rank: int
    """Hash of its id; the documents with the smallest are shown."""
    id: str
    origin: str
    title: str
    excerpt: str
    characters: int
    reason: str


@dataclass(slots=True)
class DocumentStatistics:
    """Sums over documents; `add` each."""

    samples: int
    """Samples per reason."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Documents per reason, including KEPT."""
    bad: Counter[str] = field(default_factory=Counter)
    corpora: Counter[str] = field(default_factory=Counter)
    """Kept documents."""
    characters: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    """Kept documents by floor(STEPS * log2(characters))."""
    languages: Counter[str] = field(default_factory=Counter)
    """Kept documents of known language."""
    sites: Counter[str] = field(default_factory=Counter)
    dates: tuple[str, str] = ("", "")
    """Earliest and latest; empty if none is known."""
    chosen: dict[str, list[tuple[int, Sample]]] = field(default_factory=dict)
    wanted: set[tuple[str, str]] = field(default_factory=set)
    """(corpus, id) of documents to store in `excerpts`."""
    excerpts: dict[tuple[str, str], str] = field(default_factory=dict)
    with_html: int = 0
    """Kept documents with entities or tags of HTML in the text of a record."""
    hashes: Counter[int] = field(default_factory=Counter)
    hash_bits: int = 0
    """`hashes` has the texts whose hash ends in this many zero bits."""

    def add(self, found: Found) -> None:
        """Count one record."""
        if found.is_bad:
            self.bad[found.reason] += 1
        else:
            self.reasons[found.reason] += 1
        self._choose(found)
        if (found.corpus, found.id) in self.wanted:
            self.excerpts[found.corpus, found.id] = found.text[:_EXCERPT]
        if found.reason != KEPT:
            return
        self.corpora[found.corpus] += 1
        self.characters += len(found.text)
        self.with_html += found.is_field and holds_html(found.text)
        self.lengths[int(STEPS * math.log2(max(1, len(found.text))))] += 1
        if found.language:
            self.languages[found.language] += 1
        if found.site:
            known = found.site in self.sites or len(self.sites) < MOST_SITES
            self.sites[found.site if known else OTHER_SITES] += 1
        if found.date:
            earliest, latest = self.dates
            self.dates = min(earliest or found.date, found.date), max(latest, found.date)
        self._hash(found.text)

    def documents(self) -> int:
        """Number of kept documents."""
        return self.reasons[KEPT]

    def records(self) -> int:
        """Number of records read."""
        return self.reasons.total() + self.bad.total()

    def dropped(self) -> Counter[str]:
        """Dropped documents per reason."""
        return Counter({reason: count for reason, count in self.reasons.items() if reason})

    def samples_of(self, reason: str) -> list[Sample]:
        """Sample documents of a reason, the same in every run."""
        return sorted(sample for _, sample in self.chosen.get(reason, []))

    def quantile(self, share: float) -> int:
        """The length in characters at this quantile, to a twelfth."""
        wanted, before = share * self.documents(), 0
        for step in sorted(self.lengths):
            before += self.lengths[step]
            if before >= wanted:
                return round(2 ** ((step + 0.5) / STEPS))  # the middle of the bin
        return 0

    def octaves(self) -> list[tuple[int, int]]:
        """(fewest characters, documents) for each octave of length."""
        if not self.lengths:
            return []
        counts: Counter[int] = Counter()
        for step, count in self.lengths.items():
            counts[step // STEPS] += count
        return [(1 << octave, counts[octave]) for octave in range(min(counts), max(counts) + 1)]

    def copied_share(self) -> float:
        """The share of documents whose exact text occurs in an earlier document."""
        total = self.hashes.total()
        return (total - len(self.hashes)) / total if total else 0.0

    def _choose(self, found: Found) -> None:
        rank = xxhash.xxh3_64_intdigest(f"{found.corpus} {found.id}".encode())
        chosen = self.chosen.setdefault(found.reason, [])
        if len(chosen) == self.samples and (not chosen or rank >= -chosen[0][0]):
            return
        sample = Sample(
            rank, found.id, found.origin, found.title, found.text[:_EXCERPT], len(found.text),
            found.reason,
        )  # fmt: skip
        if len(chosen) < self.samples:
            # negated: the heap's first item is the largest rank, which leaves next
            heapq.heappush(chosen, (-rank, sample))
        else:
            heapq.heapreplace(chosen, (-rank, sample))

    def _hash(self, text: str) -> None:
        # texts as they were read can hold lone surrogates, which cleaning replaces
        number = xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
        if number & ((1 << self.hash_bits) - 1):
            return
        self.hashes[number] += 1
        while len(self.hashes) > MOST_HASHES:
            self.hash_bits += 1
            mask = (1 << self.hash_bits) - 1
            self.hashes = Counter({n: count for n, count in self.hashes.items() if not n & mask})


def find(piece: Piece) -> Iterator[Found]:
    """Yield every record of a piece of any file, as `stream` does."""
    source, format = piece.source, FORMATS.get(piece.source.format)
    if source.format == EXTRACTED:
        yield from _find_extracted(piece)
        return
    if isinstance(format, SlowFormat):
        yield from _find_extracts(source, format.begin(source))
        return
    for record in read(piece):
        if isinstance(record, Dropped):
            yield Found(source.corpus, record.id, source.name, "", "", record.reason, False, "", "")
        else:
            yield _found(source, record)


def _found(source: Source, record: Record | BadRecord) -> Found:
    if isinstance(record, BadRecord):
        return _bad(source, record, record.where)
    return Found(
        source.corpus, record.id, record.origin, "", record.text, KEPT, False, "",
        _site(record.origin), fields=record.fields or {}, textless=record.textless,
        is_field=source.raw_format not in NO_RECORDS,
    )  # fmt: skip


def _bad(source: Source, record: BadRecord, id: str) -> Found:
    # what is known of it is shown where others have their title
    return Found(source.corpus, id, source.name, record.about, "", record.reason, True, "", "")


def _find_extracts(source: Source, records: Records) -> Iterator[Found]:
    """The documents of a slow file, with all that is found in it."""
    for row, record in enumerate(records):
        id = extracted_id(source.name, row, None)
        if isinstance(record, BadRecord):
            yield _bad(source, record, id)
        elif record.noted == WITH_FIELDS:
            yield _found(source, stored_record(source, record.text, id))
        else:
            text = "" if record.dropped else record.text
            yield Found(
                source.corpus, id, record.url or source.name, record.title, text, record.dropped,
                False, record.language, record.domain or _site(record.url), record.revised,
            )  # fmt: skip


def _find_extracted(piece: Piece) -> Iterator[Found]:
    """Yield records with the title, language, site and date from extraction."""
    source = piece.source
    columns = (
        "at",
        "id",
        "url",
        "title",
        "dropped",
        "bad",
        "language",
        "domain",
        "revised",
        "file",
        "noted",
    )
    groups = range(piece.start, piece.stop)
    for row, text, (at, *others) in read_rows(source.path, groups, ("text",), columns):
        where, url, title, dropped, bad, language, domain, date, file, noted = (
            value or "" for value in others
        )
        file = file or source.name
        id = file + where if bad and at is not None else extracted_id(file, row, at)
        if noted == WITH_FIELDS:
            yield _found(source, stored_record(replace(source, name=file), text, id))
            continue
        title = noted if bad else title
        yield Found(
            source.corpus, id, url or file, title, text or "", bad or dropped, bool(bad), language,
            domain or _site(url), date,
        )  # fmt: skip


def _site(origin: str) -> str:
    """Host of a URL; empty if `origin` is not a URL."""
    if "://" not in origin:
        return ""
    try:
        return (urlsplit(origin).hostname or "").removeprefix("www.")
    except ValueError:  # brackets around no address
        return ""
