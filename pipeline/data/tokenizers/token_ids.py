"""Token ids of a batch of documents in one array, with their sentence starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[Any]
"""Token ids: uint16, or uint32 for vocabularies above 65,536 ids."""
Unknown = npt.NDArray[np.int64]
"""[documents, 2] unknown tokens, and the characters of the text that they stand for."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Documents as ids, with the positions where they may be split."""

    ids: Ids
    document_offsets: npt.NDArray[np.int64]
    """[documents + 1] positions in `ids`; no document is empty."""
    sentence_starts: npt.NDArray[np.int64]
    """Sorted positions in `ids`, each document's first token included."""


def token_positions(
    byte_positions: npt.NDArray[np.int64],
    ids: Ids,
    byte_lengths: npt.NDArray[np.uint16],
    byte_offsets: npt.NDArray[np.int64],
    token_offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Byte positions in a cleaned buffer -> the first tokens that start there or later.

    byte_lengths: [vocabulary] bytes of each id; byte_offsets and token_offsets: [documents + 1]
    starts of documents in the buffer and in `ids`. A byte position inside a token moves to the next
    token, and is dropped if its document has none.
    """
    out = np.empty(len(byte_positions), np.int64)
    used = _align(byte_positions, ids, byte_lengths, byte_offsets, token_offsets, out)
    return out[:used]


def select(tokens: Tokens, chosen: npt.NDArray[np.bool_]) -> Tokens:
    """The documents of `tokens` for which `chosen` [documents] is True."""
    return Tokens(*_select(tokens.ids, tokens.document_offsets, tokens.sentence_starts, chosen))


def join_tokens(pieces: list[Tokens]) -> Tokens:
    """The documents of all pieces in order."""
    if len(pieces) == 1:
        return pieces[0]
    bases = np.cumsum([0] + [len(piece.ids) for piece in pieces])
    return Tokens(
        np.concatenate([piece.ids for piece in pieces]),
        np.concatenate(
            [np.zeros(1, np.int64)]
            + [piece.document_offsets[1:] + base for piece, base in zip(pieces, bases)]
        ),
        np.concatenate([piece.sentence_starts + base for piece, base in zip(pieces, bases)]),
    )


@numba.njit(cache=True, nogil=True)
def _select(ids, document_offsets, sentence_starts, chosen):  # type: ignore[no-untyped-def]
    """The arrays of `Tokens` for the documents in chosen, bool [documents]."""
    kept_ids = np.empty_like(ids)
    kept_offsets = np.zeros(len(document_offsets), np.int64)
    kept_starts = np.empty_like(sentence_starts)
    documents = 0
    write = 0
    sentences = 0
    sentence = 0
    for document in range(len(chosen)):
        begin = document_offsets[document]
        end = document_offsets[document + 1]
        # starts of dropped documents are passed over, too
        while sentence < len(sentence_starts) and sentence_starts[sentence] < end:
            if chosen[document]:
                kept_starts[sentences] = sentence_starts[sentence] - begin + write
                sentences += 1
            sentence += 1
        if chosen[document]:
            kept_ids[write : write + end - begin] = ids[begin:end]
            write += end - begin
            documents += 1
            kept_offsets[documents] = write
    return kept_ids[:write], kept_offsets[: documents + 1], kept_starts[:sentences]


@numba.njit(cache=True, nogil=True)
def _align(byte_positions, ids, byte_lengths, byte_offsets, token_offsets, out):  # type: ignore[no-untyped-def]
    """Write token positions to out, int64 [positions]. Returns how many; see `token_positions`."""
    used = 0
    wanted = 0
    for document in range(len(token_offsets) - 1):
        byte = byte_offsets[document]
        end = byte_offsets[document + 1]
        token = token_offsets[document]
        last = token_offsets[document + 1]
        # positions and tokens both ascend, so one pass aligns them
        while wanted < len(byte_positions) and byte_positions[wanted] < end:
            target = byte_positions[wanted]
            while token < last and byte < target:
                byte += byte_lengths[ids[token]]
                token += 1
            if token < last and (used == 0 or out[used - 1] < token):  # two may start in one token
                out[used] = token
                used += 1
            wanted += 1
    return used
