"""Rows of segments equal a slow reference's, token by token; labels are fair, no token is lost."""

from __future__ import annotations

import itertools
from math import erfc, sqrt

import numpy as np
import pytest

from pipeline.data.rows.segment_rows import (
    IN_ORDER,
    NEXT,
    NO_LABEL,
    ORDER,
    RANDOM_NEXT,
    UNLABELLED,
    SegmentLaw,
    pack_pairs,
    share_of_draws,
)
from pipeline.data.rows.sentence_rows import Frame, Rows
from pipeline.data.tokenizers.token_ids import Tokens
from tests.pipeline.data import reference_pairs as reference

BOS, EOS = 0, 2
LABELS = {"none": NO_LABEL, "next": NEXT, "order": ORDER}


def tokens(documents: list[reference.Sentences]) -> Tokens:
    ids = [token for document in documents for token in reference.joined(document)]
    lengths = [[len(sentence) for sentence in document] for document in documents]
    starts = np.cumsum([0, *itertools.chain(*lengths)])[:-1]
    ends = np.cumsum([0, *map(sum, lengths)])
    return Tokens(np.array(ids, np.uint16), ends, starts)


def random_documents(rng: np.random.Generator, count: int) -> list[reference.Sentences]:
    """Mostly several sentences of 1 to 30 ids; some single sentences, some longer than a row."""
    longest = int(rng.choice([8, 30, 120]))
    return [
        [
            rng.integers(5, 900, rng.integers(1, longest)).tolist()
            for _ in range(rng.integers(1, int(rng.choice([2, 5, 25]))))
        ]
        for _ in range(count)
    ]


def law(
    room: int, label: str = "next", short: float = 0.1, single: float = 0.0, sentences: bool = False
) -> SegmentLaw:
    return SegmentLaw(sentences, room, LABELS[label], share_of_draws(short), share_of_draws(single))


def shown(rows: Rows, separators: int) -> list[tuple[list[int], list[int], int]]:
    """A, B and the label of every row, from its tokens."""
    found = []
    for row in range(len(rows)):
        ids = rows.ids[rows.offsets[row] : rows.offsets[row + 1]].tolist()
        second, label = int(rows.second_segment[row]), int(rows.pair_label[row])
        assert ids[0] == BOS and ids[-1] == EOS
        a, b = ids[1:-1], []
        if second:
            assert ids[second - separators : second] == [EOS] * separators
            a, b = ids[1 : second - separators], ids[second:-1]
        assert EOS not in a + b
        marks = rows.document_starts[rows.document_offsets[row] : rows.document_offsets[row + 1]]
        assert marks.tolist() == ([0, second] if label == RANDOM_NEXT else [0])
        found.append((a, b, label))
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("separators", [1, 2])
def test_traps_14_segments_match_the_reference(seed: int, label: str, separators: int) -> None:
    rng = np.random.default_rng(seed)
    documents = random_documents(rng, int(rng.choice([1, 2, 30])))
    begins_word = set(np.flatnonzero(rng.random(1000) < 0.5).tolist())
    room, key = int(rng.choice([2, 9, 40, 90])), int(rng.integers(2**63))
    short, single = float(rng.choice([0.0, 0.3, 1.0])), float(rng.choice([0.0, 0.2, 1.0]))
    words = np.isin(np.arange(1000), list(begins_word))
    rows = pack_pairs(
        tokens(documents),
        words,
        Frame(BOS, EOS, separators),
        law(room, label, short, single),
        np.uint64(key),
    )
    expected = reference.segment_rows(documents, begins_word, room, label, short, single, key)
    assert shown(rows, separators) == [(row.a, row.b, row.label) for row in expected]
    assert_own_text(rows, expected, documents)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("label", LABELS)
def test_pairs_of_sentences_match_the_reference(seed: int, label: str) -> None:
    rng = np.random.default_rng(seed)
    documents = random_documents(rng, int(rng.choice([1, 2, 30])))
    begins_word = set(np.flatnonzero(rng.random(1000) < 0.5).tolist())
    room, key = int(rng.choice([2, 9, 40, 90])), int(rng.integers(2**63))
    words = np.isin(np.arange(1000), list(begins_word))
    chosen = law(room, label, sentences=True)
    rows = pack_pairs(tokens(documents), words, Frame(BOS, EOS, 2), chosen, np.uint64(key))
    expected = reference.sentence_rows(documents, begins_word, room, label, key)
    assert shown(rows, 2) == [(row.a, row.b, row.label) for row in expected]
    assert_own_text(rows, expected, documents)


def assert_own_text(
    rows: Rows, expected: list[reference.Row], documents: list[reference.Sentences]
) -> None:
    """The rows hold their own documents once, in order."""
    own: list[list[int]] = [[] for _ in documents]
    for row in expected:
        own[row.document] += row.a + (row.b if row.label != RANDOM_NEXT else [])
    assert own == [reference.joined(document) for document in documents]
    first = [[row.document for row in expected].index(number) for number in range(len(documents))]
    assert rows.first_row.tolist() == first


