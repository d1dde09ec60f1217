"""Documents as token ids -> rows of one or two segments of one document, or of two documents.

    segment_pair    A and B are runs of sentences that fill a row together: BERT's input (Devlin et
                    al. 2019), ALBERT's and ELECTRA's; SEGMENT-PAIR of Liu et al. 2019, sec. 4.2
    sentence_pair   A and B are one sentence each: SENTENCE-PAIR of the same section
    single_segment  a run of sentences, without B: SpanBERT's input (Joshi et al. 2020, sec. 3.3)

Row by row, from where the row before ended in a document:

1. Chunk. Whole sentences of the document until a target is reached, as many as fit. The target is
   the room of a row, and with probability `short_share` any shorter one, from two tokens on, each
   as likely. A sentence with more tokens than a row has room for is cut as in `sequences`. In
   sentence_pair a chunk is two sentences, each cut where it has more than half of the room.
2. Two segments. Where one sentence fits and the next one does not, as many of its words join the
   chunk as do fit, if that is a quarter of the room. A chunk of one sentence stays one segment, as
   does a share `single_share` of the others. The rest is parted between two sentences: any two of
   them alike (BERT, ALBERT), or, when there is no label, near half of the target (ELECTRA: the
   sentence that reaches it goes to A or to B with equal chance, so that B may be empty).
3. Label `next` (NSP): with probability 1/2, B is replaced. A random sentence of the other
   documents, each alike, begins it, and the sentences behind it follow until B is as long as was
   wanted: up to the target, or in the last chunk of a document about as long as the B that it
   stands for; it may end with its document before that. What it replaced is the next row's. Label
   `order` (SOP): rows are stored in order, see `masking` for the coin.

Labels are fair coins, tossed where both sides are possible: a row of one segment has none (-1), and
no pair has one where there is no other document. Other documents are those of the same split, of
the same part of one corpus (see `splits`). No token is dropped: A, and B where it is not random,
are the documents, in order, once.

What google-research's BERT, ALBERT and ELECTRA do otherwise, all read: BERT and ALBERT draw one
target a document, so that more than a tenth of the rows is short. All cut pairs that are too long,
so tokens are lost. BERT calls a chunk of one sentence a random pair every time, ALBERT a swapped
one and takes its B from elsewhere, so that labels do not balance and SOP data hold other documents;
BERT may draw the same document, and draws documents alike, however short. SpanBERT's code never
reads its probability of short rows, and drops sentences that are longer than a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.kernels.addresses import part
from pipeline.data.kernels.bits import GOLDEN, U, mix
from pipeline.data.rows.mask_positions import scale
from pipeline.data.rows.sentence_rows import LOOK_BACK, Frame, Rows, cut_sentence
from pipeline.data.tokenizers.token_ids import Tokens

PAIRS_VERSION = 1
NO_LABEL, NEXT, ORDER = range(3)
"""What the order of two segments teaches: nothing, next sentence, sentence order."""
IN_ORDER, RANDOM_NEXT, UNLABELLED = 0, 1, -1
"""The values of a row's pair label."""
_HALF = 1 << 31


class SegmentLaw(NamedTuple):
    """What `plan` goes by, for compiled code."""

    sentences: bool
    """Pairs of sentences, not of runs of them."""
    room: int
    """Most text tokens of a row."""
    label: int
    """NO_LABEL, NEXT or ORDER."""
    short: int
    """A uniform 32-bit draw below this makes a short target, ..."""
    single: int
    """... and another one below this a row of one segment."""


def share_of_draws(share: float) -> int:
    """The 32-bit draws that a probability stands for, as `SegmentLaw` has it."""
    return round(share * 2**32)


