"""Clusters of similar documents from their signatures, in bounded memory.

Locality-sensitive hashing (Indyk and Motwani 1998): documents that share a band (eight bytes of
their signatures) are compared in all bytes, and those that agree in enough bytes form a cluster
(union-find). With 32 bands of 8 orders, a pair of Jaccard index 0.8 shares a band with probability
1 - (1 - 0.8^8)^32 = 0.997, a pair of 0.6 with 0.42. At least 192 of 256 bytes agree with
probability 0.98 at index 0.8, 0.5 at 0.75, 0.06 at 0.7 and 0.0006 at 0.65. Exact copies are the
special case of one band that is a hash of all words.

Signatures are written to one file. Every band of every document, a hash and the document's number
in 8 bytes, is written to a file chosen by the hash, each small enough to be sorted in memory. For
100 M documents (about 300 GB of text), signatures and bands take 25.6 GB each, written and read
once, and a band's file takes at most 16 MB. Only the union-find forest grows, by 4 bytes per
document; it is memory-mapped from a file, so the kernel can reclaim its pages.

The root of a cluster is its first document in the group's order.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.data.selection.minhash import ORDERS, Words, equal_parts
from pipeline.kernels.bits import GOLDEN, U, mix

LIKENESS_VERSION = 1
"""Increased when the same signatures give different clusters."""
FILE_DOCUMENTS = 1 << 21
"""Approximate number of bands in a file that is sorted in memory."""
_MOST_COMPARED = 8
"""A member of a bucket is compared with this many of its first members. A text quoted by a million
documents makes a bucket of a million, too many for all pairs. Its copies share other bands."""
_BLOCK = 1 << 16
"""Rows that are numbered at a time."""
_LOOKS = 16
"""Comparisons before the mapped pages are released: the kernel may map 2 MiB around each."""
_MOST_DOCUMENTS = 1 << 32

Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Likeness:
    """When two documents belong to one cluster."""

    words: int
    """Words of 8 bytes in a signature; each is a band."""
    least: int
    """Bytes of two signatures that must agree."""


EXACT = Likeness(words=1, least=8)
NEAR = Likeness(words=ORDERS // 8, least=ORDERS * 3 // 4)


def find_roots(
    chunks: Iterable[tuple[npt.NDArray[np.uint32], Words]],
    count: int,
    likeness: Likeness,
    scratch: Path,
    file_documents: int = FILE_DOCUMENTS,
) -> Path:
    """Write a file with a uint32 per document: the number of the first document of its cluster.

    A document without copies has its own number. chunks: numbers [n] of documents below `count`,
    in order, and their signatures [n, words]; the file has the same order. scratch: an empty
    directory, for files of 16 bytes per word and document. Returns the path. Raises DataError if
    there are too many documents.
    """
    if count >= _MOST_DOCUMENTS:
        raise DataError(f"{count:,} documents in a group, at most {_MOST_DOCUMENTS:,}; split it")
    files = -(-max(count, 1) // file_documents)
    rows = _spread(chunks, likeness, scratch, files)
    path = scratch / "roots"
    with path.open("wb") as file:
        for first in range(0, rows, _BLOCK):
            np.arange(first, min(first + _BLOCK, rows), dtype=np.uint32).tofile(file)
    if rows:
        forest = np.memmap(path, np.uint32, "r+")
        _join_bands(forest, rows, likeness, scratch, files)
        with (scratch / "numbers").open("rb") as names:
            for first in range(0, rows, _BLOCK):
                _number_roots(forest, first, np.fromfile(names, np.uint32, _BLOCK))
    return path


def _spread(
    chunks: Iterable[tuple[Numbers, Words]], likeness: Likeness, scratch: Path, files: int
) -> int:
    """Write signatures, and bands by hash. Returns the number of documents."""
    rows = 0
    with (scratch / "signatures").open("wb") as all, (scratch / "numbers").open("wb") as names:
        for numbers, signatures in chunks:
            numbers.tofile(names)
            signatures.tofile(all)
            for band in range(likeness.words):
                keys, starts = _by_file(signatures[:, band], rows, band, files)
                for file, (start, stop) in enumerate(itertools.pairwise(starts)):
                    if start < stop:
                        with _band_file(scratch, band, file).open("ab") as one:
                            keys[start:stop].tofile(one)
            rows += len(numbers)
    return rows


def _join_bands(forest: Numbers, rows: int, likeness: Likeness, scratch: Path, files: int) -> None:
    with (scratch / "signatures").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    signatures = np.frombuffer(mapped, np.uint64).reshape(rows, likeness.words)
    for band in range(likeness.words):
        for number in range(files):
            path = _band_file(scratch, band, number)
            if path.exists():
                keys = np.fromfile(path, np.uint64)
                keys.sort()
                at = 0
                while at < len(keys):
                    at = _join_alike(keys, at, signatures, forest, likeness.least)
                    mapped.madvise(mmap.MADV_DONTNEED)  # they stay in the kernel's cache
                path.unlink()


def _band_file(scratch: Path, band: int, file: int) -> Path:
    return scratch / f"band-{band:02d}-{file:05d}"


@numba.njit(cache=True, nogil=True)
def _by_file(band, first, number, files):  # type: ignore[no-untyped-def]
    """Keys (hash << 32 | row) ordered by file, and the start of each file's keys.

    band: uint64 [rows]; first: row of band[0]; number: of the band; files: how many.
    Returns uint64 [rows] and int64 [files + 1].
    """
    starts = np.zeros(files + 2, np.int64)
    hashes = np.empty(len(band), np.uint64)
    for row in range(len(band)):
        hashes[row] = mix(band[row] + U(number + 1) * GOLDEN)
        file = (hashes[row] & U(0xFFFFFFFF)) * U(files) >> U(32)
        starts[file + U(2)] += 1
    starts = np.cumsum(starts)
    keys = np.empty(len(band), np.uint64)
    for row in range(len(band)):
        file = (hashes[row] & U(0xFFFFFFFF)) * U(files) >> U(32)
        keys[starts[file + U(1)]] = (hashes[row] >> U(32) << U(32)) | U(first + row)
        starts[file + U(1)] += 1
    return keys, starts[:-1]


@numba.njit(cache=True, nogil=True)
def _join_alike(keys, at, signatures, forest, least):  # type: ignore[no-untyped-def]
    """Join documents with the same hash whose signatures agree, until `_LOOKS` comparisons.

    keys: uint64 [n], sorted; at: index of the first key not yet compared with earlier ones;
    signatures: uint64 [rows, words]; forest: uint32 [rows], changed. Returns the next `at`.
    """
    begin = np.searchsorted(keys, keys[at] >> U(32) << U(32))  # start of its bucket
    looks = 0
    while at < len(keys) and looks < _LOOKS:
        if keys[at] >> U(32) != keys[begin] >> U(32):
            begin = at
        row = np.int64(keys[at] & U(0xFFFFFFFF))
        for earlier in range(begin, min(at, begin + _MOST_COMPARED)):
            other = np.int64(keys[earlier] & U(0xFFFFFFFF))
            one, two = _root(forest, row), _root(forest, other)
            if one != two:
                looks += 1
                if equal_parts(signatures[row], signatures[other]) >= least:
                    forest[max(one, two)] = min(one, two)
        at += 1
    return at


@numba.njit(cache=True, nogil=True)
def _root(forest, row):  # type: ignore[no-untyped-def]
    """Root of a row in forest, uint32 [rows]; halves the path."""
    while forest[row] != row:
        forest[row] = forest[forest[row]]
        row = np.int64(forest[row])
    return row


@numba.njit(cache=True, nogil=True)
def _number_roots(forest, first, numbers):  # type: ignore[no-untyped-def]
    """Replace rows from `first` on by their root's document number; earlier rows already have it.

    forest: uint32 [rows], changed in place; numbers: uint32 [n], of the documents of these rows.
    """
    for row in range(first, first + len(numbers)):
        forest[row] = numbers[row - first] if forest[row] == row else forest[forest[row]]
