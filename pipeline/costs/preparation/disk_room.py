"""Room that preparing, or training a tokenizer, needs on the disks at its peak, and a check of it.

1. While files are extracted, the disks hold the documents as Parquet; those of tars and crawls,
   which are written twice, for each worker; and raw copies of published files, likewise.
2. While a tokenizer is trained, they hold the documents and the sample of text.
3. Then they hold the documents, what selects documents, and the shards, of which each worker has
   one at a time twice: assembled, and in pieces. Pairs of similar documents are not counted: 300
   bytes each, while they are joined.

What exists already takes no more room, so a preparation that was interrupted can resume.
"""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.command_line import data_root, downloads
from pipeline.base.errors import DataError
from pipeline.base.files import size_of
from pipeline.config.data_settings import DataSettings
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate
from pipeline.data.preparation.transfers import find_transfers
from pipeline.data.selection.select import Selection
from pipeline.data.shards.manifest import MANIFEST
from pipeline.data.shards.shard_assembly import SHARD_BYTES
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.execution.threads import on_threads
from pipeline.ingest.corpora.groups import most_text
from pipeline.ingest.documents.records import Source
from pipeline.ingest.extraction.formats import is_extracted, is_finished

AMPLE = 12
"""Times the most text that the input may hold: more than any preparation takes, so that nothing is
estimated. Shards with ten masks are as large as the text.
"""
_USUAL_MASKS = 10
_SELECTED_BYTES = 10
"""Bytes of a document without its signature: id, reason and cluster, packed, in both files."""
_FILES_BYTES = 4000
"""Bytes of a split's survey and decisions, without rows or columns of signatures."""
_PREPARING = "preparing", "fewer --workers or masks (--set data.duplicates=N)"
_TRAINING = "training a tokenizer", "fewer --sample-bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Bytes that are still to be written."""

    copies: float = 0.0
    """Raw copies of published files, at a time."""
    documents: float = 0.0
    """Parquet of all files that are extracted."""
    waiting: float = 0.0
    """Documents that are written twice, at a time: those of crawls and tars."""
    sample: float = 0.0
    """Text that a tokenizer is trained on."""
    selection: float = 0.0
    """Surveys and decisions, which stay."""
    shards: float = 0.0
    pieces: float = 0.0
    """Pieces of the shards that are assembled at a time."""
    tokenizer: Path | None = None
    """Next to it is the sample; None: the tokenizers of `prepare`."""

    def describe(self) -> str:
        """The parts that there are, in words."""
        names = {
            "copies of published files": self.copies, "documents": self.documents,
            "documents that wait": self.waiting, "a sample for the tokenizer": self.sample,
            "what selects documents": self.selection, "shards": self.shards,
            "pieces of shards": self.pieces,
        }  # fmt: skip
        return ", ".join(f"{name} {size_in_words(size)}" for name, size in names.items() if size)


@dataclass(frozen=True, slots=True)
class Peak:
    """Room that a disk needs at the peak."""

    place: Path
    """An existing directory on the disk."""
    needed: float
    """Bytes that are still to be written."""
    free: int

    @property
    def fits(self) -> bool:
        """True if there is room."""
        return self.needed <= self.free


def disk_use(
    estimates: dict[str, CorpusEstimate],
    sources: list[Source],
    workers: int,
    written: float,
    sample_bytes: int = 0,
) -> DiskUse:
    """Bytes that a preparation without selection writes.

    sources: as `extracted_so_far` returns them; workers: of all parts; written: bytes of the shards
    that exist; sample_bytes: of text to train a tokenizer on.
    """
    waiting = [source for source in sources if is_extracted(source)]
    copies = sum(
        max(0, transfer.copied(workers) - transfer.fetched_so_far())
        for transfer in find_transfers(waiting)
    )
    raw: dict[str, int] = {}
    for source in waiting:
        raw[source.corpus] = raw.get(source.corpus, 0) + source.size
    finished = [
        source.size * estimates[source.corpus].extracted / max(1, raw[source.corpus])
        for source in waiting
        if is_finished(source)
    ]
    documents = sum(about.extracted for about in estimates.values())
    shards = sum(about.disk for about in estimates.values())
    text = sum(about.text for about in estimates.values())
    packed = sum(about.packed for about in estimates.values())
    pieces = shards * min(1.0, workers * SHARD_BYTES / max(1.0, text))
    return DiskUse(
        copies=copies,
        documents=documents,
        waiting=sum(sorted(finished)[-workers:]),  # the largest, if they are written at one time
        sample=packed * min(1.0, sample_bytes / max(1.0, text)),
        shards=max(0.0, shards - written),
        pieces=min(pieces, max(0.0, shards + pieces - written)),
    )


