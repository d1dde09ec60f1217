"""Rows of full sentences, token by token on toy documents; no token of random ones is lost."""

import itertools

import numpy as np
import pytest

from pipeline.data.rows.sentence_rows import Frame, Rows, pack_sentences
from tests.pipeline.data.rows.toys import lists, tokens

BOS, EOS = 0, 2
WORDS = np.ones(1000, np.bool_)


def pack(
    length: int, *documents: list[list[int]], words: np.ndarray = WORDS, across: bool = True
) -> Rows:
    return pack_sentences(tokens([*documents]), words, length, Frame(BOS, EOS, 2), across=across)


def starts(rows: Rows) -> list[list[int]]:
    offsets = rows.document_offsets
    return [rows.document_starts[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def test_rows_of_toy_documents() -> None:
    """The ids of rows, where documents start in them, and the first row of each document."""
    no_words, some_words = np.zeros(1000, np.bool_), np.isin(np.arange(1000), [20, 22, 24])
    for name, rows, ids, documents_at, first_row in (
        ("whole sentences until a row is full", pack(8, [[10, 11, 12], [13, 14], [15, 16], [17]]),
         [[0, 10, 11, 12, 13, 14, 2], [0, 15, 16, 17, 2]], [[0], [0]], [0]),
        ("one more separator", pack(10, [[10, 11]], [[20, 21], [22]], [[30]]),
         [[0, 10, 11, 2, 20, 21, 22, 2, 30, 2]], [[0, 4, 8]], [0, 0, 0]),
        ("none where a row ends with its document", pack(7, [[10, 11, 12, 13]], [[20, 21]]),
         [[0, 10, 11, 12, 13, 2], [0, 20, 21, 2]], [[0], [0]], [0, 1]),
        ("exactly full", pack(6, [[10, 11], [12, 13]], [[20]]),
         [[0, 10, 11, 12, 13, 2], [0, 20, 2]], [[0], [0]], [0, 1]),
        # room for 5: after three tokens a separator and one token fit, two do not
        ("room after a separator", pack(7, [[10, 11, 12]], [[20]]),
         [[0, 10, 11, 12, 2, 20, 2]], [[0, 5]], [0, 0]),
        ("no room", pack(7, [[10, 11, 12]], [[20, 21]]),
         [[0, 10, 11, 12, 2], [0, 20, 21, 2]], [[0], [0]], [0, 1]),
        ("a long sentence fills rows", pack(6, [[10], [20, 21, 22, 23, 24, 25]]),
         [[0, 10, 20, 21, 22, 2], [0, 23, 24, 25, 2]], [[0], [0]], [0]),
        ("and is cut at a word", pack(5, [[20, 21, 22, 23, 24, 25]], words=some_words),
         [[0, 20, 21, 2], [0, 22, 23, 2], [0, 24, 25, 2]], [[0]] * 3, [0]),
        ("a long word is cut anywhere", pack(5, [[*range(20, 27)]], words=no_words),
         [[0, 20, 21, 22, 2], [0, 23, 24, 25, 2], [0, 26, 2]], [[0]] * 3, [0]),
        ("doc_sentences", pack(10, [[10, 11]], [[20, 21], [22]], [[30]], across=False),
         [[0, 10, 11, 2], [0, 20, 21, 22, 2], [0, 30, 2]], [[0]] * 3, [0, 1, 2]),
    ):  # fmt: skip
        found = (lists(rows), starts(rows), rows.first_row.tolist())
        assert found == (ids, documents_at, first_row), name
        assert not rows.second_segment.any() and set(rows.pair_label.tolist()) == {-1}


def random_text(seed: int) -> tuple[list[list[list[int]]], np.ndarray, int]:
    """Documents, ids that start a word, and a length of rows."""
    rng = np.random.default_rng(seed)
    documents = [
        [rng.integers(5, 900, rng.integers(1, 60)).tolist() for _ in range(rng.integers(1, 12))]
        for _ in range(rng.integers(1, 40))
    ]
    return documents, rng.random(1000) < 0.5, int(rng.integers(5, 70))


def test_doc_sentences_pack_each_document_alone() -> None:
    for documents, words, length in map(random_text, range(20)):
        alone = [pack(length, document, words=words) for document in documents]
        rows = pack(length, *documents, words=words, across=False)
        assert lists(rows) == [row for each in alone for row in lists(each)]
        assert rows.first_row.tolist() == np.cumsum([0, *map(len, alone)])[:-1].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_traps_14_nothing_is_lost(seed: int) -> None:
    documents, words, length = random_text(seed)
    rows = pack(length, *documents, words=words)
    found: list[list[int]] = []
    for index, (row, marks) in enumerate(zip(lists(rows), starts(rows))):
        assert 3 <= len(row) <= length and row[0] == BOS and row[-1] == EOS
        new = np.count_nonzero(rows.first_row == index)
        assert len(marks) - new in (0, 1), "at most one document continues from the previous row"
        pieces = [row[a:b][:-1] for a, b in zip(marks, [*marks[1:], len(row)])]
        pieces[0] = pieces[0][1:]
        if len(marks) > new:
            found[-1] += pieces.pop(0)
        found += pieces
    assert found == [[*itertools.chain(*document)] for document in documents]


def test_rows_do_not_split_a_sentence_that_fits() -> None:
    rng = np.random.default_rng(0)
    sentences = [
        [[int(i)] * rng.integers(1, 30) for i in rng.permutation(900)[:20] + 5] for _ in range(30)
    ]
    rows = lists(pack(64, *sentences))
    assert max(map(len, rows)) <= 64
    runs = [(id_, len([*run])) for row in rows for id_, run in itertools.groupby(row[1:-1])]
    expected = [(one[0], len(one)) for document in sentences for one in document]
    assert [run for run in runs if run[0] != EOS] == expected
