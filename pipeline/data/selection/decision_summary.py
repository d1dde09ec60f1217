"""A summary of selection decisions: why a document is dropped, and which copy of it is kept.

Memory holds only the dropped documents, as hashes of their ids: nine bytes each.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline.base.errors import DataError

MOST_REASONS = 1 << 8  # a code is one byte


@dataclass(frozen=True, slots=True)
class Pair:
    """A document dropped as a copy, and the one that is kept; as (corpus, id)."""

    dropped: tuple[str, str]
    kept: tuple[str, str]
    reason: str


@dataclass(slots=True)
class DecisionSummary:
    """The decisions of one directory."""

    documents: int
    reasons: list[str]
    """[codes]"""
    hashes: npt.NDArray[np.uint64]
    """[dropped documents] hashes of corpus and id, sorted."""
    codes: npt.NDArray[np.uint8]
    """[dropped documents] index in `reasons`."""
    clusters: Counter[int] = field(default_factory=Counter)
    """Number of clusters by size, from two documents on."""
    pairs: list[Pair] = field(default_factory=list)
    """A deterministic sample of dropped copies."""

    @classmethod
    def read(cls, directory: Path, pairs: int) -> DecisionSummary:
        """Read the decisions of a directory. Raises DataError if it holds none, or other files."""
        paths = sorted(directory.glob("*.parquet"))
        if not paths:
            raise DataError(
                f"{directory} has no decisions; pipeline.prepare with --dedup writes them to "
                "$TENFOLD_ROOT/documents/decisions"
            )
        try:
            return _read(paths, pairs)
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise DataError(
                f"{directory} holds files that are not decisions ({error}); give a directory in "
                "$TENFOLD_ROOT/documents/decisions"
            ) from error

    def why(self, corpus: str, id: str) -> str:
        """The reason to drop a document; empty if it is kept."""
        number = np.uint64(_hash(corpus, id))
        place = int(np.searchsorted(self.hashes, number))
        if place == len(self.hashes) or self.hashes[place] != number:
            return ""
        return self.reasons[int(self.codes[place])]


def _read(paths: list[Path], pairs: int) -> DecisionSummary:
    reasons: dict[str, int] = {}
    hashes, codes = [np.empty(0, np.uint64)], [np.empty(0, np.uint8)]
    sizes: list[npt.NDArray[np.uint32]] = []
    chosen: list[tuple[int, int, tuple[str, str], str]] = []
    number = 0
    for path in paths:
        table = pq.read_table(path)
        corpora, ids = table["corpus"].to_pylist(), table["id"].to_pylist()
        clusters = table["cluster"].to_numpy()
        sizes.append(clusters)
        found, kinds = [], []
        for row, reason in enumerate(table["dropped"].to_pylist()):
            if reason is None:
                continue
            document = (corpora[row], ids[row])
            found.append(_hash(*document))
            kinds.append(reasons.setdefault(reason, len(reasons)))
            # dropped as a copy: every other document is a cluster of its own
            if clusters[row] != number + row:
                _choose(chosen, pairs, (-found[-1], int(clusters[row]), document, reason))
        hashes.append(np.array(found, np.uint64))
        codes.append(np.array(kinds, np.uint8))
        number += len(ids)
    if len(reasons) > MOST_REASONS:
        raise DataError(f"{paths[0].parent} has {len(reasons)} reasons, at most {MOST_REASONS}")
    # sorted, so that `why` can bisect
    order = np.argsort(merged := np.concatenate(hashes))
    of_each = np.bincount(np.concatenate(sizes)) if sizes else np.empty(0, np.int64)
    counted = np.unique(of_each[of_each > 1], return_counts=True)
    return DecisionSummary(
        documents=number,
        reasons=list(reasons),
        hashes=merged[order],
        codes=np.concatenate(codes)[order],
        clusters=Counter(dict(zip(counted[0].tolist(), counted[1].tolist()))),
        pairs=_pairs(paths, chosen),
    )


def _choose(
    chosen: list[tuple[int, int, tuple[str, str], str]],
    most: int,
    one: tuple[int, int, tuple[str, str], str],
) -> None:
    """Add `one` to the heap `chosen`, which keeps the `most` items with the smallest hashes."""
    # hashes are negated, as heapq drops the smallest item: the largest hash leaves
    heapq.heappush(chosen, one)
    if len(chosen) > most:
        heapq.heappop(chosen)


def _pairs(
    paths: list[Path],
    chosen: list[tuple[int, int, tuple[str, str], str]],
) -> list[Pair]:
    """The chosen documents with the kept ones, whose numbers are those of the clusters."""
    wanted = {cluster for _, cluster, _, _ in chosen}
    kept: dict[int, tuple[str, str]] = {}
    first = 0
    for path in paths:
        rows = pq.read_metadata(path).num_rows
        places = sorted(number for number in wanted if first <= number < first + rows)
        if places:
            table = pq.read_table(path, columns=["corpus", "id"]).take(
                [number - first for number in places]
            )
            documents = zip(table["corpus"].to_pylist(), table["id"].to_pylist())
            kept |= dict(zip(places, documents))
        first += rows
    return [
        Pair(document, kept[cluster], reason)
        for _, cluster, document, reason in sorted(chosen, reverse=True)
    ]


def _hash(corpus: str, id: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{corpus}\0{id}".encode())  # NUL is in no name of a file


def newest(directory: Path) -> Path:
    """The newest decisions. Raises DataError if there are none."""
    found = [path for path in directory.glob("[!.]*") if path.is_dir()]  # hidden: not complete
    if not found:
        raise DataError(f"{directory} has no decisions; run pipeline.prepare with --dedup first")
    return max(found, key=lambda path: path.stat().st_mtime_ns)
