"""Documents as token ids -> rows of one or two segments, of one document or of two.

    segment_pair    A and B are runs of sentences that fill a row together: BERT's input (Devlin et
                    al. 2019), ALBERT's and ELECTRA's; SEGMENT-PAIR of Liu et al. 2019, sec. 4.2
    sentence_pair   A and B are one sentence each: SENTENCE-PAIR of the same section
    single_segment  a run of sentences, without B: SpanBERT's input (Joshi et al. 2020, sec. 3.3)

Each row starts where the previous one ended in the document:

1. Chunk. Take whole sentences of the document until a target length is reached, as many as fit. The
   target is the room of a row, or with probability `short_share` a uniform shorter length of at
   least two tokens. A sentence longer than a row is split as in `sentence_rows`. In sentence_pair
   a chunk is two sentences, each split if it exceeds half of the room.
2. Two segments. If one sentence fits and the next does not, as many words of the next as fit join
   the chunk, if they fill a quarter of the room. A chunk of one sentence stays one segment, and so
   does a share `single_share` of the others. The rest are split between two sentences: uniformly
   (BERT, ALBERT), or, without a label, near half of the target (ELECTRA: the sentence that reaches
   it goes to A or B with equal probability, so B may be empty).
3. Label `next` (NSP): with probability 1/2, B is replaced. The new B starts with a uniformly drawn
   sentence of the other documents and continues until it is long enough: up to the target, or, in
   the last chunk of a document, about as long as the B it replaces. It may end earlier with its
   document. The next row starts with the B that was replaced. Label `order` (SOP): rows are stored
   in order, see `masks` for the coin.

Labels are fair coins, tossed where both outcomes are possible: a row of one segment has no label
(-1), and neither has a pair without any other document. Other documents are those of the same split
and task of a corpus. No token is dropped: A, and B unless it is random, give the documents once, in
order.

Differences in the code of google-research's BERT, ALBERT and ELECTRA, all read: BERT and ALBERT
draw one target per document, so more than a tenth of the rows are short. All truncate long pairs,
so tokens are lost. A chunk of one sentence is always a random pair in BERT. In ALBERT it is a
swapped pair with B from another document. So labels are not balanced, and SOP data mix documents.
BERT may draw the same document, and draws documents uniformly, however short. SpanBERT's code never
reads its probability of short rows, and drops sentences that are longer than a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from pipeline.data.rows.mask_positions import scale
from pipeline.data.rows.sentence_rows import LOOK_BACK, Frame, Rows, cut_sentence
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.kernels.addresses import part
from pipeline.kernels.bits import GOLDEN, U, mix

PAIRS_VERSION = 1
NO_LABEL, NEXT, ORDER = range(3)
"""Labels of a format: none, next sentence, sentence order."""
IN_ORDER, RANDOM_NEXT, UNLABELLED = 0, 1, -1
"""The values of a row's pair label."""
_HALF = 1 << 31


class SegmentLaw(NamedTuple):
    """The parameters of a format, for compiled code."""

    sentences: bool
    """True if segments are single sentences instead of runs."""
    room: int
    """Most text tokens of a row."""
    label: int
    """NO_LABEL, NEXT or ORDER."""
    short: int
    """A uniform 32-bit draw below this gives a short target, ..."""
    single: int
    """... and another draw below this gives a row of one segment."""


def share_of_draws(share: float) -> int:
    """A probability as a threshold for uniform 32-bit draws, see `SegmentLaw`."""
    return round(share * 2**32)


def pack_pairs(
    tokens: Tokens,
    word_starts: npt.NDArray[np.bool_],
    frame: Frame,
    law: SegmentLaw,
    key: np.uint64,
) -> Rows:
    """Rows of `tokens`; word_starts: [vocabulary] ids that start a word; key: of the draws."""
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
    marked = np.stack([np.ones(len(labels), np.bool_), labels == RANDOM_NEXT], 1)
    return Rows(
        ids=ids,
        offsets=offsets,
        document_starts=begins[marked],
        document_offsets=np.concatenate([[0], np.cumsum(marked.sum(1))]).astype(np.int32),
        first_row=first_row,
        last_row=np.append(first_row[1:], len(labels)) - 1,
        elsewhere=np.stack([lenders, borrowed], 1),
        second_segment=second.astype(np.uint16),
        pair_label=labels,
    )


