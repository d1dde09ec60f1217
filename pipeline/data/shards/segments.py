"""Finds the segments of rows that hold text of the documents that were taken down.

`documents.parquet` says which rows hold a part of a document, not where in them. The segments of a
row, which `document_starts` separates, follow from how rows are packed:

- Rows of the first pass over the text hold the documents between `first_sequence` and
  `last_sequence` in order, one segment each.
- A random second segment (NSP) belongs to the document that names the row in `other_sequences`.
- A later pass (`data.segments.draws`) reads the same documents in the same order, so the document
  of a first segment follows from the number of tokens before it.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.data.rows.segment_rows import RANDOM_NEXT
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import TAKEN_DOWN

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def taken_tokens(rows: pa.Table, documents: pa.Table, separators: int) -> BoolArray:
    """[tokens] which tokens of a shard, special ones included, are in a segment taken down.

    rows: of the shard; documents: of the same, from `documents_of`; separators: between segments.
    """
    taken = documents[TAKEN_DOWN].to_numpy()
    _, offsets = arrow_files.ragged(rows["input_ids"])
    if not taken.any():
        return np.zeros(offsets[-1], np.bool_)
    starts, marks = arrow_files.ragged(rows["document_starts"])
    segments = _taken_segments(rows, documents, taken, marks, separators)
    begins = starts + np.repeat(offsets[:-1], np.diff(marks))
    return np.repeat(segments, np.diff(begins, append=offsets[-1]))


def _taken_segments(
    rows: pa.Table, documents: pa.Table, taken: BoolArray, marks: IntArray, separators: int
) -> BoolArray:
    """[segments] which are taken.

    taken: [documents]; marks: [rows + 1] the first segment of each row.
    """
    sequences = rows["sequence"].to_numpy()
    first, last = (
        np.searchsorted(sequences, documents[name].to_numpy())
        for name in ("first_sequence", "last_sequence")
    )
    segments = np.zeros(marks[-1], np.bool_)
    # In the first pass: the documents before a row are those that end before it.
    counts = np.where(taken, last - first + 1, 0)
    owners = np.repeat(np.arange(len(taken)), counts)
    # each row of a document, from its first one on
    places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts) + first[owners]
    segments[marks[places] + owners - np.searchsorted(last, places)] = True
    # Elsewhere: the second segment of a row of another document, or any of a later pass.
    others, owners = _elsewhere(documents, taken, sequences)
    if len(others):
        own = _first_owners(rows, first, last, separators)
        segments[marks[others] + (own[others] != owners)] = True
    return segments


def _elsewhere(
    documents: pa.Table, taken: BoolArray, sequences: npt.NDArray[np.uint64]
) -> tuple[IntArray, IntArray]:
    """Rows that hold other parts of the taken documents, and the document of each."""
    named, offsets = arrow_files.ragged(documents["other_sequences"])
    owners = np.repeat(np.arange(len(taken)), np.diff(offsets))
    chosen = taken[owners]
    return np.searchsorted(sequences, named[chosen]), owners[chosen]


def _first_owners(rows: pa.Table, first: IntArray, last: IntArray, separators: int) -> IntArray:
    """[rows] the document of the first segment of each row; all passes give the same tokens.

    first, last: [documents] rows of the first pass.
    """
    lengths = np.diff(arrow_files.ragged(rows["input_ids"])[1])
    second = rows["second_segment"].to_numpy().astype(np.int64)
    borrows = rows["pair_label"].to_numpy() == RANDOM_NEXT
    own = np.where(second > 0, lengths - 2 - separators, lengths - 2)
    own = np.where(borrows, second - 1 - separators, own)  # of the row's own document
    parts = rows["sequence"].to_numpy() >> np.uint64(32)  # rows of one part were packed together
    found = np.empty(len(lengths), np.int64)
    for begin, end in _runs(parts):
        low, high = np.searchsorted(first, (begin, end))
        ends = np.cumsum(own[begin:end])
        texts = ends[last[low:high] - begin]  # [documents] tokens up to their ends
        places = (ends - own[begin:end]) % texts[-1]  # later passes begin the same text again
        found[begin:end] = low + np.searchsorted(texts, places, "right")
    return found


def _runs(values: npt.NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Begin and end of each run of equal values."""
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    return list(itertools.pairwise(edges))
