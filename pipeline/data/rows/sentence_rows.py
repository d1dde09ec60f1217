"""Documents as token ids -> rows of full sentences, at most `sequence_length` tokens each.

RoBERTa's FULL-SENTENCES (Liu et al. 2019, sec. 4.2): "Each input is packed with full sentences
sampled contiguously from one or more documents, such that the total length is at most 512 tokens.
Inputs may cross document boundaries. When we reach the end of one document, we begin sampling
sentences from the next document and add an extra separator token between documents." DOC-SENTENCES
rows do not cross documents: the last row of every document may be short.

A row is `<s> text </s>` with one more `</s>` between two documents. No token is dropped: the last
row of a split may be short, and a sentence longer than a row is split at the last word start that
fits (at any token if none of the last 32 starts a word). `segment_rows` makes rows of segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.tokenizers.token_ids import Ids, Tokens

PACKING_VERSION = 1
LOOK_BACK = 32
"""Tokens searched for a word start where a long sentence is split."""


class Frame(NamedTuple):
    """The special tokens of a row."""

    bos: int
    eos: int
    separators: int
    """Number of eos between two segments."""


class _Output(NamedTuple):
    """The arrays of `Rows` that `_pack` fills, with room for as many rows as there may be."""

    ids: Ids
    offsets: npt.NDArray[np.int64]
    starts: npt.NDArray[np.uint16]
    start_offsets: npt.NDArray[np.int32]
    first_row: npt.NDArray[np.int64]
    last_row: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Packed sequences in order."""

    ids: Ids
    """Concatenated tokens of all rows, special tokens included."""
    offsets: npt.NDArray[np.int64]
    """[rows + 1] positions in `ids`."""
    document_starts: npt.NDArray[np.uint16]
    """Positions in each row where a document, or the part of it in the row, starts; 0 first."""
    document_offsets: npt.NDArray[np.int32]
    """[rows + 1] positions in `document_starts`."""
    first_row: npt.NDArray[np.int64]
    """[documents] the row in which each document starts."""
    last_row: npt.NDArray[np.int64]
    """[documents] the row in which it ends; all rows in between hold parts of it."""
    elsewhere: npt.NDArray[np.int64]
    """[n, 2] document and row of its other parts: random second segments, and later draws."""
    second_segment: npt.NDArray[np.uint16]
    """[rows] first position of segment B, after the separators; 0 if there is one segment."""
    pair_label: npt.NDArray[np.int8]
    """[rows] 0 in order, 1 random next, -1 none."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def pack_sentences(
    tokens: Tokens,
    word_starts: npt.NDArray[np.bool_],
    sequence_length: int,
    frame: Frame,
    *,
    across: bool,
) -> Rows:
    """FULL-SENTENCES rows of `tokens`, or DOC-SENTENCES if not `across` documents.

    word_starts: [vocabulary] ids that start a word.
    """
    count = len(tokens.document_offsets) - 1
    room = sequence_length - 2
    most_rows = len(tokens.sentence_starts) + len(tokens.ids) // max(1, room - LOOK_BACK) + 1
    out = _Output(
        # two special tokens per row, a separator per document
        ids=np.empty(len(tokens.ids) + 2 * most_rows + count, tokens.ids.dtype),
        offsets=np.zeros(most_rows + 1, np.int64),
        starts=np.empty(most_rows + count, np.uint16),
        start_offsets=np.zeros(most_rows + 1, np.int32),
        first_row=np.empty(count, np.int64),
        last_row=np.empty(count, np.int64),
    )
    documents = (tokens.ids, tokens.document_offsets, tokens.sentence_starts)
    rows = _pack(documents, word_starts, room, frame, across, out)
    return Rows(
        # views: the pages after them were never touched, so they take no memory
        out.ids[: out.offsets[rows]],
        out.offsets[: rows + 1],
        out.starts[: out.start_offsets[rows]],
        out.start_offsets[: rows + 1],
        out.first_row,
        out.last_row,
        np.empty((0, 2), np.int64),
        np.zeros(rows, np.uint16),
        np.full(rows, -1, np.int8),
    )


@numba.njit(cache=True, nogil=True)
def cut_sentence(ids, start, end, room, word_starts):  # type: ignore[no-untyped-def]
    """Place to split ids[start:end] so that the first part fits `room` tokens; start if nowhere.

    ids: [tokens]; word_starts: bool [vocabulary].
    """
    if end - start <= room:
        return end
    # backwards from the room's end, so that the row is filled as far as possible
    for place in range(start + room, max(start, start + room - LOOK_BACK), -1):
        if word_starts[ids[place]]:
            return place
    return start


@numba.njit(cache=True, nogil=True)
def _pack(documents, word_starts, room, frame, across, out):  # type: ignore[no-untyped-def]
    """Pack greedily into the arrays of `out`, an `_Output`. Returns the number of rows.

    documents: ids of all documents, document_offsets [documents + 1], sentence_starts [sentences].
    """
    source, document_offsets, sentence_starts = documents
    ids, offsets, starts, start_offsets, first_row, last_row = out
    bos, eos = frame.bos, frame.eos
    row = 0
    used = 0  # tokens of the open row after <s>
    write = 0
    marks = 0
    sentence = 0
    for document in range(len(document_offsets) - 1):
        begin = document_offsets[document]
        stop = document_offsets[document + 1]
        place = begin
        while place < stop:
            # starts are sorted and include each document's first token, so one pass finds all ends
            while sentence < len(sentence_starts) and sentence_starts[sentence] <= place:
                sentence += 1
            end = sentence_starts[sentence] if sentence < len(sentence_starts) else stop
            end = min(end, stop)
            # Parts of a sentence that is too long for any row fill the open row first.
            while place < end:
                separator = 1 if place == begin and used > 0 else 0
                left = room - used - separator
                cut = end
                if end - place > room:
                    cut = cut_sentence(source, place, end, left, word_starts) if left > 0 else place
                    # no word start within reach of an empty row: split at any token
                    if cut == place and used == 0:
                        cut = place + room
                # close the open row; the same sentence is tried again in the next one
                if cut == place or cut - place > left or (separator and not across):
                    ids[write] = eos
                    write += 1
                    row += 1
                    offsets[row] = write
                    start_offsets[row] = marks
                    used = 0
                    continue
                if separator:
                    ids[write] = eos
                    write += 1
                    used += 1
                if used == 0:
                    ids[write] = bos
                    write += 1
                    starts[marks] = 0
                    marks += 1
                elif place == begin:
                    starts[marks] = used + 1
                    marks += 1
                if place == begin:
                    first_row[document] = row
                ids[write : write + cut - place] = source[place:cut]
                write += cut - place
                used += cut - place
                place = cut
        last_row[document] = row
    if used > 0:
        ids[write] = eos
        write += 1
        row += 1
        offsets[row] = write
        start_offsets[row] = marks
    return row
