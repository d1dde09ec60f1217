"""Word boundaries, and each scheme's choice against the code of its paper.

Random choices are tested at fixed seeds. ALPHA is the chance that a correct generator would fail a
test at a random seed.
"""

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer

from pipeline.data.rows.mask_positions import Flags, Memory, draw_length, find_text, find_words
from pipeline.data.rows.masks import Masking
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.data import reference_masking
from tests.pipeline.data.rows.toys import NGRAM, SPAN, described, draw_rows, predicted

ALPHA = 1e-4
CHI_SQUARE = {2: 18.42, 9: 33.72}
"""Chi-square value exceeded with probability ALPHA, by degrees of freedom."""
MOST_DEVIATION = 5.0
"""Standard deviations that a normal variable exceeds with 6e-7, one of 170 with ALPHA."""

# A vocabulary like WordPiece's: ids from 10 start a word, ids from 500 continue one ("##...").
SPECIAL = np.arange(1000) < 10
STARTS = np.arange(1000) < 500
BOS, EOS = 0, 2


def masking(scheme: str, rate: float = 0.15) -> Masking:
    return Masking.described(described(scheme, rate), SPECIAL, STARTS, seed=0)


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
    rows = np.tile(np.array(ids, np.uint16), (times, 1))
    return predicted(draw_rows(masking(scheme, rate), rows), len(ids))


def edges(
    ids: list[int], special: npt.NDArray[np.bool_], starts: npt.NDArray[np.bool_]
) -> list[int]:
    """The word boundaries of a row, its length last."""
    array = np.array(ids, np.uint16)
    memory = Memory(np.array([array.ctypes.data]), np.array([len(ids)]), False)
    flags = Flags(special, starts, np.uint32(1), np.uint32(0))
    words = find_words(memory, flags, find_text(memory, flags, 150_000, False))
    return words.edges[: words.offsets[1]].tolist()


def test_words_start_at_their_first_token_and_after_special_ones() -> None:
    ids = row([1, 3, 0, 2, 1])
    assert ids == [0, 20, 21, 500, 501, 2, 23, 500, 24, 2]
    assert edges(ids, SPECIAL, STARTS) == [0, 1, 2, 5, 6, 8, 9, 10]
    found = edges([0, 500, 501, 2, 502, 20, 2], SPECIAL, STARTS)
    assert found == [0, 1, 3, 4, 5, 6, 7]  # whatever their flags
    ids = row([1] * 60 + [10] + [1] * 60 + [3])  # across the words of the bitmap
    expected = [0, *(word[0] for word in words_of(ids)), len(ids) - 1, len(ids)]
    assert edges(ids, SPECIAL, STARTS) == expected


def test_traps_10_words_of_byte_level_bpe(tiny_vocabulary: Vocabulary) -> None:
    """A word starts at its space; the first word of a row has none."""
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
    flags = np.isin(np.arange(1000), special)
    ids = np.random.default_rng(0).integers(0, 1000, 1000).astype(dtype)
    ids[200:400] = 50  # words of the bitmap without special tokens
    law = Masking.described(described(rate=0.999), flags, flags, 0)
    (bits,) = predicted(draw_rows(law, ids[np.newaxis]), 1000)
    assert not bits[flags[ids]].any()
    assert bits.sum() == round(0.999 * np.count_nonzero(~flags[ids]))


def test_drawn_lengths_follow_their_distribution() -> None:
    """The mean span has 3.8 words."""
    assert round(sum(length * p for length, p in enumerate(SPAN, 1)), 1) == 3.8
    for scheme, likely in {"ngram": NGRAM, "span": SPAN}.items():
        thresholds = masking(scheme)._tables[1].thresholds
        draws = np.random.default_rng(1).integers(0, 1 << 32, 50_000, dtype=np.uint64)
        lengths = [draw_length(draw, thresholds) for draw in draws]
        expected = 50_000 * np.array(likely)
        found = np.bincount(lengths, minlength=len(likely) + 1)[1:]
        assert ((found - expected) ** 2 / expected).sum() < CHI_SQUARE[len(likely) - 1]


def run_lengths(masks: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The mask of each run of predicted tokens, and its length."""
    turns = np.diff(np.pad(masks, ((0, 0), (1, 1))).astype(np.int8))
    owners, starts = np.nonzero(turns == 1)
    return owners, np.nonzero(turns == -1)[1] - starts


def features(masks: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """[masks, features]: each position, each count, and the number of runs of each length."""
    runs = np.zeros((len(masks), 40))
    owners, lengths = run_lengths(masks)
    np.add.at(runs, (owners, np.minimum(lengths, 39)), 1)
    return np.concatenate([masks, np.eye(40)[masks.sum(1)], runs], 1)


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
def test_budgets_are_kept_and_words_stay_whole(scheme: str) -> None:
    keeps_words = scheme in ("whole_word", "ngram")
    ids = row(np.random.default_rng(3).choice([0, 1, 1, 1, 2, 3, 9], 200).tolist())
    words = words_of(ids)
    text = sum(map(len, words))
    for rate in (0.15, 0.25, 0.6):
        masks = chosen(scheme, ids, 200, rate)
        assert not masks[:, SPECIAL[ids]].any()
        budget = -(-text * round(rate * 100) // 100) if scheme == "span" else int(rate * text + 0.5)
        counts = masks.sum(1)
        if keeps_words:
            assert (counts <= budget).all() and counts.mean() > budget - 2
        else:
            assert (counts == budget).all()
        split = sum((masks[:, word].any(1) & ~masks[:, word].all(1)).astype(int) for word in words)
        assert scheme in ("token", "electra") or (split <= (scheme == "span")).all()
        assert scheme != "span" or (split == 1).any()  # the last span is cut
    # five tokens have a budget of one: schemes that keep words whole predict none
    assert set(chosen(scheme, row([5]), 50).sum(1).tolist()) == {0 if keeps_words else 1}
    assert not chosen(scheme, [BOS, EOS, EOS], 5).any()
    if scheme in ("ngram", "span"):  # words of one token: no run crosses a separator
        masks = chosen(scheme, row([1, 1, 1, 1, 1, 0] * 30), 300, 0.3)
        assert run_lengths(masks)[1].max() == 5


def test_words_longer_than_64_tokens_are_chosen_whole() -> None:
    masks = chosen("whole_word", row([100, 1, 1, 130, 1]), 200, 0.6)
    assert masks[:, 50].any() and masks[:, 150].any()
    for word in (masks[:, 1:101], masks[:, 103:233]):
        assert (word.all(1) | ~word.any(1)).all()
