"""What a preparation needs of the disks at its peak, and whether there is room.

1. While files are extracted, the disks hold the documents as Parquet; the units of those files that
   are put together at that time, one for each worker; and raw copies of published files, likewise,
   or all of them with --keep-downloads.
2. Then they hold the documents, kept copies and the shards.

What exists already takes no more room, so a preparation that was interrupted can resume.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.command_line import data_root, downloads
from pipeline.base.errors import DataError
from pipeline.base.files import bytes_in
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate
from pipeline.data.preparation.transfers import find_transfers
from pipeline.data.shards.manifest import MANIFEST
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.units import cut_units, expected_units, is_extracted, is_joined

AMPLE = 100
"""Times the bytes of the input: more than any preparation takes, so that nothing is estimated.

Text is at most six times as large as a compressed file, and shards with ten masks as the text.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Bytes that are still to be written."""

    copies: float = 0.0
    """Raw copies of published files, at a time."""
    kept: float = 0.0
    """Copies that stay."""
    documents: float = 0.0
    """Parquet of all files that are extracted."""
    units: float = 0.0
    """Units of the files that are put together at a time."""
    shards: float = 0.0
    signatures: float = 0.0
    """With --keep-signatures, of documents that are not dropped."""

    def describe(self) -> str:
        """The parts that there are, in words."""
        names = {
            "copies of published files": self.copies + self.kept, "documents": self.documents,
            "units that wait": self.units, "shards": self.shards, "signatures": self.signatures,
        }  # fmt: skip
        return ", ".join(f"{name} {size_in_words(size)}" for name, size in names.items() if size)


@dataclass(frozen=True, slots=True)
class Peak:
    """What a disk needs at the peak."""

    place: Path
    """An existing directory on the disk."""
    needed: float
    """Bytes that are still to be written."""
    free: int

    @property
    def fits(self) -> bool:
        """Whether there is room."""
        return self.needed <= self.free


def disk_use(
    estimates: dict[str, CorpusEstimate], sources: list[Source], workers: int, written: float
) -> DiskUse:
    """What a preparation writes.

    sources: as `extracted_so_far` returns them; workers: of all parts; written: bytes of the shards
    that exist.
    """
    waiting = [source for source in sources if is_extracted(source)]
    copies = {True: 0, False: 0}
    for transfer in find_transfers(waiting):
        left = transfer.copied(workers) - transfer.fetched_so_far()
        copies[transfer.keeps_copies] += max(0, left)
    raw: dict[str, int] = {}
    for source in waiting:
        raw[source.corpus] = raw.get(source.corpus, 0) + source.size
    joined = [
        source.size * estimates[source.corpus].extracted / max(1, raw[source.corpus])
        for source in waiting
        if is_joined(source, (expected_units if source.published else cut_units)(source))
    ]
    made = sum(path.stat().st_size for path in (data_root() / "documents").glob(".*.parquet"))
    documents = sum(about.extracted for about in estimates.values())
    shards = sum(about.disk for about in estimates.values())
    return DiskUse(
        copies=copies[False],
        kept=copies[True],
        documents=max(0.0, documents - made),
        units=sum(sorted(joined)[-workers:]),
        shards=max(0.0, shards - written),
    )


def peaks(use: DiskUse, output: Path) -> list[Peak]:
    """The peak of each disk; output: directory of the shards, which need not exist."""
    documents = data_root() / "documents"
    stages = (
        [(downloads(), use.copies + use.kept), (documents, use.documents + use.units)],
        [
            (downloads(), use.kept),
            (documents, use.documents + use.signatures),
            (output, use.shards),
        ],
    )
    places: dict[int, Path] = {}
    most: dict[int, float] = {}
    for stage in stages:
        sums: dict[int, float] = {}
        for path, size in stage:
            home = _existing(path)
            disk = home.stat().st_dev
            places.setdefault(disk, home)
            sums[disk] = sums.get(disk, 0.0) + size
        most |= {disk: max(size, most.get(disk, 0.0)) for disk, size in sums.items()}
    return [Peak(places[disk], size, _free(places[disk])) for disk, size in most.items() if size]


def is_ample(sources: Iterable[Source], output: Path) -> bool:
    """Whether every disk has so much room that no estimate is needed."""
    size = sum(source.size for source in sources)
    homes = {_existing(path) for path in (downloads(), data_root() / "documents", output)}
    return all(_free(home) >= AMPLE * size for home in homes)


def require_fit_on_disks(use: DiskUse, output: Path) -> None:
    """Raise DataError if a disk has too little room."""
    for peak in peaks(use, output):
        if not peak.fits:
            raise DataError(
                f"too little room on the disk of {peak.place}: preparing needs about "
                f"{size_in_words(peak.needed)} at its peak ({use.describe()}), and "
                f"{size_in_words(peak.free)} are free; free some space, name another --output, "
                "set TENFOLD_ROOT to a larger disk, or give fewer --workers or masks "
                "(--set data.duplicates=N)"
            )


def describe_disks(use: DiskUse, output: Path, *, tight: bool = False) -> list[str]:
    """A line for each disk; tight: only for those with too little room."""
    return [
        f"disk: about {size_in_words(peak.needed)} at the peak ({use.describe()}), "
        f"{peak.free / 1e9:,.2f} GB free on the disk of {peak.place}"
        + ("" if peak.fits else ": not enough")
        for peak in peaks(use, output)
        if not (tight and peak.fits)
    ]


def shards_so_far(named: Path | None, corpus: str, recipe: str) -> tuple[Path, float]:
    """Where shards are or will be, and their bytes; those of complete shards are infinite.

    named: --output. The name of the usual directory is known only once all files are extracted, so
    of several of this corpus and recipe the largest counts.
    """
    home = data_root() / "shards"
    places = [named] if named else [*home.glob(f"{corpus}-{recipe}-*")]
    sizes = {
        place: math.inf if (place / MANIFEST).exists() else bytes_in(place) for place in places
    }
    return max(sizes.items(), key=lambda item: item[1], default=(home, 0.0))


def size_in_words(size: float) -> str:
    """Bytes in MB or GB."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.absolute().parents) if one.exists())


def _free(path: Path) -> int:
    return shutil.disk_usage(path).free
