"""Documents as token ids -> rows in the format of a recipe, and a count of every token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from pipeline.config.data_settings import DataSettings
from pipeline.config.formats import PAIR_FORMATS, SEGMENT_FIELDS, SEPARATORS
from pipeline.data.rows.segment_rows import (
    IN_ORDER,
    NEXT,
    NO_LABEL,
    ORDER,
    PAIRS_VERSION,
    RANDOM_NEXT,
    SegmentLaw,
    pack_pairs,
    share_of_draws,
)
from pipeline.data.rows.sentence_rows import PACKING_VERSION, Frame, Rows, pack_sentences
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary

_LABELS = {"none": NO_LABEL, "next": NEXT, "order": ORDER}


def packing_version(data: DataSettings) -> int:
    """Version for the fingerprint: the same version always makes the same rows."""
    return PAIRS_VERSION if data.format in SEGMENT_FIELDS else PACKING_VERSION


def pack(
    data: DataSettings, tokens: Tokens, vocabulary: Vocabulary, corpus: str, base: int, draws: int
) -> Rows:
    """Rows of the documents of one split of one task, in `draws` passes for the segment formats.

    base: the first sequence id; with corpus and data seed it is the key of the random draws.
    """
    frame = Frame(vocabulary.bos, vocabulary.eos, SEPARATORS[data.tokenizer])
    words, length = vocabulary.word_starts, data.sequence_length
    if data.format not in SEGMENT_FIELDS:
        across = data.format == "full_sentences"
        return pack_sentences(tokens, words, length, frame, across=across)
    law = _law(data, frame)
    keys = (_key(data.seed, corpus, base, draw) for draw in range(draws))
    return _chain([pack_pairs(tokens, words, frame, law, key) for key in keys])


def count_packing(data: DataSettings, tokens: Tokens, rows: Rows, draws: int) -> dict[str, int]:
    """The packing counts of the manifest: text tokens, and rows by kind of their segments.

    text_tokens: of the documents; repeated_tokens: shown again, in other draws or as a random next
    segment; dropped_tokens: in no row; one_segment, in_order, random_next, unlabelled: rows, where
    unlabelled ones have two segments.
    """
    paired, labels = rows.second_segment > 0, rows.pair_label
    specials = 2 * len(rows) + SEPARATORS[data.tokenizer] * int(paired.sum())
    if data.format not in SEGMENT_FIELDS:
        # a separator before each document inside a row
        specials += len(rows.document_starts) - len(rows)
    random_next = np.flatnonzero(labels == RANDOM_NEXT)
    # the tokens of B: from its start to the last special token
    again = rows.offsets[random_next + 1] - rows.offsets[random_next] - 1
    borrowed = int((again - rows.second_segment[random_next]).sum())
    own = len(rows.ids) - specials - borrowed
    # a draw packs each token at most once, so only the first draw's tokens are new
    counts = {
        "text_tokens": len(tokens.ids),
        "repeated_tokens": borrowed + (own - own // draws),
        "dropped_tokens": len(tokens.ids) - own // draws,
    }
    if data.format in PAIR_FORMATS:
        in_order = int(np.count_nonzero(labels == IN_ORDER))
        counts |= {
            "one_segment": len(rows) - int(paired.sum()),
            "in_order": in_order,
            "random_next": len(random_next),
            "unlabelled": int(paired.sum()) - in_order - len(random_next),
        }
    return counts


def _law(data: DataSettings, frame: Frame) -> SegmentLaw:
    paired, segments = data.format in PAIR_FORMATS, data.segments
    return SegmentLaw(
        sentences=data.format == "sentence_pair",
        # <s> and the last </s>
        room=data.sequence_length - 2 - (frame.separators if paired else 0),
        label=_LABELS[segments.label],
        short=share_of_draws(segments.short_share),
        single=share_of_draws(segments.single_share if paired else 1.0),
    )


def _key(seed: int, corpus: str, base: int, draw: int) -> np.uint64:
    # "rows" separates these streams from those of masks, which hash seed/corpus
    text = f"{seed}/{corpus}/rows {base}/{draw}"
    key: np.uint64 = np.uint64(xxhash.xxh3_64_intdigest(text.encode()))
    return key


def _chain(draws: list[Rows]) -> Rows:
    """The rows of all draws, concatenated; documents have the first and last row of draw 0."""
    if len(draws) == 1:
        return draws[0]
    tokens = np.cumsum([0] + [len(rows.ids) for rows in draws])
    marks = np.cumsum([0] + [len(rows.document_starts) for rows in draws])
    return Rows(
        ids=np.concatenate([rows.ids for rows in draws]),
        offsets=np.concatenate(
            [np.zeros(1, np.int64)] + [rows.offsets[1:] + at for rows, at in zip(draws, tokens)]
        ),
        document_starts=np.concatenate([rows.document_starts for rows in draws]),
        document_offsets=np.concatenate(
            [np.zeros(1, np.int64)]
            + [rows.document_offsets[1:] + at for rows, at in zip(draws, marks)]
        ).astype(np.int32),
        first_row=draws[0].first_row,
        last_row=draws[0].last_row,
        elsewhere=np.concatenate(_parts_elsewhere(draws)),
        second_segment=np.concatenate([rows.second_segment for rows in draws]),
        pair_label=np.concatenate([rows.pair_label for rows in draws]),
    )


def _parts_elsewhere(draws: list[Rows]) -> list[npt.NDArray[np.int64]]:
    """`Rows.elsewhere` of the chained draws; rows of later draws are other parts of documents."""
    found, base = [draws[0].elsewhere], len(draws[0])
    for rows in draws[1:]:
        all_rows = np.arange(len(rows))
        owners = np.searchsorted(rows.first_row, all_rows, side="right") - 1
        # a row's own document is the last that starts at or before it
        own = np.stack([owners, all_rows], 1)
        found += [own + np.array([0, base]), rows.elsewhere + np.array([0, base])]
        base += len(rows)
    return found
