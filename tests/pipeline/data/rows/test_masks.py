"""Masks: exact counts, uniform choice, 80/10/10, streams that depend only on their key."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.config.data_settings import prediction_count
from pipeline.data.rows import masks as module
from pipeline.data.rows.masks import KEPT, MASK, RANDOM, Masking, Masks
from tests.pipeline.data.rows.toys import described, predicted, unpack

VOCABULARY = 1000
SPECIAL = np.zeros(VOCABULARY, np.bool_)
SPECIAL[[0, 1, 2, 3, 999]] = True
WORD_STARTS = np.arange(VOCABULARY) % 3 > 0


def masking(rate: float = 0.15, seed: int = 0) -> Masking:
    return Masking.described(described(rate=rate), SPECIAL, WORD_STARTS, seed)


def rows(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows `<s> text </s>` of the given lengths; those over 20 have a separator at position 10."""
    ids = []
    for length in lengths:
        row = np.arange(length) % 900 + 5
        row[0], row[-1] = 0, 2
        if length > 20:
            row[10] = 2
        ids.append(row)
    return np.concatenate(ids).astype(np.uint16), np.cumsum([0, *lengths]).astype(np.int64)


def draw(
    lengths: list[int],
    duplicate: int = 0,
    rate: float = 0.15,
    seed: int = 0,
    corpus: str = "news",
    first: int = 0,
) -> Masks:
    ids, offsets = rows(lengths)
    sequences = np.arange(first, first + len(lengths), dtype=np.uint64)
    return masking(rate, seed).draw(ids, offsets, corpus, sequences, duplicate)


