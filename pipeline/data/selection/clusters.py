"""Clusters of similar documents from their signatures, in bounded memory and in separate steps.

Locality-sensitive hashing (Indyk and Motwani 1998): documents that share a band (eight bytes of
their signatures) are compared in all bytes, and those that agree in enough bytes form a cluster
(union-find). With 32 bands of 8 orders, a pair of Jaccard index 0.8 shares a band with probability
1 - (1 - 0.8^8)^32 = 0.997, a pair of 0.6 with 0.42. At least 192 of 256 bytes agree with
probability 0.98 at index 0.8, 0.5 at 0.75, 0.06 at 0.7 and 0.0006 at 0.65. Exact copies are the
special case of one band that is a hash of all words.

Each step reads files in sequence and writes one file; steps of different words of the signatures
are independent of each other:

1. `write_candidates`: the pairs of documents that share a band.
2. `merge_candidates`: the distinct pairs of all bands, sorted.
3. `write_agreement`: for each pair, in how many bytes of some words it agrees. A word of all
   documents fits in memory, whole signatures do not: so no step reads a file in random order.
4. `write_roots`: the pairs that agree in enough bytes, united.

A pair is a number of 64 bits: the later document, then the earlier one. The root of a cluster is
its first document in the group's order.

Memory in bytes, for one word at a time: step 1 takes 17 per document and 134 MB, step 3 takes 9 and
step 4 takes 4 per document. That is 1.3 GB for 70 M documents (200 GB of text), of which step 2
takes at most 0.9 GB, if all have many copies: 0.3 for 1,100 runs and 0.6 to sort a block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.selection.minhash import ORDERS, Words, equal_parts
from pipeline.kernels.bits import GOLDEN, U, mix

LIKENESS_VERSION = 1
"""Increased when the same signatures give different clusters."""
RANGE_DOCUMENTS = 1 << 21
"""Approximate number of a band's hashes that are sorted at once."""
RUN = 1 << 24
"""Pairs in a sorted run of a file of candidates; the last run of a file is shorter."""
_MOST_COMPARED = 8
"""A member of a bucket is compared with this many of its first members. A text quoted by a million
documents makes a bucket of a million, too many for all pairs. Its copies share other bands."""
_MERGED_DOCUMENTS = 1 << 16
"""Later documents whose pairs are merged at once: 134 MB of pairs if all have many copies."""
_READ = 1 << 15
"""Pairs of a run that are read at once; 70 M documents make at most 1,100 runs."""
_PAIRS = 1 << 20
"""Pairs that are looked at at once."""

Numbers = npt.NDArray[np.uint32]
Pairs = npt.NDArray[np.uint64]
Signed = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Likeness:
    """The condition for two documents to belong to one cluster."""

    words: int
    """Words of 8 bytes in a signature; each is a band."""
    least: int
    """Bytes of two signatures that must agree."""