def selection_bytes(selection: Selection, estimates: dict[str, CorpusEstimate]) -> float:
    """Bytes of surveys and decisions that are still to be written."""
    if not selection.mark or selection.directory.exists():
        return 0.0
    words = selection.rules.likeness.words if selection.rules.likeness else 0
    documents = sum(about.documents for about in estimates.values())
    splits = sum(math.ceil(about.text / SPLIT_BYTES) for about in estimates.values())
    all_of_it = documents * (_SELECTED_BYTES + 8 * words) + splits * (_FILES_BYTES + 300 * words)
    made = sum(max(0, size_of(survey.target)) for survey in selection.surveys)
    return max(0.0, all_of_it - made)


def peaks(use: DiskUse, output: Path) -> list[Peak]:
    """The peak of each disk; output: directory of the shards, which need not exist."""
    documents = data_root() / "documents"
    tokenizer = use.tokenizer or data_root() / "tokenizers"
    stages = (
        [(downloads(), use.copies), (documents, use.documents + use.waiting)],  # 1.
        [(documents, use.documents), (tokenizer, use.sample)],  # 2.
        [
            (documents, use.documents + use.selection),
            (output, use.shards + use.pieces),  # 3.
        ],
    )
    places: dict[int, Path] = {}
    most: dict[int, float] = {}
    for stage in stages:
        sums: dict[int, float] = {}
        for path, size in stage:
            home = _existing(path)
            disk = home.stat().st_dev  # several of the paths may share a disk
            places.setdefault(disk, home)
            sums[disk] = sums.get(disk, 0.0) + size
        most |= {disk: max(size, most.get(disk, 0.0)) for disk, size in sums.items()}
    return [Peak(places[disk], size, _free(places[disk])) for disk, size in most.items() if size]


def is_ample(sources: list[Source], output: Path, data: DataSettings | None = None) -> bool:
    """True if every disk has so much room that no estimate is needed; data: settings of the rows,
    if some are to be made."""
    size = float(sum(most_text(sources).values()))
    if data:
        # AMPLE allows for ten masks and one draw.
        size *= data.segments.draws * max(1, data.duplicates / _USUAL_MASKS)
    homes = {_existing(path) for path in (downloads(), data_root() / "documents", output)}
    return all(_free(home) >= AMPLE * size for home in homes)


def require_fit_on_disks(use: DiskUse, output: Path) -> None:
    """Raise DataError if a disk has too little room."""
    for peak in peaks(use, output):
        if not peak.fits:
            doing, advice = _TRAINING if use.tokenizer else _PREPARING
            raise DataError(
                f"too little room on the disk of {peak.place}: {doing} needs about "
                f"{size_in_words(peak.needed)} at its peak ({use.describe()}), and "
                f"{size_in_words(peak.free)} are free; free some space, name another --output, "
                f"set TENFOLD_ROOT to a larger disk, or give {advice}"
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
    """Directory of the shards, now or later, and their bytes; complete ones count as infinite.

    named: --output. The name of the usual directory is known only once all files are extracted, so
    of several of this corpus and recipe the largest counts.
    """
    home = data_root() / "shards"
    places = [named] if named else [*home.glob(f"{corpus}-{recipe}-*")]
    sizes = {
        place: math.inf if (place / MANIFEST).exists() else _bytes_in(place) for place in places
    }
    return max(sizes.items(), key=lambda item: item[1], default=(home, 0.0))


def _bytes_in(folder: Path) -> float:
    """As `bytes_in`, on threads: finished parts are a hundred thousand files."""
    paths = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(max(0, size) for size in on_threads(size_of, paths))


def size_in_words(size: float) -> str:
    """Bytes in MB or GB."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.absolute().parents) if one.exists())


def _free(path: Path) -> int:
    return shutil.disk_usage(path).free