def many(sentences: bool, label: str, seed: int = 0, documents: int = 6_000) -> Rows:
    """Over a hundred thousand rows of documents of 1 to 60 short sentences."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 60, documents)
    lengths = rng.integers(1, 8, counts.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ends = starts[np.concatenate([[0], np.cumsum(counts)])]
    ids = rng.integers(5, 900, starts[-1]).astype(np.uint16)
    source = Tokens(ids, ends, starts[:-1])
    words = np.ones(1000, np.bool_)
    chosen = law(20, label, sentences=sentences)
    return pack_pairs(source, words, Frame(BOS, EOS, 2), chosen, np.uint64(seed))


def two_sided(hits: int, count: int) -> float:
    """Probability that a fair coin is at least this far from half, by the normal distribution."""
    return erfc(abs(2 * hits - count) / sqrt(2 * count))


@pytest.mark.parametrize("sentences", [False, True])
def test_labels_are_fair_coins(sentences: bool) -> None:
    """Binomial at n >= 1e5, also given a row's length and A, and from row to row."""
    rows = many(sentences, "next", documents=20_000)
    labelled = rows.pair_label != UNLABELLED
    label = rows.pair_label[labelled]
    assert len(label) >= 100_000
    assert two_sided(int(label.sum()), len(label)) > 1e-3
    a_length = rows.second_segment[labelled].astype(np.int64)
    for low, high in itertools.pairwise(np.quantile(a_length, [0, 0.25, 0.5, 0.75, 1]).astype(int)):
        part = label[(a_length >= low) & (a_length < high)]
        assert len(part) == 0 or two_sided(int(part.sum()), len(part)) > 1e-4
    alike = label[1:] == label[:-1]
    assert two_sided(int(alike.sum()), len(alike)) > 1e-3
    assert not rows.second_segment[~labelled].any()


def test_a_random_next_is_of_another_document_and_uniform_over_sentences() -> None:
    """Every document has its own id and every sentence its own length; chi-square."""
    documents = [[[5 + number] * 3 for _ in range(1 + number)] for number in range(40)]
    source, words = tokens(documents), np.ones(1000, np.bool_)
    seen = np.zeros(40)
    expected = np.zeros(40)
    sizes = np.arange(1, 41)
    for key in range(400):
        chosen = law(10, "next", sentences=True)
        rows = pack_pairs(source, words, Frame(BOS, EOS, 1), chosen, np.uint64(key * 7919))
        for a, b, label in shown(rows, 1):
            assert label == UNLABELLED or (a[0] != b[0]) == (label == RANDOM_NEXT)
            if label == RANDOM_NEXT:
                seen[b[0] - 5] += 1
                others = np.where(np.arange(40) == a[0] - 5, 0, sizes)
                expected += others / others.sum()
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert seen.sum() > 50_000 and chi_square < 39 + 4 * sqrt(2 * 39)


def test_traps_11_sentence_order_never_mixes_documents() -> None:
    documents = [[[5 + number] * 2 for _ in range(1 + number % 9)] for number in range(300)]
    words = np.ones(1000, np.bool_)
    for sentences in (False, True):
        chosen = law(12, "order", sentences=sentences)
        rows = pack_pairs(tokens(documents), words, Frame(BOS, EOS, 2), chosen, np.uint64(1))
        for a, b, label in shown(rows, 2):
            assert len({*a, *b}) == 1
            assert label == (IN_ORDER if b else UNLABELLED)


def test_pairs_of_a_single_document_have_no_labels() -> None:
    documents = [[[10, 11], [12], [13, 14, 15], [16]]]
    words = np.ones(1000, np.bool_)
    for sentences in (False, True):
        chosen = law(8, "next", 0.0, sentences=sentences)
        rows = pack_pairs(tokens(documents), words, Frame(BOS, EOS, 2), chosen, np.uint64(1))
        assert set(rows.pair_label.tolist()) == {UNLABELLED} and rows.second_segment.all()


def test_short_rows_have_the_requested_share_and_any_length() -> None:
    """Sentences of one id: a row's length is its target. Mean and share, five sigma."""
    source = Tokens(
        np.full(2_000_000, 7, np.uint16), np.array([0, 2_000_000]), np.arange(2_000_000)
    )
    chosen = law(100, "none", 0.1, 1.0)
    rows = pack_pairs(source, np.ones(1000, np.bool_), Frame(BOS, EOS, 2), chosen, np.uint64(3))
    lengths = np.diff(rows.offsets)[:-1] - 2
    short = lengths[lengths < 100]
    share = 0.1 * 98 / 99  # a target of 100 is drawn too
    assert abs(len(short) - share * len(lengths)) < 5 * sqrt(len(lengths) * share * (1 - share))
    assert short.min() == 2 and abs(short.mean() - 50.5) < 5 * 28.3 / sqrt(len(short))


def test_a_share_of_single_segments() -> None:
    source = Tokens(np.full(500_000, 7, np.uint16), np.array([0, 500_000]), np.arange(500_000))
    chosen = law(30, "none", 0.0, 0.1)
    rows = pack_pairs(source, np.ones(1000, np.bool_), Frame(BOS, EOS, 2), chosen, np.uint64(3))
    single = int(np.count_nonzero(rows.second_segment == 0))
    assert abs(single - 0.1 * len(rows)) < 5 * sqrt(len(rows) * 0.09)
    # Half of the target is 15: a coin gives the sentence that reaches it to A or to B.
    places, counts = np.unique(rows.second_segment[rows.second_segment > 0], return_counts=True)
    assert places.tolist() == [14 + 3, 15 + 3] and two_sided(int(counts[0]), counts.sum()) > 1e-3