def pack_pairs(
    tokens: Tokens,
    word_starts: npt.NDArray[np.bool_],
    frame: Frame,
    law: SegmentLaw,
    key: np.uint64,
) -> Rows:
    """Rows of `tokens`; word_starts: [vocabulary] ids that begin a word; key: of the draws."""
    spans, labels, first_row = _plan(tokens, word_starts, law, key)
    paired = spans[:, 3] > spans[:, 2]
    sizes = spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2] + 2 + frame.separators * paired
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    ids = np.empty(offsets[-1], tokens.ids.dtype)
    _write(tokens.ids, spans, offsets, frame.bos, frame.eos, frame.separators, ids)
    second = np.where(paired, spans[:, 1] - spans[:, 0] + 1 + frame.separators, 0)
    begins = np.stack([np.zeros_like(second), second], 1).astype(np.uint16)
    borrowed = np.flatnonzero(labels == RANDOM_NEXT)
    lenders = np.searchsorted(tokens.document_offsets, spans[borrowed, 2], side="right") - 1
    begun = np.stack([np.ones(len(labels), np.bool_), labels == RANDOM_NEXT], 1)
    return Rows(
        ids=ids,
        offsets=offsets,
        document_starts=begins[begun],
        document_offsets=np.concatenate([[0], np.cumsum(begun.sum(1))]).astype(np.int32),
        first_row=first_row,
        last_row=np.append(first_row[1:], len(labels)) - 1,
        elsewhere=np.stack([lenders, borrowed], 1),
        second_segment=second.astype(np.uint16),
        pair_label=labels,
    )


