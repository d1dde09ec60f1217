"""Word counts -> unigram pieces with log probabilities (Kudo 2018, sec. 3.2), deterministically.

The algorithm is that of SentencePiece's unigram_model_trainer.cc:

1. Start with all characters, and the substrings that cover most text.
2. Fit the probabilities of the pieces by EM.
3. Drop the quarter that costs the least likelihood, and repeat from 2.
4. Take all characters and the likeliest pieces.

Pieces are looked up by 64-bit hashes of their characters; two that collide (about once in 10^6
trainings) count as one.

The trainer of `tokenizers` 0.23 sums in the order of a randomly keyed hash table, so its scores
differ between runs. The `sentencepiece` package (0.2.3) is deterministic with one thread, not with
two. On 56 MB of English it took 35 s for 30,000 pieces that give 4.76 bytes per token on other text
(4.36 with its default splits at digits and changes of script); ours takes 18.5 s and gives 4.79.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from pipeline.kernels.bits import GOLDEN, U, mix

LONGEST_PIECE = 16  # characters; SentencePiece max_sentencepiece_length
SEED_PIECES = 1_000_000  # SentencePiece seed_sentencepiece_size
KEPT_SHARE = 0.75  # of the pieces, per round; SentencePiece shrinking_factor
EM_STEPS = 2  # per round; SentencePiece num_sub_iterations
_LEAST_COUNT = 0.5  # expected; SentencePiece kExpectedFrequencyThreshold
_DECIMALS = 6  # of a score: few enough that every JSON parser reads the same number
_NONE = -1e30  # log probability of a string that is not a piece

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CountedWords:
    """Distinct words, concatenated as code points."""

    codes: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    """[words + 1] positions in `codes`."""
    counts: Floats
    """[words] number of occurrences in the text."""


@dataclass(slots=True)
class _Pieces:
    """Candidate pieces: position in `CountedWords.codes`, length, and log probability."""

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    scores: Floats

    def keep(self, chosen: npt.NDArray[np.int64]) -> None:
        self.starts, self.lengths = self.starts[chosen], self.lengths[chosen]
        self.scores = self.scores[chosen]


def train_pieces(counts: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """At most `size` pieces of the words in `counts`, most likely first, with all characters.

    Fewer if too few substrings of the words occur twice.
    """
    ordered = sorted(counts)  # fixes the order of all sums of floats below
    text = "".join(ordered)
    words = CountedWords(
        np.frombuffer(text.encode("utf-32-le"), np.uint32),
        np.cumsum([0, *map(len, ordered)]),
        np.array([counts[word] for word in ordered], np.float64),
    )
    pieces = _seed(words)  # 1. far more than `size`
    while True:
        for _ in range(EM_STEPS):
            _fit(words, pieces)  # 2.
        if len(pieces.scores) <= size * 1.1:  # as in SentencePiece, which then takes the likeliest
            break
        # 3. not below what the last step chooses from
        _prune(words, pieces, max(int(len(pieces.scores) * KEPT_SHARE), int(size * 1.1)))
    single = pieces.lengths == 1  # 4. first, so that `size` cuts off no character
    order = np.lexsort((pieces.starts, pieces.lengths, -pieces.scores, ~single))
    pieces.keep(order[:size])
    pieces.keep(np.lexsort((pieces.starts, pieces.lengths, -pieces.scores)))
    return [
        (text[start : start + length], round(float(score), _DECIMALS))
        for start, length, score in zip(
            pieces.starts.tolist(), pieces.lengths.tolist(), pieces.scores
        )
    ]


def _seed(words: CountedWords) -> _Pieces:
    """All characters, and the substrings that cover most text: count times length."""
    ends = np.repeat(words.offsets[1:], np.diff(words.offsets))
    weights = np.repeat(words.counts, np.diff(words.offsets))
    active = np.arange(len(words.codes))
    hashes = np.zeros(len(words.codes), np.uint64)
    found: list[tuple[npt.NDArray[np.int64], int, Floats]] = []
    for length in range(1, LONGEST_PIECE + 1):
        active = active[active + length <= ends[active]]  # no substring crosses words
        hashes[active] = _extend_all(hashes[active], words.codes[active + length - 1])
        _, first, which = np.unique(hashes[active], return_index=True, return_inverse=True)
        often: Floats = np.bincount(which, weights[active], len(first)).astype(np.float64)
        enough = (often >= 2) | (length == 1)
        found.append((active[first[enough]], length, often[enough]))
        active = active[enough[which]]  # extensions of a rare string are rare
    starts = np.concatenate([places for places, _, _ in found])
    lengths = np.repeat([length for _, length, _ in found], [len(places) for places, _, _ in found])
    text = np.concatenate([often * length for _, length, often in found])
    # characters first; places and lengths break ties, so the order of hashes does not matter
    order = np.lexsort((starts, lengths, -text, lengths > 1))[:SEED_PIECES]
    pieces = _Pieces(starts, lengths, np.log(text) - np.log(text.sum()))
    pieces.keep(order)
    return pieces


def _fit(words: CountedWords, pieces: _Pieces) -> None:
    """One step of EM; drops pieces that are hardly used, but no characters."""
    table = _table(words.codes, pieces.starts, pieces.lengths)
    expected = np.zeros(len(pieces.scores))
    _expect(words.codes, words.offsets, words.counts, *table, pieces.scores, expected)
    chosen = np.flatnonzero((expected >= _LEAST_COUNT) | (pieces.lengths == 1))
    pieces.keep(chosen)
    expected = np.maximum(expected[chosen], _LEAST_COUNT)
    # the digamma instead of the logarithm: a sparse prior (Liang et al. 2007), as SentencePiece
    pieces.scores = _digamma(expected) - _digamma(expected.sum(keepdims=True))


def _prune(words: CountedWords, pieces: _Pieces, size: int) -> None:
    """Keep the `size` pieces whose removal would cost the most likelihood."""
    table = _table(words.codes, pieces.starts, pieces.lengths)
    used = np.zeros(len(pieces.scores))
    _count_best(words.codes, words.offsets, words.counts, *table, pieces.scores, used)
    losses = np.empty(len(pieces.scores))
    _losses(words.codes, pieces.starts, pieces.lengths, *table, pieces.scores, used, losses)
    order = np.lexsort((pieces.starts, pieces.lengths, -losses))[:size]
    pieces.keep(np.sort(order[np.isfinite(losses[order]) | (losses[order] > 0)]))


def _digamma(x: Floats) -> Floats:
    """Digamma by its asymptotic series after a shift above 7; error below 1e-10."""
    shift, result = np.array(x), np.zeros(len(x))
    for _ in range(7):
        small = shift < 7
        result[small] -= 1 / shift[small]
        shift[small] += 1
    inverse = 1 / (shift * shift)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    digamma: Floats = result + np.log(shift) - 0.5 / shift - series
    return digamma


def _table(
    codes: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """A hash table of the pieces: keys (0: empty slot) and piece numbers."""
    # at most half full, so probes are short
    slots = 1 << int(len(starts) * 2).bit_length()
    keys, numbers = np.zeros(slots, np.uint64), np.full(slots, -1, np.int32)
    _fill(codes, starts, lengths, keys, numbers)
    return keys, numbers


@numba.njit(cache=True, nogil=True, inline="always")
def _extend(key, code):  # type: ignore[no-untyped-def]
    """The hash of a string (key) extended by one character (code)."""
    return mix((key + GOLDEN) ^ (U(code) << U(32) | U(code))) | U(1)


@numba.njit(cache=True, nogil=True)
def _extend_all(keys, codes):  # type: ignore[no-untyped-def]
    """Hashes of strings extended by one character; keys: uint64 [n], codes: uint32 [n]."""
    longer = np.empty_like(keys)
    for index in range(len(keys)):
        longer[index] = _extend(keys[index], codes[index])
    return longer


@numba.njit(cache=True, nogil=True)
def _fill(codes, starts, lengths, keys, numbers):  # type: ignore[no-untyped-def]
    """Insert pieces, starts and lengths int64 [pieces], into keys and numbers, [slots] each."""
    mask = U(len(keys) - 1)
    for piece in range(len(starts)):
        key = U(0)
        for place in range(starts[piece], starts[piece] + lengths[piece]):
            key = _extend(key, codes[place])
        slot = key >> U(20) & mask  # the lowest bit of a key is always 1
        while keys[slot] != U(0):
            slot = (slot + U(1)) & mask
        keys[slot] = key
        numbers[slot] = piece


@numba.njit(cache=True, nogil=True, inline="always")
def _find(key, keys, numbers):  # type: ignore[no-untyped-def]
    """Number of the piece with a hash, -1 if it is not a piece; keys, numbers: [slots]."""
    mask = U(len(keys) - 1)
    slot = key >> U(20) & mask
    while keys[slot] != U(0):
        if keys[slot] == key:
            return numbers[slot]
        slot = (slot + U(1)) & mask
    return np.int32(-1)


@numba.njit(cache=True, nogil=True, inline="always")
def _log_add(a, b):  # type: ignore[no-untyped-def]
    """log(exp(a) + exp(b))."""
    high, low = (a, b) if a > b else (b, a)
    # exp(-40) is below the precision of a double
    return high if high - low > 40.0 else high + np.log1p(np.exp(low - high))


@numba.njit(cache=True, nogil=True)
def _expect(codes, offsets, counts, keys, numbers, scores, expected):  # type: ignore[no-untyped-def]
    """Add expected counts of pieces to expected, float64 [pieces], by forward-backward sums.

    codes: uint32 [characters]; offsets: [words + 1]; counts: [words]; keys, numbers: [slots];
    scores: float64 [pieces].
    """
    for word in range(len(counts)):
        begin, size = offsets[word], offsets[word + 1] - offsets[word]
        forward = np.full(size + 1, _NONE)
        backward = np.full(size + 1, _NONE)
        edges = np.full((size, LONGEST_PIECE), np.int32(-1))
        forward[0] = backward[size] = 0.0
        for place in range(size):
            key = U(0)
            for length in range(1, min(LONGEST_PIECE, size - place) + 1):
                key = _extend(key, codes[begin + place + length - 1])
                piece = _find(key, keys, numbers)
                edges[place, length - 1] = piece  # spares the backward pass the look-ups
                if piece >= 0:
                    total = forward[place] + scores[piece]
                    forward[place + length] = _log_add(forward[place + length], total)
        for place in range(size - 1, -1, -1):
            for length in range(1, min(LONGEST_PIECE, size - place) + 1):
                piece = edges[place, length - 1]
                if piece >= 0:
                    total = backward[place + length] + scores[piece]
                    backward[place] = _log_add(backward[place], total)
                    share = forward[place] + scores[piece] + backward[place + length]
                    expected[piece] += counts[word] * np.exp(share - forward[size])


@numba.njit(cache=True, nogil=True)
def _best(codes, begin, size, keys, numbers, scores, without, path):  # type: ignore[no-untyped-def]
    """Write the most likely segmentation of a string to path, int64, last piece first.

    codes[begin : begin + size]: the string; without: number of a piece not to use, or -1.
    Returns the number of pieces, and their log probability.
    """
    score = np.full(size + 1, _NONE)
    lengths = np.zeros(size + 1, np.int64)
    pieces = np.zeros(size + 1, np.int64)
    score[0] = 0.0
    for place in range(size):
        key = U(0)
        for length in range(1, min(LONGEST_PIECE, size - place) + 1):
            key = _extend(key, codes[begin + place + length - 1])
            piece = _find(key, keys, numbers)
            if piece >= 0 and piece != without:
                total = score[place] + scores[piece]
                if total > score[place + length]:
                    score[place + length] = total
                    lengths[place + length] = length
                    pieces[place + length] = piece
    used, place = 0, size
    while place > 0:
        path[used] = pieces[place]
        used += 1
        place -= lengths[place]
    return used, score[size]


@numba.njit(cache=True, nogil=True)
def _count_best(codes, offsets, counts, keys, numbers, scores, used):  # type: ignore[no-untyped-def]
    """Add piece counts in the words' most likely segmentations to used, float64 [pieces]."""
    path = np.empty(np.max(np.diff(offsets)), np.int64)
    for word in range(len(counts)):
        size = offsets[word + 1] - offsets[word]
        length, _ = _best(codes, offsets[word], size, keys, numbers, scores, -1, path)
        for index in range(length):
            used[path[index]] += counts[word]


@numba.njit(cache=True, nogil=True)
def _losses(codes, starts, lengths, keys, numbers, scores, used, losses):  # type: ignore[no-untyped-def]
    """Write to losses, float64 [pieces], the log likelihood lost without each piece.

    -inf: the piece is not needed; inf: a character, which is always kept.
    """
    total = used.sum()
    path = np.empty(LONGEST_PIECE, np.int64)
    for piece in range(len(losses)):
        if lengths[piece] == 1:
            losses[piece] = np.inf
            continue
        parts, other = _best(
            codes, starts[piece], lengths[piece], keys, numbers, scores, piece, path
        )
        if used[piece] == 0 or other > scores[piece]:
            losses[piece] = -np.inf
            continue
        without = 0.0
        for index in range(parts):
            without += np.log(used[path[index]] + used[piece])
        without -= parts * np.log(total + used[piece] * (parts - 1))
        losses[piece] = used[piece] / total * (np.log(used[piece]) - np.log(total) - without)
