"""Rows of segments equal a slow reference's, token by token; labels are fair, no token is lost."""

import itertools
from math import erfc, sqrt

import numpy as np
import pytest

from pipeline.data.rows import segment_rows
from pipeline.data.rows.segment_rows import (
    IN_ORDER,
    RANDOM_NEXT,
    UNLABELLED,
    SegmentLaw,
    pack_pairs,
)
from pipeline.data.rows.sentence_rows import Frame, Rows
from pipeline.data.tokenizers.token_ids import Tokens
from tests.pipeline.data import reference_pairs as reference
from tests.pipeline.data.rows.toys import lists, random_tokens, tokens

BOS, EOS = 0, 2
WORDS = np.ones(1000, np.bool_)
LABELS = {"none": segment_rows.NO_LABEL, "next": segment_rows.NEXT, "order": segment_rows.ORDER}


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
    shares = map(segment_rows.share_of_draws, (short, single))
    return SegmentLaw(sentences, room, LABELS[label], *shares)


def shown(rows: Rows, separators: int) -> list[tuple[list[int], list[int], int]]:
    """A, B and the label of every row, from its tokens."""
    found = []
    for row, ids in enumerate(lists(rows)):
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


def pack(
    documents: list[reference.Sentences], chosen: SegmentLaw, separators: int = 2, key: int = 1,
    words: np.ndarray = WORDS,
) -> Rows:  # fmt: skip
    return pack_pairs(tokens(documents), words, Frame(BOS, EOS, separators), chosen, np.uint64(key))


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("sentences", [False, True])
def test_traps_14_rows_match_the_reference(sentences: bool, label: str) -> None:
    for seed, separators in itertools.product(range(12), (1, 2)):
        rng = np.random.default_rng(seed)
        documents = random_documents(rng, int(rng.choice([1, 2, 30])))
        begins_word = set(np.flatnonzero(rng.random(1000) < 0.5).tolist())
        words = np.isin(np.arange(1000), list(begins_word))
        room, key = int(rng.choice([2, 9, 40, 90])), int(rng.integers(2**63))
        short, single = float(rng.choice([0.0, 0.3, 1.0])), float(rng.choice([0.0, 0.2, 1.0]))
        if sentences:
            chosen = law(room, label, sentences=True)
            expected = reference.sentence_rows(documents, begins_word, room, label, key)
        else:
            chosen, shares = law(room, label, short, single), (short, single)
            expected = reference.segment_rows(documents, begins_word, room, label, *shares, key)
        rows = pack(documents, chosen, separators, key, words)
        assert shown(rows, separators) == [(row.a, row.b, row.label) for row in expected], seed
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


def two_sided(hits: int, count: int) -> float:
    """Probability that a fair coin is at least this far from half, by the normal distribution."""
    return erfc(abs(2 * hits - count) / sqrt(2 * count))


@pytest.mark.parametrize("sentences", [False, True])
def test_labels_are_fair_coins(sentences: bool) -> None:
    """Binomial at n >= 1e5, also given a row's length and A, and from row to row; in documents of 1
    to 60 short sentences."""
    source = random_tokens(20_000, 60, 8, 900)
    chosen = law(20, "next", sentences=sentences)
    rows = pack_pairs(source, WORDS, Frame(BOS, EOS, 2), chosen, np.uint64(0))
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
    chances = np.where(np.eye(40), 0, np.arange(1, 41))  # [documents of A, documents of B]
    chances = chances / chances.sum(1, keepdims=True)
    seen, expected = np.zeros(40), np.zeros(40)
    for key in range(400):
        rows = pack(documents, law(10, "next", sentences=True), 1, key * 7919)
        starts, label = rows.offsets[:-1], rows.pair_label
        a, b = rows.ids[starts + 1] - 5, rows.ids[starts + rows.second_segment] - 5
        assert ((a != b) == (label == RANDOM_NEXT))[label != UNLABELLED].all()
        seen += np.bincount(b[label == RANDOM_NEXT], minlength=40)
        expected += chances[a[label == RANDOM_NEXT]].sum(0)
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert seen.sum() > 50_000 and chi_square < 39 + 4 * sqrt(2 * 39)


@pytest.mark.parametrize("sentences", [False, True])
def test_traps_11_sentence_order_never_mixes_documents(sentences: bool) -> None:
    """Pairs of a single document have no labels."""
    documents = [[[5 + number] * 2 for _ in range(1 + number % 9)] for number in range(300)]
    for a, b, label in shown(pack(documents, law(12, "order", sentences=sentences)), 2):
        assert len({*a, *b}) == 1
        assert label == (IN_ORDER if b else UNLABELLED)
    alone = [[[10, 11], [12], [13, 14, 15], [16]]]
    rows = pack(alone, law(8, "next", 0.0, sentences=sentences))
    assert set(rows.pair_label.tolist()) == {UNLABELLED} and rows.second_segment.all()


def test_shares_of_short_rows_and_of_single_segments() -> None:
    """Sentences of one id: a row's length is its target. Mean and share, five sigma."""
    short, single = (
        pack_pairs(
            Tokens(np.full(size, 7, np.uint16), np.array([0, size]), np.arange(size)),
            WORDS, Frame(BOS, EOS, 2), chosen, np.uint64(3),
        )
        for size, chosen in (
            (2_000_000, law(100, "none", 0.1, 1.0)), (500_000, law(30, "none", 0.0, 0.1)),
        )
    )  # fmt: skip
    lengths = np.diff(short.offsets)[:-1] - 2
    some = lengths[lengths < 100]
    share = 0.1 * 98 / 99  # a target of 100 is drawn too
    assert abs(len(some) - share * len(lengths)) < 5 * sqrt(len(lengths) * share * (1 - share))
    assert some.min() == 2 and abs(some.mean() - 50.5) < 5 * 28.3 / sqrt(len(some))
    found = int(np.count_nonzero(single.second_segment == 0))
    assert abs(found - 0.1 * len(single)) < 5 * sqrt(len(single) * 0.09)
    # Half of the target is 15: a coin gives the sentence that reaches it to A or to B.
    places, counts = np.unique(single.second_segment[single.second_segment > 0], return_counts=True)
    assert places.tolist() == [14 + 3, 15 + 3] and two_sided(int(counts[0]), counts.sum()) > 1e-3
