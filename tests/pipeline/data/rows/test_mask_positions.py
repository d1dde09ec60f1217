"""Word boundaries, and each scheme's choice against the code of its paper.

Random choices are tested at fixed seeds. ALPHA is the chance that a correct generator would fail a
test at a random seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data.rows.mask_positions import Flags, Memory, draw_length, find_text, find_words
from pipeline.data.rows.masks import Masking
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.data import reference_masking

ALPHA = 1e-4
CHI_SQUARE = {2: 18.42, 9: 33.72}
"""Chi-square value exceeded with probability ALPHA, by degrees of freedom."""
MOST_DEVIATION = 5.0
"""Standard deviations that a normal variable exceeds with 6e-7, one of 170 with ALPHA."""

NGRAM = [6 / 11, 3 / 11, 2 / 11]
SPAN = [0.8**more / sum(0.8**k for k in range(10)) for more in range(10)]

# A vocabulary like WordPiece's: ids from 10 start a word, ids from 500 continue one ("##...").
SPECIAL = np.arange(1000) < 10
STARTS = np.arange(1000) < 500
BOS, EOS = 0, 2


def masking(scheme: str, rate: float = 0.15) -> Masking:
    lengths = {"ngram": NGRAM, "span": SPAN}.get(scheme, [])
    described = {"scheme": scheme, "rate": rate, "split": [0.8, 0.1], "lengths": lengths}
    return Masking.described(described, SPECIAL, STARTS, seed=0)


def row(word_lengths: list[int]) -> list[int]:
    """`<s> words </s>` with words of the given numbers of tokens; 0 is a separator."""
    ids = [BOS]
    for number, length in enumerate(word_lengths):
        ids += [20 + number, *range(500, 499 + length)] if length else [EOS]
    return [*ids, EOS]


def words_of(ids: list[int]) -> list[list[int]]:
    """Positions of each word, found the slow way."""
    words: list[list[int]] = []
    for position, id_ in enumerate(ids):
        if not SPECIAL[id_]:
            if STARTS[id_] or SPECIAL[ids[position - 1]]:
                words.append([])
            words[-1].append(position)
    return words


def chosen(scheme: str, ids: list[int], times: int, rate: float = 0.15) -> npt.NDArray[np.bool_]:
    """[times, tokens] predicted positions of one row under as many keys."""
    masks = masking(scheme, rate).draw(
        np.tile(np.array(ids, np.uint16), times),
        np.arange(times + 1, dtype=np.int64) * len(ids),
        "news",
        np.arange(times, dtype=np.uint64),
        0,
    )
    bits = np.unpackbits(masks.positions.reshape(times, -1), axis=1, bitorder="little")
    return bits[:, : len(ids)].astype(bool)


def edges(
    ids: list[int], special: npt.NDArray[np.bool_], starts: npt.NDArray[np.bool_]
) -> list[int]:
    """The word boundaries of a row, its length last."""
    array = np.array(ids, np.uint16)
    memory = Memory(np.array([array.ctypes.data]), np.array([len(ids)]), False)
    flags = Flags(special, starts, np.uint32(1), np.uint32(0))
    words = find_words(memory, flags, find_text(memory, flags, 150_000, False))
    return words.edges[: words.offsets[1]].tolist()


def test_words_of_a_wordpiece_like_table() -> None:
    ids = row([1, 3, 0, 2, 1])
    assert ids == [0, 20, 21, 500, 501, 2, 23, 500, 24, 2]
    assert edges(ids, SPECIAL, STARTS) == [0, 1, 2, 5, 6, 8, 9, 10]


def test_a_word_starts_after_a_special_token_whatever_its_flag() -> None:
    assert edges([0, 500, 501, 2, 502, 20, 2], SPECIAL, STARTS) == [
        0, 1, 3, 4, 5, 6, 7,
    ]  # fmt: skip


def test_words_continue_across_the_words_of_the_bitmap() -> None:
    ids = row([1] * 60 + [10] + [1] * 60 + [3])
    expected = [0, *(word[0] for word in words_of(ids)), len(ids) - 1, len(ids)]
    assert edges(ids, SPECIAL, STARTS) == expected


def test_traps_10_words_of_byte_level_bpe(tiny_vocabulary: Vocabulary) -> None:
    """A word starts at its space; the first word of a row has none."""
    from tokenizers import Tokenizer

    encoded = Tokenizer.from_str(tiny_vocabulary.text_json()).encode(
        "Holmes examined extraordinary footprints, silently."
    )
    ids = [tiny_vocabulary.bos, *encoded.ids, tiny_vocabulary.eos]
    found = edges(ids, tiny_vocabulary.special, tiny_vocabulary.word_starts)
    starts = [1 + number for number, token in enumerate(encoded.tokens) if token[0] == "Ġ"]
    assert len(starts) == 4 < len(ids) - 7  # some words are several tokens
    assert found == [0, 1, *starts, len(ids) - 1, len(ids)]


@pytest.mark.parametrize("special", [[0, 1, 2, 3, 999], [0, 1, 2, 3, 500, 999], [1, 2]])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_all_ordinary_ids_are_text_in_any_vocabulary(special: list[int], dtype: type) -> None:
    flags = np.zeros(1000, np.bool_)
    flags[special] = True
    ids = np.random.default_rng(0).integers(0, 1000, 1000).astype(dtype)
    ids[200:400] = 50  # words of the bitmap without special tokens
    described = {"scheme": "token", "rate": 0.999, "split": [0.8, 0.1]}
    masks = Masking.described(described, flags, flags, 0).draw(
        ids, np.array([0, 1000]), "news", np.zeros(1, np.uint64), 0
    )
    bits = np.unpackbits(masks.positions, bitorder="little")[:1000]
    assert not bits[flags[ids]].any()
    assert bits.sum() == round(0.999 * np.count_nonzero(~flags[ids]))


@pytest.mark.parametrize("scheme", ["ngram", "span"])
def test_drawn_lengths_follow_their_distribution(scheme: str) -> None:
    likely = {"ngram": NGRAM, "span": SPAN}[scheme]
    thresholds = masking(scheme)._tables[1].thresholds
    draws = np.random.default_rng(1).integers(0, 1 << 32, 50_000, dtype=np.uint64)
    lengths = [draw_length(draw, thresholds) for draw in draws]
    expected = 50_000 * np.array(likely)
    found = np.bincount(lengths, minlength=len(likely) + 1)[1:]
    assert ((found - expected) ** 2 / expected).sum() < CHI_SQUARE[len(likely) - 1]


def test_the_mean_span_has_3_8_words() -> None:
    assert round(sum(length * p for length, p in enumerate(SPAN, 1)), 1) == 3.8


def run_lengths(mask: npt.NDArray[np.bool_]) -> list[int]:
    padded = np.concatenate([[False], mask, [False]]).astype(np.int8)
    turns = np.flatnonzero(np.diff(padded))
    return (turns[1::2] - turns[::2]).tolist()


def features(masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """[masks, features]: each position, each count, and the number of runs of each length."""
    counts = np.eye(40)[masks.sum(1)]
    runs = np.zeros((len(masks), 40))
    for number, mask in enumerate(masks):
        for length in run_lengths(mask):
            runs[number, min(length, 39)] += 1
    return np.concatenate([masks, counts, runs], 1)


REFERENCES: dict[str, Callable[[list[list[int]], int, random.Random], set[int]]] = {
    "token": reference_masking.tokens,
    "electra": reference_masking.tokens,
    "whole_word": reference_masking.whole_words,
    "ngram": lambda words, budget, rng: reference_masking.ngrams(words, budget, NGRAM, rng),
    "span": lambda words, _, rng: reference_masking.spans(words, 0.25, SPAN, rng),
}
WORD_LENGTHS = {
    "english": [1, 1, 2, 1, 1, 3, 1, 2, 1, 1, 1, 4, 1, 1, 2, 1, 1, 1, 3, 1, 1, 2, 1, 5, 1, 1, 2, 1],
    "long words": [4, 6, 3, 7, 5, 4, 9, 3, 4, 12, 3],
}


@pytest.mark.parametrize("text", WORD_LENGTHS)
@pytest.mark.parametrize("scheme", REFERENCES)
def test_traps_4_8_and_9_masks_match_the_published_algorithm(scheme: str, text: str) -> None:
    """Two samples of 3,000 masks: positions, counts and run lengths have the same means."""
    ids = row(WORD_LENGTHS[text])
    budget = int(0.25 * (len(ids) - 2) + 0.5)
    rng = random.Random(7)
    theirs = np.zeros((3000, len(ids)), np.bool_)
    for mask in theirs:
        mask[list(REFERENCES[scheme](words_of(ids), budget, rng))] = True
    ours = features(chosen(scheme, ids, 3000, 0.25))
    reference = features(theirs)
    spread = np.sqrt((ours.var(0) + reference.var(0)) / 3000)
    distance = np.abs(ours.mean(0) - reference.mean(0))
    assert (distance[spread == 0] == 0).all()
    assert (distance[spread > 0] / spread[spread > 0]).max() < MOST_DEVIATION


@pytest.mark.parametrize("scheme", REFERENCES)
@pytest.mark.parametrize("rate", [0.15, 0.25, 0.6])
def test_budgets_are_kept_and_words_stay_whole(scheme: str, rate: float) -> None:
    lengths = np.random.default_rng(3).choice([0, 1, 1, 1, 2, 3, 9], 200).tolist()
    ids = row(lengths)
    words = words_of(ids)
    text = sum(map(len, words))
    masks = chosen(scheme, ids, 200, rate)
    assert not masks[:, SPECIAL[ids]].any()
    budget = -(-text * round(rate * 100) // 100) if scheme == "span" else int(rate * text + 0.5)
    counts = masks.sum(1)
    if scheme in ("token", "electra", "span"):
        assert (counts == budget).all()
    else:
        assert (counts <= budget).all() and counts.mean() > budget - 2
    split = np.array([sum(0 < mask[word].sum() < len(word) for word in words) for mask in masks])
    if scheme in ("whole_word", "ngram"):
        assert (split == 0).all()
    if scheme == "span":
        assert (split <= 1).all() and (split == 1).any()  # the last span is cut


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("token", 1), ("electra", 1), ("whole_word", 0), ("ngram", 0), ("span", 1)],
)
def test_a_row_of_one_long_word(scheme: str, expected: int) -> None:
    """Five tokens have a budget of one: schemes that keep words whole predict none."""
    assert set(chosen(scheme, row([5]), 50).sum(1).tolist()) == {expected}


@pytest.mark.parametrize("scheme", REFERENCES)
def test_a_row_without_text_predicts_nothing(scheme: str) -> None:
    assert not chosen(scheme, [BOS, EOS, EOS], 5).any()


@pytest.mark.parametrize("scheme", ["ngram", "span"])
def test_ngrams_and_spans_end_at_special_tokens(scheme: str) -> None:
    """Words of one token, with a separator after each fifth: no run is longer than five."""
    masks = chosen(scheme, row([1, 1, 1, 1, 1, 0] * 30), 300, 0.3)
    longest = max(length for mask in masks for length in run_lengths(mask))
    assert longest == 5


def test_words_longer_than_64_tokens_are_chosen_whole() -> None:
    masks = chosen("whole_word", row([100, 1, 1, 130, 1]), 200, 0.6)
    assert masks[:, 50].any() and masks[:, 150].any()
    for mask in masks:
        assert mask[1:101].all() or not mask[1:101].any()
        assert mask[103:233].all() or not mask[103:233].any()