EXACT = Likeness(words=1, least=8)
NEAR = Likeness(words=ORDERS // 8, least=ORDERS * 3 // 4)


def write_candidates(
    path: Path,
    words: Words,
    signed: Signed,
    band: int,
    range_documents: int = RANGE_DOCUMENTS,
) -> None:
    """Write the pairs of documents that share a band, in sorted runs of `RUN`.

    words: [documents, bands] of the signatures, from `band` on; signed: [documents] False for
    those that take no part.
    """
    ranges = -(-max(len(words), 1) // range_documents)
    room, held = np.empty(RUN + _MOST_COMPARED, np.uint64), 0
    with path.open("wb") as file:
        for column in range(words.shape[1]):
            keys, starts = _by_range(words[:, column], signed, band + column, ranges)
            for start, stop in itertools.pairwise(starts):
                in_range = keys[start:stop]
                in_range.sort()  # by hash, then document: a bucket is a stretch, earliest first
                at = 0
                while at < len(in_range):
                    at, held = _pair_up(in_range, at, room, held)
                    # a document adds up to _MOST_COMPARED pairs after the last check
                    if held >= RUN:
                        room[:RUN].sort()
                        room[:RUN].tofile(file)
                        held -= RUN
                        room[:held] = room[RUN : RUN + held]
        room[:held].sort()
        room[:held].tofile(file)


def merge_candidates(path: Path, candidates: list[Path], documents: int) -> None:
    """Write the distinct pairs of all files of candidates, sorted."""
    runs = [run for one in candidates for run in _runs_in(one)]
    with path.open("wb") as file:
        for first in range(0, documents, _MERGED_DOCUMENTS):
            # + binds before <<: last pair of this range
            last = U((first + _MERGED_DOCUMENTS << 32) - 1)
            found = [pairs for run in runs for pairs in run.take_to(last)]
            if found:
                np.unique(np.concatenate(found)).tofile(file)  # copies share many bands


def write_agreement(path: Path, pairs: Path, words: Words) -> None:
    """Write a byte per pair: in how many bytes of `words` its documents agree, 255 for more.

    words: [documents, words] of the signatures; the file has the order of `pairs`.
    """
    with path.open("wb") as file, pairs.open("rb") as source:
        while len(some := np.fromfile(source, np.uint64, _PAIRS)):
            _count_equal(some, words).tofile(file)


def write_roots(
    path: Path, pairs: Path, agreements: list[Path], least: int, documents: int
) -> None:
    """Write a uint32 per document: the number of the first document of its cluster.

    A document without copies has its own number. agreements: files of `write_agreement`, for all
    words together; least: bytes that must agree.
    """
    forest = np.arange(documents, dtype=np.uint32)
    with ExitStack() as opened:
        source = opened.enter_context(pairs.open("rb"))
        counts = [opened.enter_context(one.open("rb")) for one in agreements]
        while len(some := np.fromfile(source, np.uint64, _PAIRS)):
            agreed = np.zeros(len(some), np.uint16)  # 32 words of 8 equal bytes pass 255
            for count in counts:
                agreed += np.fromfile(count, np.uint8, len(some))
            _unite(forest, some[agreed >= least])
    _flatten(forest)
    forest.tofile(path)


@dataclass(slots=True)
class _Run:
    """A sorted run of pairs in a file, read piece by piece."""

    path: Path
    at: int
    stop: int
    held: Pairs = field(default_factory=lambda: np.empty(0, np.uint64))

    def take_to(self, last: np.uint64) -> Iterator[Pairs]:
        """The next pairs, up to `last`."""
        while len(self.held) or self.at < self.stop:
            if not len(self.held):
                count = min(_READ, self.stop - self.at)
                self.held = np.fromfile(self.path, np.uint64, count, offset=8 * self.at)
                self.at += count
            count = int(np.searchsorted(self.held, last, "right"))
            yield self.held[:count]
            self.held = self.held[count:]
            if len(self.held):  # pairs after `last` wait for the next range
                return


def _runs_in(path: Path) -> list[_Run]:
    pairs = path.stat().st_size // 8
    return [_Run(path, at, min(at + RUN, pairs)) for at in range(0, pairs, RUN)]


@numba.njit(cache=True, nogil=True)
def _by_range(words, signed, band, ranges):  # type: ignore[no-untyped-def]
    """Keys (hash << 32 | document) of signed documents by range, and the start of each range.

    words: uint64 [documents], of a band; signed: bool [documents]. A range is chosen by the lower
    half of the hash, and the key has the upper half. Returns uint64 [signed documents] and int64
    [ranges + 1].
    """
    starts = np.zeros(ranges + 2, np.int64)
    salt = U(band + 1) * GOLDEN
    for document in range(len(words)):
        if signed[document]:
            chosen = (mix(words[document] + salt) & U(0xFFFFFFFF)) * U(ranges) >> U(32)
            # Counted two places on: after the sum, starts[k + 1] is where range k begins. Filling
            # moves it to where range k ends, so that starts[k] is then where range k begins.
            starts[chosen + U(2)] += 1
    starts = np.cumsum(starts)
    keys = np.empty(starts[-1], np.uint64)
    for document in range(len(words)):
        if signed[document]:
            hashed = mix(words[document] + salt)  # again: cheaper than keeping every hash
            chosen = (hashed & U(0xFFFFFFFF)) * U(ranges) >> U(32)
            keys[starts[chosen + U(1)]] = (hashed >> U(32) << U(32)) | U(document)
            starts[chosen + U(1)] += 1
    return keys, starts[:-1]


@numba.njit(cache=True, nogil=True)
def _pair_up(keys, at, room, held):  # type: ignore[no-untyped-def]
    """Append pairs with the same hash to room until it holds a run, or all keys are done.

    keys: uint64 [n], sorted; at: index of the first key not yet paired with earlier ones; room:
    uint64 [a run + _MOST_COMPARED], of which `held` are used. Returns the next `at` and `held`.
    """
    run = len(room) - _MOST_COMPARED
    # the call before may have stopped inside a bucket
    begin = np.searchsorted(keys, keys[at] >> U(32) << U(32))  # start of its bucket
    while at < len(keys) and held < run:
        if keys[at] >> U(32) != keys[begin] >> U(32):
            begin = at
        for earlier in range(begin, min(at, begin + _MOST_COMPARED)):
            room[held] = keys[at] << U(32) | keys[earlier] & U(0xFFFFFFFF)
            held += 1
        at += 1
    return at, held


@numba.njit(cache=True, nogil=True)
def _count_equal(pairs, words):  # type: ignore[no-untyped-def]
    """uint8 [n] equal bytes of the documents of each pair, uint64 [n]; see `write_agreement`."""
    agreed = np.empty(len(pairs), np.uint8)
    for index in range(len(pairs)):
        later, earlier = words[pairs[index] >> U(32)], words[pairs[index] & U(0xFFFFFFFF)]
        agreed[index] = min(equal_parts(later, earlier), 255)
    return agreed


@numba.njit(cache=True, nogil=True)
def _unite(forest, pairs):  # type: ignore[no-untyped-def]
    """Unite the trees of each pair, uint64 [n], in forest, uint32 [documents]."""
    for pair in pairs:
        one, two = _root(forest, pair >> U(32)), _root(forest, pair & U(0xFFFFFFFF))
        forest[max(one, two)] = min(one, two)  # a root is its cluster's first document


@numba.njit(cache=True, nogil=True)
def _root(forest, document):  # type: ignore[no-untyped-def]
    """Root of a document in forest, uint32 [documents]; halves the path."""
    while forest[document] != document:
        forest[document] = forest[forest[document]]
        document = U(forest[document])
    return document


@numba.njit(cache=True, nogil=True)
def _flatten(forest):  # type: ignore[no-untyped-def]
    """Replace each document's parent, which is an earlier document, by its root."""
    for document in range(len(forest)):
        forest[document] = forest[forest[document]]
