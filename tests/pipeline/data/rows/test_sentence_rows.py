"""Rows of full sentences, token by token on toy documents; no token of random ones is lost."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np
import pytest

from pipeline.data.rows.sentence_rows import Frame, Rows, pack_sentences
from pipeline.data.tokenizers.token_ids import Tokens, select, token_positions

BOS, EOS = 0, 2
WORDS = np.ones(1000, np.bool_)


def tokens(*documents: list[list[int]]) -> Tokens:
    """Documents given as lists of sentences."""
    ids, offsets, starts = [], [0], []
    for document in documents:
        for sentence in document:
            starts.append(len(ids))
            ids += sentence
        offsets.append(len(ids))
    return Tokens(np.array(ids, np.uint16), np.array(offsets), np.array(starts))


def pack(
    length: int, *documents: list[list[int]], words: np.ndarray = WORDS, across: bool = True
) -> Rows:
    return pack_sentences(tokens(*documents), words, length, Frame(BOS, EOS, 2), across=across)


def lists(rows: Rows) -> list[list[int]]:
    return [rows.ids[a:b].tolist() for a, b in zip(rows.offsets, rows.offsets[1:])]


def starts(rows: Rows) -> list[list[int]]:
    offsets = rows.document_offsets
    return [rows.document_starts[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def test_whole_sentences_until_the_row_is_full() -> None:
    rows = pack(8, [[10, 11, 12], [13, 14], [15, 16], [17]])
    assert lists(rows) == [[0, 10, 11, 12, 13, 14, 2], [0, 15, 16, 17, 2]]
    assert starts(rows) == [[0], [0]]
    assert rows.first_row.tolist() == [0]


def test_one_more_separator_between_documents() -> None:
    rows = pack(10, [[10, 11]], [[20, 21], [22]], [[30]])
    assert lists(rows) == [[0, 10, 11, 2, 20, 21, 22, 2, 30, 2]]
    assert starts(rows) == [[0, 4, 8]]
    assert rows.first_row.tolist() == [0, 0, 0]
    assert not rows.second_segment.any() and set(rows.pair_label.tolist()) == {-1}


def test_no_separator_where_a_row_ends_with_its_document() -> None:
    rows = pack(7, [[10, 11, 12, 13]], [[20, 21]])
    assert lists(rows) == [[0, 10, 11, 12, 13, 2], [0, 20, 21, 2]]
    assert starts(rows) == [[0], [0]]
    assert rows.first_row.tolist() == [0, 1]


def test_a_row_may_be_exactly_full() -> None:
    rows = pack(6, [[10, 11], [12, 13]], [[20]])
    assert lists(rows) == [[0, 10, 11, 12, 13, 2], [0, 20, 2]]


def test_a_separator_needs_room_for_a_sentence_after_it() -> None:
    # room for 5: after three tokens a separator and one token fit, two do not
    assert lists(pack(7, [[10, 11, 12]], [[20]])) == [[0, 10, 11, 12, 2, 20, 2]]
    assert lists(pack(7, [[10, 11, 12]], [[20, 21]])) == [[0, 10, 11, 12, 2], [0, 20, 21, 2]]


def test_a_sentence_longer_than_a_row_fills_rows() -> None:
    rows = pack(6, [[10], [20, 21, 22, 23, 24, 25]])
    assert lists(rows) == [[0, 10, 20, 21, 22, 2], [0, 23, 24, 25, 2]]


def test_a_long_sentence_is_cut_at_a_word() -> None:
    words = np.zeros(1000, np.bool_)
    words[[20, 22, 24]] = True
    rows = pack(5, [[20, 21, 22, 23, 24, 25]], words=words)
    assert lists(rows) == [[0, 20, 21, 2], [0, 22, 23, 2], [0, 24, 25, 2]]


def test_a_word_longer_than_a_row_is_cut_anywhere() -> None:
    words = np.zeros(1000, np.bool_)
    rows = pack(5, [list(range(20, 27))], words=words)
    assert lists(rows) == [[0, 20, 21, 22, 2], [0, 23, 24, 25, 2], [0, 26, 2]]


def test_doc_sentences_never_cross_documents() -> None:
    rows = pack(10, [[10, 11]], [[20, 21], [22]], [[30]], across=False)
    assert lists(rows) == [[0, 10, 11, 2], [0, 20, 21, 22, 2], [0, 30, 2]]
    assert starts(rows) == [[0]] * 3
    assert rows.first_row.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_doc_sentences_pack_each_document_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = [
        [rng.integers(5, 900, rng.integers(1, 60)).tolist() for _ in range(rng.integers(1, 12))]
        for _ in range(rng.integers(1, 40))
    ]
    words, length = rng.random(1000) < 0.5, int(rng.integers(5, 70))
    alone = [pack(length, document, words=words) for document in documents]
    rows = pack(length, *documents, words=words, across=False)
    assert lists(rows) == [row for each in alone for row in lists(each)]
    assert rows.first_row.tolist() == np.cumsum([0, *map(len, alone)])[:-1].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_traps_14_nothing_is_lost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    documents = [
        [rng.integers(5, 900, rng.integers(1, 60)).tolist() for _ in range(rng.integers(1, 12))]
        for _ in range(rng.integers(1, 40))
    ]
    words = rng.random(1000) < 0.5
    length = int(rng.integers(5, 70))
    rows = pack(length, *documents, words=words)
    assert all(3 <= len(row) <= length for row in lists(rows))
    assert all(row[0] == BOS and row[-1] == EOS for row in lists(rows))
    found: list[list[int]] = []
    position = 0
    for index, (row, marks) in enumerate(zip(lists(rows), starts(rows))):
        new = np.count_nonzero(rows.first_row == index)
        assert len(marks) - new in (0, 1), "at most one document continues from the previous row"
        pieces = [row[a:b][:-1] for a, b in zip(marks, [*marks[1:], len(row)])]
        pieces[0] = pieces[0][1:]
        for number, piece in enumerate(pieces):
            if len(marks) > new and number == 0:
                found[-1] += piece
            else:
                found.append(piece)
        position += len(row)
    assert found == [functools.reduce(operator.iadd, document, []) for document in documents]


def test_rows_do_not_split_a_sentence_that_fits() -> None:
    rng = np.random.default_rng(0)
    documents = [
        [[int(i)] * rng.integers(1, 30) for i in rng.permutation(900)[:20] + 5] for _ in range(30)
    ]
    for row in lists(pack(64, *documents)):
        runs = [key for key, previous in zip(row[1:], row) if key != previous]
        assert len(row) <= 64 and runs
    ids = [sentence[0] for document in documents for sentence in document]
    lengths = [len(sentence) for document in documents for sentence in document]
    joined = [run for row in lists(pack(64, *documents)) for run in _runs(row) if run[0] != EOS]
    assert joined == list(zip(ids, lengths))


def _runs(row: list[int]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for value in row[1:-1]:
        if out and out[-1][0] == value:
            out[-1] = (value, out[-1][1] + 1)
        else:
            out.append((value, 1))
    return out


def test_select_does_not_change_documents() -> None:
    source = tokens([[10], [11, 12]], [[20, 21]], [[30], [31]])
    kept = select(source, np.array([True, False, True]))
    expected = tokens([[10], [11, 12]], [[30], [31]])
    assert kept.ids.tolist() == expected.ids.tolist()
    assert kept.document_offsets.tolist() == expected.document_offsets.tolist()
    assert kept.sentence_starts.tolist() == expected.sentence_starts.tolist()


def test_token_positions() -> None:
    # documents "abcdef" and "gh" (each with its NUL); ids 1, 2, 3 cover that many bytes
    lengths = np.array([0, 1, 2, 3], np.uint16)
    ids = np.array([1, 2, 3, 2], np.uint16)
    places = token_positions(
        np.array([0, 1, 2, 3, 7]), ids, lengths, np.array([0, 7, 10]), np.array([0, 3, 4])
    )
    # byte 2 is inside the second token, so it moves to the third, which byte 3 already gives
    assert places.tolist() == [0, 1, 2, 3]
