"""Toy documents, rows and masks, and what they hold, decoded from their columns."""

import itertools

import numpy as np
import numpy.typing as npt

from pipeline.data.rows.masks import RANDOM, Masking, Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.tokenizers.token_ids import Tokens

Flags = npt.NDArray[np.bool_]
NGRAM = [6 / 11, 3 / 11, 2 / 11]
SPAN = [0.8**more / sum(0.8**k for k in range(10)) for more in range(10)]
FIRST_ID = 10
SCHEMES = ["token", "electra", "whole_word", "ngram", "span"]


def tokens(documents: list[list[list[int]]]) -> Tokens:
    """Documents given as lists of sentences."""
    sentences = [sentence for document in documents for sentence in document]
    starts = np.cumsum([0, *map(len, sentences)])
    ends = starts[np.cumsum([0, *map(len, documents)])]
    return Tokens(np.array([*itertools.chain(*sentences)], np.uint16), ends, starts[:-1])


def random_tokens(documents: int, sentences: int, length: int, ids: int) -> Tokens:
    """Documents of fewer than so many sentences of fewer than so many ids from 5 to `ids`."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, sentences, documents)
    lengths = rng.integers(1, length, counts.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ends = starts[np.concatenate([[0], np.cumsum(counts)])]
    return Tokens(rng.integers(5, ids, starts[-1]).astype(np.uint16), ends, starts[:-1])


def with_own_ids(tokens: Tokens) -> Tokens:
    """Every token of document d becomes FIRST_ID + d."""
    sizes = np.diff(tokens.document_offsets)
    ids = np.repeat(FIRST_ID + np.arange(len(sizes), dtype=np.uint16), sizes)
    return Tokens(ids, tokens.document_offsets, tokens.sentence_starts)


def lists(rows: Rows) -> list[list[int]]:
    """The ids of each row."""
    return [rows.ids[a:b].tolist() for a, b in itertools.pairwise(rows.offsets)]


def described(
    scheme: str = "token", rate: float = 0.15, split: tuple[float, float] = (0.8, 0.1)
) -> dict[str, object]:
    lengths = {"ngram": NGRAM, "span": SPAN}.get(scheme, [])
    return {"scheme": scheme, "rate": rate, "split": [*split], "lengths": lengths}


def draw_rows(masking: Masking, rows: npt.NDArray[np.uint16], duplicate: int = 0) -> Masks:
    """Masks of [rows, length] ids, which are sequences 0, 1, ... of one corpus."""
    count, length = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * length
    return masking.draw(rows.ravel(), offsets, "news", np.arange(count, dtype=np.uint64), duplicate)


def predicted(masks: Masks, length: int) -> Flags:
    """[rows, length] which positions are predicted, in rows of one length."""
    bits = np.unpackbits(masks.positions.reshape(len(masks.counts), -1), axis=1, bitorder="little")
    assert not bits[:, length:].any()
    return bits[:, :length].astype(bool)


def unpack(masks: Masks) -> list[tuple[list[int], list[int], list[int]]]:
    """Positions, actions and random ids of every row."""
    found = []
    for row in range(len(masks.counts)):
        bitmap = masks.positions[masks.position_offsets[row] : masks.position_offsets[row + 1]]
        positions = np.flatnonzero(np.unpackbits(bitmap, bitorder="little")).tolist()
        packed = masks.actions[masks.action_offsets[row] : masks.action_offsets[row + 1]].tolist()
        codes = [byte >> 2 * slot & 3 for byte in packed for slot in range(4)]
        assert len(packed) == -(-len(positions) // 4)
        assert not any(codes[len(positions) :]), "padding is zero"
        randoms = masks.random_ids[masks.random_offsets[row] : masks.random_offsets[row + 1]]
        codes = codes[: len(positions)]
        assert len(positions) == masks.counts[row] and codes.count(RANDOM) == len(randoms)
        found.append((positions, codes, randoms.tolist()))
    return found
