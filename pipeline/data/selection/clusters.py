"""Which documents of a group are alike: signatures to clusters, in memory that does not grow.

Locality-sensitive hashing (Indyk and Motwani 1998): documents that share a band, eight bytes of
their signatures, are compared in all bytes, and what agrees in enough of them is one cluster
(union-find). With 32 bands of 8 orders a pair of Jaccard index 0.8 shares one with probability
1 - (1 - 0.8^8)^32 = 0.997, at 0.6 still 0.42; that 192 of 256 bytes agree has at 0.8 probability
0.98, at 0.75 one half, at 0.7 0.06, at 0.65 0.0006. Exact copies are the special case of one band
that is a hash of all words.

On disk and in order: signatures go to one file; every band of every document, as a hash and the
document's number in 8 bytes, to files by hash, each small enough to be sorted in memory. For 100 M
documents (about 300 GB of text): signatures 25.6 GB, bands 25.6 GB, written and read once, a file
of a band 16 MB at most. Only the forest of the union-find grows in memory, by 4 bytes a document,
and it is mapped from a file, so that the kernel may take its pages back.

A cluster's root is its first document in the group's order, whoever made the signatures.
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

from pipeline.data.kernels.bits import GOLDEN, U, mix
from pipeline.data.selection.minhash import ORDERS, Words, equal_parts
from pipeline.errors import DataError

LIKENESS_VERSION = 1
"""Goes up when the same signatures give other clusters."""
FILE_DOCUMENTS = 1 << 21
"""Bands in a file that is sorted in memory, about."""
_MOST_COMPARED = 8
"""First members of a bucket that a further one is compared with: what a million documents quote
makes a bucket of a million, whose pairs nobody can look at. Its copies meet in other bands."""
_BLOCK = 1 << 16
"""Rows that are numbered at once."""
_LOOKS = 16
"""At signatures before their pages are let go: the kernel may map 2 MiB around each."""
_MOST_DOCUMENTS = 1 << 32

Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Likeness:
    """What makes two documents one."""

    words: int
    """Of 8 bytes in a signature; each is a band."""
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
    """A file of a uint32 each: the first document of its cluster; its own number when it is alone.

    chunks: numbers [n] of documents below `count`, in order, and their signatures [n, words]; the
    file has them all, in that order. scratch: an empty directory, for files of 16 bytes a word and
    document.
    """
    if count >= _MOST_DOCUMENTS:
        raise DataError(f"{count:,} documents in a group, at most {_MOST_DOCUMENTS:,}; cut it")
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
    """Write signatures, and bands by hash; returns how many documents have them."""
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
    """Hash << 32 | row, ordered by file, and where each file's begin; first: row of band[0]."""
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
    """Join documents of the same hash whose signatures agree; returns where it stopped, after
    `_LOOKS` at signatures.

    keys: sorted; at: of the first that was not compared with those before it.
    """
    begin = np.searchsorted(keys, keys[at] >> U(32) << U(32))  # of its bucket
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
    while forest[row] != row:
        forest[row] = forest[forest[row]]
        row = np.int64(forest[row])
    return row


@numba.njit(cache=True, nogil=True)
def _number_roots(forest, first, numbers):  # type: ignore[no-untyped-def]
    """Rows from `first` on get the number of their root's document, which earlier rows have."""
    for row in range(first, first + len(numbers)):
        forest[row] = numbers[row - first] if forest[row] == row else forest[forest[row]]
