"""Documents as ids: chosen, joined, and cut where sentences begin."""

import numpy as np

from pipeline.data.tokenizers.token_ids import Tokens, join_tokens, select, token_positions
from tests.pipeline.data.tokenizers.conftest import columns


def tokens(documents: list[list[int]], sentences: list[int]) -> Tokens:
    offsets = np.cumsum([0] + [len(ids) for ids in documents])
    ids = np.array([index for document in documents for index in document], np.uint16)
    return Tokens(ids, offsets, np.array(sentences, np.int64))


THREE = [[5, 6, 7], [8], [9, 10, 11, 12]]


def test_select_and_join_keep_documents_with_their_sentences() -> None:
    whole = tokens(THREE, [0, 2, 3, 4, 7])
    for chosen, expected in (
        ([True, False, True], tokens([THREE[0], THREE[2]], [0, 2, 3, 6])),
        ([False, True, False], tokens([[8]], [0])),
        ([True, True, True], whole),
    ):
        assert columns(select(whole, np.array(chosen))) == columns(expected)
    parts = [tokens([THREE[0]], [0, 2]), tokens(THREE[1:], [0, 1, 4])]
    found = join_tokens(parts)
    assert columns(found) == columns(whole) and found.ids.dtype == np.uint16
    assert join_tokens(parts[:1]) is parts[0]


def test_a_position_inside_a_token_moves_to_the_next_one() -> None:
    """Two documents, of tokens with 1, 2 and 3 bytes, each followed by its NUL."""
    byte_lengths = np.array([0, 1, 2, 3], np.uint16)
    ids = np.array([1, 2, 3, 2, 2], np.uint16)  # 0 | 1 2 | 3 4 5 and, from byte 7, 7 8 | 9 10
    offsets, token_offsets = np.array([0, 7, 12]), np.array([0, 3, 5])
    for places, expected in (
        ([0, 1, 3, 7, 9], [0, 1, 2, 3, 4]),
        ([0, 2, 7, 8], [0, 2, 3, 4]),
        ([1, 2, 3], [1, 2]),  # a token is given once
        ([4, 7, 10], [3]),  # after 4 and 10 no token of the document begins
    ):
        wanted = np.array(places, np.int64)
        found = token_positions(wanted, ids, byte_lengths, offsets, token_offsets)
        assert found.tolist() == expected, places