def test_traps_1_to_3_count_is_exact_and_no_special_token_is_predicted() -> None:
    lengths = [3, 4, 5, 9, 10, 21, 40, 63, 64, 65, 66, 127, 130, 511, 512] * 10
    other_rates = [(rate, 0) for rate in (0.01, 0.25, 0.3, 0.5, 0.9)]
    for rate, duplicate in [(0.15, duplicate) for duplicate in range(10)] + other_rates:
        masks = draw(lengths, duplicate, rate)
        assert np.diff(masks.position_offsets).tolist() == [-(-n // 8) for n in lengths]
        total = 0
        for (positions, _, _), length in zip(unpack(masks), lengths):
            text = length - 2 - (length > 20)
            assert len(positions) == prediction_count(text, rate)
            assert not {0, length - 1, 10 if length > 20 else 0} & set(positions)
            assert max(positions) < length
            total += len(positions)
        assert masks.predictions == total


@pytest.fixture(scope="module")
def long_rows() -> list[Masks]:
    """Ten masks of 2,000 rows of 512 tokens, with a separator at position 10."""
    return [draw([512] * 2000, duplicate) for duplicate in range(10)]


def test_80_10_10_over_a_million_predictions(long_rows: list[Masks]) -> None:
    """Tolerance: five standard deviations of a binomial of that size."""
    counts = np.zeros(3, np.int64)
    for masks in long_rows:
        codes = np.stack([masks.actions >> 2 * slot & 3 for slot in range(4)])
        counts += np.bincount(codes.ravel(), minlength=3)
        counts[MASK] -= codes.size - masks.predictions  # padding
    total = counts.sum()
    assert total > 1_000_000
    for code, share in ((MASK, 0.8), (RANDOM, 0.1), (KEPT, 0.1)):
        deviation = (share * (1 - share) / total) ** 0.5
        assert abs(counts[code] / total - share) < 5 * deviation


@pytest.mark.parametrize(("text", "rate", "count"), [(6, 0.5, 3), (7, 0.3, 2), (7, 0.75, 5)])
def test_every_subset_is_equally_likely(text: int, rate: float, count: int) -> None:
    """Chi-square over all subsets of a short row: below the 99.99 % point of its distribution."""
    trials = 20_000
    chosen = predicted(draw([text + 2] * trials, rate=rate), text + 2)
    subsets = itertools.combinations(range(1, text + 1), count)
    counts = dict.fromkeys((np.isin(np.arange(text + 2), one).tobytes() for one in subsets), 0)
    for row in chosen:
        counts[row.tobytes()] += 1
    expected = trials / len(counts)
    chi_square = sum((n - expected) ** 2 / expected for n in counts.values())
    freedom = len(counts) - 1
    assert chi_square < freedom + 3.72 * (2 * freedom) ** 0.5 + 10  # normal tail with room for skew


def test_positions_are_uniform_in_long_rows(long_rows: list[Masks]) -> None:
    counts = sum(predicted(masks, 512).sum(0) for masks in long_rows)
    text = np.delete(counts, [0, 10, 511])
    expected = text.mean()
    assert abs(text - expected).max() < 5 * expected**0.5  # 509 draws, none beyond 5 sigma


def test_traps_5_random_ids_cover_the_ordinary_vocabulary_evenly(long_rows: list[Masks]) -> None:
    randoms = np.concatenate([masks.random_ids for masks in long_rows])
    counts = np.bincount(randoms, minlength=VOCABULARY)
    assert counts[SPECIAL].sum() == 0
    expected = len(randoms) / (VOCABULARY - 5)
    assert abs(counts[~SPECIAL] - expected).max() < 5 * expected**0.5


def test_ten_duplicates_differ_and_share_no_more_than_chance(long_rows: list[Masks]) -> None:
    chosen = [predicted(masks, 512)[:200] for masks in long_rows]
    for left, right in itertools.combinations(chosen, 2):
        shared = (left & right).sum() / left.sum()
        assert abs(shared - 76 / 509) < 0.015  # chance, +-5 sigma of 15,200 positions


def test_traps_6_a_mask_depends_only_on_its_key() -> None:
    """And on every part of it."""
    lengths = [100, 512, 64, 30]
    whole = unpack(draw(lengths, 3))
    for row, length in enumerate(lengths):
        assert unpack(draw([length], 3, first=row)) == whole[row : row + 1]
    others = [draw(lengths, 3, seed=1), draw(lengths, 3, corpus="web"), draw(lengths, 4),
              draw(lengths, 3, first=1 << 32)]  # fmt: skip
    assert all(unpack(other)[row][0] != whole[row][0] for other in others for row in range(4))


def test_traps_6_neighbouring_seeds_share_no_streams() -> None:
    """A key of seed + index would give seed 1 the masks of seed 0, shifted by one sequence."""
    sequences = np.arange(100_000, dtype=np.uint64)
    roots = [module.corpus_root(seed, "news") for seed in range(5)]
    keys = np.concatenate([module.stream_keys(root, sequences) for root in roots])
    assert len(np.unique(keys)) == len(keys)


def test_coins_are_fair_and_change_no_mask() -> None:
    """200,000 rows: heads, agreement of two duplicates, and of neighbours are within 4 sigma."""
    lengths = [3] * 200_000
    ids, offsets = rows(lengths)
    sequences = np.arange(len(lengths), dtype=np.uint64)
    tossing = replace(masking(), swaps=True)
    first, second = tossing.draw_duplicates(ids, offsets, "news", sequences, range(2))
    plain = draw(lengths)
    assert plain.swapped is None and first.swapped is not None and second.swapped is not None
    assert np.array_equal(first.actions, plain.actions)
    assert np.array_equal(first.random_ids, plain.random_ids)
    action = first.actions == MASK
    coins = first.swapped
    for alike in (coins, coins == second.swapped, coins[1:] == coins[:-1], coins[action]):
        assert abs(int(alike.sum()) - len(alike) / 2) < 2 * np.sqrt(len(alike))


def test_golden() -> None:
    """Generator version 1 always draws this; a change needs a new GENERATOR_VERSION."""
    positions = [
        1, 3, 5, 6, 9, 11, 12, 14, 16, 17, 19, 20, 22, 24, 26, 27, 28, 29, 30, 31, 33, 35, 36, 42,
        44, 46, 47, 49, 51, 53, 54, 63,
    ]  # fmt: skip
    codes = [*map(int, "00011002002010001000000000001000")]
    assert unpack(draw([66], 3, rate=0.5)) == [(positions, codes, [324, 972, 961, 846, 276])]
    counts = np.arange(VOCABULARY, dtype=np.uint64)
    told = described("span", 0.5, (0.0, 1.0)) | {"lengths": [0.5, 0.5]}
    ids, offsets = rows([20])
    law = Masking.described(told, SPECIAL, WORD_STARTS, 0, counts)
    found = law.draw(ids, offsets, "news", np.zeros(1, np.uint64), 0).random_ids.tolist()
    assert found == [395, 809, 606, 608, 476, 904, 296, 678, 719]


def test_random_ids_follow_the_counts() -> None:
    """Chi-square of a million draws: within five standard deviations of its mean."""
    counts = (1e7 / np.arange(1, VOCABULARY + 1) ** 1.1).astype(np.uint64)
    counts[[7, 500]] = 0
    told = {"scheme": "token", "rate": 0.9, "split": [0.0, 1.0]}
    law = Masking.described(told, SPECIAL, WORD_STARTS, 3, counts)
    ids, offsets = rows([512] * 2200)
    drawn = law.draw(ids, offsets, "news", np.arange(2200, dtype=np.uint64), 0).random_ids
    assert len(drawn) > 1_000_000
    found = np.bincount(drawn, minlength=VOCABULARY)
    likely = np.where(SPECIAL, 0, counts).astype(np.float64)
    assert not found[likely == 0].any()
    expected = (likely / likely.sum() * len(drawn))[likely > 0]
    assert expected.min() > 5
    freedom = len(expected) - 1
    squares = ((found[likely > 0] - expected) ** 2 / expected).sum()
    assert abs(squares - freedom) < 5 * np.sqrt(2 * freedom)
    assert law.describe() == told | {"generator": 1, "random_ids": "unigram"}


@pytest.mark.parametrize("counts", [[5], [1, 1], [3, 0, 1], [0, 0, 7, 0], [10**11, 1, 0, 12345]])
def test_an_alias_table_gives_each_item_its_share(counts: list[int]) -> None:
    """Summed over the table, in exact numbers, to 2**-32 of an item's place."""
    limits, others = module._alias_table(counts)
    shares = [Fraction(0)] * len(counts)
    for item, (limit, other) in enumerate(zip(limits.tolist(), others.tolist())):
        shares[item] += Fraction(limit, 1 << 32) / len(counts)
        shares[other] += (1 - Fraction(limit, 1 << 32)) / len(counts)
    for share, count in zip(shares, counts):
        assert abs(share - Fraction(count, sum(counts))) <= Fraction(1, 1 << 32)
        assert share == 0 or count > 0