def _plan(
    tokens: Tokens, word_starts: npt.NDArray[np.bool_], law: SegmentLaw, key: np.uint64
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """[rows, 4] where A and B begin and end in the ids, [rows] labels, [documents] first rows."""
    piece = law.room // 2 if law.sentences else law.room
    most = len(tokens.sentence_starts) + len(tokens.ids) // max(1, piece - LOOK_BACK) + 1
    spans = np.empty((most, 4), np.int64)
    labels = np.empty(most, np.int8)
    first_row = np.empty(len(tokens.document_offsets) - 1, np.int64)
    boundaries = np.append(tokens.sentence_starts, len(tokens.ids))
    documents = np.searchsorted(boundaries, tokens.document_offsets)
    stream = np.array([key], np.uint64)
    plan = _plan_sentences if law.sentences else _plan_segments
    rows = plan(
        tokens.ids, boundaries, documents, word_starts, law, stream, spans, labels, first_row
    )
    return spans[:rows], labels[:rows], first_row


@numba.njit(cache=True, nogil=True)
def _draw(stream):  # type: ignore[no-untyped-def]
    """A uniform 32-bit draw."""
    stream[0] += GOLDEN
    return mix(stream[0]) >> np.uint64(32)


@numba.njit(cache=True, nogil=True)
def _below(stream, limit):  # type: ignore[no-untyped-def]
    """A uniform whole number below `limit`."""
    return np.int64(scale(_draw(stream), limit))


@numba.njit(cache=True, nogil=True)
def _part(ids, begin, end, room, word_starts):  # type: ignore[no-untyped-def]
    """The end of a sentence, or of the part of it that `room` tokens hold."""
    place = cut_sentence(ids, begin, end, room, word_starts)
    return place if place > begin else begin + room


@numba.njit(cache=True, nogil=True)
def _other_sentence(stream, boundaries, documents, document):  # type: ignore[no-untyped-def]
    """A random sentence of another document, as a boundary."""
    first, last = documents[document], documents[document + 1]
    sentence = _below(stream, len(boundaries) - 1 - (last - first))
    if sentence >= first:
        sentence += last - first
    return sentence


@numba.njit(cache=True, nogil=True)
def _plan_segments(  # type: ignore[no-untyped-def]
    ids, boundaries, documents, word_starts, law, stream, spans, labels, first_row
):
    """See `_plan`; boundaries: of sentences; documents: theirs, as indices of `boundaries`."""
    row = 0
    for document in range(len(documents) - 1):
        first_row[document] = row
        after = documents[document] + 1  # the first boundary behind `place`
        place = boundaries[documents[document]]
        stop = boundaries[documents[document + 1]]
        alone = documents[document + 1] - documents[document] == len(boundaries) - 1
        while place < stop:
            target = law.room
            if _draw(stream) < law.short:
                target = 2 + _below(stream, law.room - 1)
            head, end = after, place
            while end < stop and (end == place or end - place < target):
                if boundaries[after] - place > law.room:
                    break
                end = boundaries[after]
                after += 1
            if end == place:
                end = _part(ids, place, boundaries[after], law.room, word_starts)
            middle, label, joined = end, UNLABELLED, end
            if after - head == 1 and end < stop and end - place < target:
                most = law.room - (end - place)
                joined = cut_sentence(ids, end, boundaries[after], most, word_starts)
                joined = joined if joined - end >= law.room // 4 else end
            if (after - head > 1 or joined > end) and _draw(stream) >= law.single:
                end = joined
                if law.label == NO_LABEL:
                    middle = _near_half(stream, boundaries, head, place, end, target)
                else:
                    middle = boundaries[head + _below(stream, max(1, after - head - 1))]
                    label = UNLABELLED if law.label == NEXT and alone else IN_ORDER
            spans[row, 0], spans[row, 1], spans[row, 2], spans[row, 3] = place, middle, middle, end
            if law.label == NEXT and label == IN_ORDER and _draw(stream) < _HALF:
                label = RANDOM_NEXT
                begin = _other_sentence(stream, boundaries, documents, document)
                close = documents[np.searchsorted(documents, begin, side="right")]
                spans[row, 2] = boundaries[begin]
                spans[row, 3] = _fill(
                    ids, boundaries, begin, close, law.room - (middle - place),
                    end - middle if end == stop else target - (middle - place), end == stop,
                    word_starts,
                )  # fmt: skip
                while boundaries[after - 1] > middle:  # put back what was replaced
                    after -= 1
                end = middle
            labels[row] = label
            place = end
            row += 1
    return row


@numba.njit(cache=True, nogil=True)
def _near_half(stream, boundaries, head, place, end, target):  # type: ignore[no-untyped-def]
    """Where A ends, ELECTRA's way; head: the boundary behind the first sentence."""
    half = target // 2
    while boundaries[head] < end and boundaries[head + 1] - place < half:
        head += 1
    if boundaries[head] < end and boundaries[head] - place < half and _draw(stream) < _HALF:
        head += 1
    return min(end, boundaries[head])


@numba.njit(cache=True, nogil=True)
def _fill(ids, boundaries, sentence, close, room, wanted, nearest, word_starts):  # type: ignore[no-untyped-def]
    """Where a random B ends that begins with `sentence`, in a document that ends at `close`.

    room: most tokens; wanted: reach so many, or with `nearest` come as near as sentences allow.
    """
    begin = boundaries[sentence]
    end = begin
    while sentence < close and boundaries[sentence + 1] - begin <= room:
        sentence += 1
        have, more = end - begin, boundaries[sentence] - begin
        if have > 0 and (have >= wanted or (nearest and more - wanted > wanted - have)):
            break
        end = boundaries[sentence]
    if end == begin:
        end = _part(ids, begin, boundaries[sentence + 1], room, word_starts)
    return end


@numba.njit(cache=True, nogil=True)
def _plan_sentences(  # type: ignore[no-untyped-def]
    ids, boundaries, documents, word_starts, law, stream, spans, labels, first_row
):
    """See `_plan_segments`."""
    row = 0
    half = law.room // 2
    for document in range(len(documents) - 1):
        first_row[document] = row
        after = documents[document] + 1
        place = boundaries[documents[document]]
        stop = boundaries[documents[document + 1]]
        alone = documents[document + 1] - documents[document] == len(boundaries) - 1
        while place < stop:
            middle = _part(ids, place, boundaries[after], half, word_starts)
            if middle == boundaries[after]:
                after += 1
            begin = end = middle
            label = UNLABELLED
            if middle < stop:
                if law.label == NEXT and not alone and _draw(stream) < _HALF:
                    label = RANDOM_NEXT
                    sentence = _other_sentence(stream, boundaries, documents, document)
                    begin = boundaries[sentence]
                    end = _part(ids, begin, boundaries[sentence + 1], half, word_starts)
                else:
                    if law.label == ORDER or (law.label == NEXT and not alone):
                        label = IN_ORDER
                    end = _part(ids, middle, boundaries[after], half, word_starts)
                    if end == boundaries[after]:
                        after += 1
            spans[row, 0], spans[row, 1], spans[row, 2], spans[row, 3] = place, middle, begin, end
            labels[row] = label
            place = middle if label == RANDOM_NEXT else end
            row += 1
    return row


@numba.njit(cache=True, nogil=True)
def _write(source, spans, offsets, bos, eos, separators, ids):  # type: ignore[no-untyped-def]
    """Fill `ids` with the rows that `spans` plans."""
    for row in range(len(spans)):
        write = offsets[row]
        ids[write] = bos
        write += 1
        for segment in range(2):
            begin, end = spans[row, 2 * segment], spans[row, 2 * segment + 1]
            if segment == 1 and begin < end:
                for _ in range(separators):
                    ids[write] = eos
                    write += 1
            found, room = part(source, begin, end), part(ids, write, write + end - begin)
            for place in range(U(end - begin)):
                room[place] = found[place]
            write += end - begin
        ids[write] = eos