def _plan(
    tokens: Tokens, word_starts: npt.NDArray[np.bool_], law: SegmentLaw, key: np.uint64
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """[rows, 4] start and end of A and B in the ids, [rows] labels, [documents] first rows."""
    piece = law.room // 2 if law.sentences else law.room
    # at worst each sentence, and each shortest part of a long one, has a row of its own
    most = len(tokens.sentence_starts) + len(tokens.ids) // max(1, piece - LOOK_BACK) + 1
    spans = np.empty((most, 4), np.int64)
    labels = np.empty(most, np.int8)
    first_row = np.empty(len(tokens.document_offsets) - 1, np.int64)
    boundaries = np.append(tokens.sentence_starts, len(tokens.ids))
    documents = np.searchsorted(boundaries, tokens.document_offsets)
    stream = np.array([key], np.uint64)  # an array, so that compiled functions can advance it
    plan = _plan_sentences if law.sentences else _plan_segments
    rows = plan(
        tokens.ids, boundaries, documents, word_starts, law, stream, spans, labels, first_row
    )
    return spans[:rows], labels[:rows], first_row


@numba.njit(cache=True, nogil=True)
def _draw(stream):  # type: ignore[no-untyped-def]
    """A uniform 32-bit draw; stream: uint64 [1], advanced."""
    stream[0] += GOLDEN
    return mix(stream[0]) >> np.uint64(32)


@numba.njit(cache=True, nogil=True)
def _below(stream, limit):  # type: ignore[no-untyped-def]
    """A uniform integer below `limit`."""
    return np.int64(scale(_draw(stream), limit))


@numba.njit(cache=True, nogil=True)
def _part(ids, begin, end, room, word_starts):  # type: ignore[no-untyped-def]
    """The end of the sentence ids[begin:end], or of the part of it that fits `room` tokens."""
    place = cut_sentence(ids, begin, end, room, word_starts)
    return place if place > begin else begin + room


@numba.njit(cache=True, nogil=True)
def _other_sentence(stream, boundaries, documents, document):  # type: ignore[no-untyped-def]
    """Index in boundaries of a random sentence of another document."""
    first, last = documents[document], documents[document + 1]
    # uniform without rejection: drawn among the others' number, then moved past the document's own
    sentence = _below(stream, len(boundaries) - 1 - (last - first))
    if sentence >= first:
        sentence += last - first
    return sentence


@numba.njit(cache=True, nogil=True)
def _plan_segments(  # type: ignore[no-untyped-def]
    ids, boundaries, documents, word_starts, law, stream, spans, labels, first_row
):
    """See `_plan`; fills spans, labels and first_row. Returns the number of rows.

    boundaries: [sentences + 1] positions in ids; documents: [documents + 1] indices in boundaries.
    """
    row = 0
    for document in range(len(documents) - 1):
        first_row[document] = row
        after = documents[document] + 1  # the first boundary after `place`
        place = boundaries[documents[document]]
        stop = boundaries[documents[document + 1]]
        alone = documents[document + 1] - documents[document] == len(boundaries) - 1
        while place < stop:
            # 1. chunk
            target = law.room
            if _draw(stream) < law.short:
                target = 2 + _below(stream, law.room - 1)  # 2 to room, both included
            head, end = after, place
            while end < stop and (end == place or end - place < target):
                if boundaries[after] - place > law.room:
                    break
                end = boundaries[after]
                after += 1
            if end == place:  # the first sentence is longer than a row
                end = _part(ids, place, boundaries[after], law.room, word_starts)
            # 2. two segments
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
                    # a chunk of one sentence and joined words is split after the sentence
                    middle = boundaries[head + _below(stream, max(1, after - head - 1))]
                    label = UNLABELLED if law.label == NEXT and alone else IN_ORDER
            # 3. label
            spans[row, 0], spans[row, 1], spans[row, 2], spans[row, 3] = place, middle, middle, end
            if law.label == NEXT and label == IN_ORDER and _draw(stream) < _HALF:
                label = RANDOM_NEXT
                begin = _other_sentence(stream, boundaries, documents, document)
                # where the document that lends B ends
                close = documents[np.searchsorted(documents, begin, side="right")]
                spans[row, 2] = boundaries[begin]
                spans[row, 3] = _fill(
                    ids, boundaries, begin, close, law.room - (middle - place),
                    end - middle if end == stop else target - (middle - place), end == stop,
                    word_starts,
                )  # fmt: skip
                while boundaries[after - 1] > middle:  # put the replaced B back
                    after -= 1
                end = middle
            labels[row] = label
            place = end
            row += 1
    return row


@numba.njit(cache=True, nogil=True)
def _near_half(stream, boundaries, head, place, end, target):  # type: ignore[no-untyped-def]
    """The end of A as in ELECTRA; head: the boundary after the first sentence."""
    half = target // 2
    while boundaries[head] < end and boundaries[head + 1] - place < half:
        head += 1
    if boundaries[head] < end and boundaries[head] - place < half and _draw(stream) < _HALF:
        head += 1
    return min(end, boundaries[head])


@numba.njit(cache=True, nogil=True)
def _fill(ids, boundaries, sentence, close, room, wanted, nearest, word_starts):  # type: ignore[no-untyped-def]
    """The end of a random B that starts at `sentence`, in a document that ends at `close`.

    room: most tokens; wanted: tokens to reach, or with `nearest` to approach by whole sentences.
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
            place = middle if label == RANDOM_NEXT else end  # a replaced B opens the next row
            row += 1
    return row


@numba.njit(cache=True, nogil=True)
def _write(source, spans, offsets, bos, eos, separators, ids):  # type: ignore[no-untyped-def]
    """Fill ids with the rows planned in spans, int64 [rows, 4]; source: ids of all documents."""
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
            # views and a loop: numba counts references of a slice, with locked instructions
            found, room = part(source, begin, end), part(ids, write, write + end - begin)
            for place in range(U(end - begin)):
                room[place] = found[place]
            write += end - begin
        ids[write] = eos
