"""Masks: which tokens of a sequence are predicted, and what the encoder sees in their place.

A mask is a pure function of (data seed, corpus name, sequence id, duplicate). Every row has its own
counter-based random stream, so masks do not depend on workers or order, and can be drawn again: to
verify a file, or in the loader, where epoch e draws duplicate e - 1.

Special tokens are never predicted, and words, n-grams and spans end at them. Of n text tokens at
rate r:

    scheme       predicts                                      how many
    token        any subset, each equally likely               round(r n), at least 1: exactly
    electra      the same, but without random ids              the same
    whole_word   words in random order                         at most that, perhaps none
    ngram        n-grams of words, p(n) = (1/n) / sum(1/k)     at most that, perhaps none
    span         spans of words of truncated geometric length  ceil(r n): exactly

For sentence order prediction (SOP), a duplicate also has a fair coin per row, which decides whether
the loader shows segment B before A. The coin of a row with one segment is unused.

A predicted token becomes [MASK] (80 %), a random ordinary id (10 %) or stays (10 %), drawn
independently; `span` draws once for a whole span, but its random ids independently. Sources:

- token: BERT (Devlin et al. 2019, sec. 3.1), RoBERTa (Liu et al. 2019, sec. 2). electra: Clark et
  al. 2020; its code draws positions with replacement, so it predicts fewer; ours does not.
- whole_word, ngram: google-research's code of BERT and ALBERT. Words in random order start n-grams.
  An n-gram that exceeds the remaining budget is shortened. It is skipped if even its first word
  does not fit, or if it overlaps a predicted position. So p(n) is the distribution of drawn
  lengths, not of those in masks, and a row of words longer than its budget predicts none.
- random ids: uniform in BERT; by their frequency in the rows (`counts`) in SpanBERT's code.
- span: facebookresearch's code of SpanBERT (Joshi et al. 2020, sec. 3.1). The word of a random
  token starts a span; touching or overlapping spans merge; the budget can end the last in a word.

A uniform subset of fixed size is drawn at memory speed: 64 positions at a time get independent bits
of probability floor(16 x rate) / 16 from a few random words; bits are then added or removed at
random until the count is right. Given its count, a set of independent bits is uniform, and adding
or removing uniform members keeps it uniform. Only rounding remains: positions, lengths and ids are
scaled from 32-bit draws (bias below 1e-4 of a part in 1,000), and 80/10/10 is exact to 1/65,536.
Frequencies are followed by Walker's alias method in whole numbers, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import xxhash

from pipeline.config.data_settings import DataSettings
from pipeline.config.settings import parts_per_million
from pipeline.data.rows import mask_positions
from pipeline.data.rows.mask_kernel import NGRAMS, SPANS, TOKENS, MaskLaw, draw_masks
from pipeline.data.rows.mask_positions import Flags, Memory, Text, Words
from pipeline.data.tokenizers.token_ids import Ids
from pipeline.kernels.bits import GOLDEN, mix

GENERATOR_VERSION = 1
"""Stored in the manifest: the same version always draws the same masks."""

MASK, RANDOM, KEPT = 0, 1, 2
"""Action codes of a predicted position (as stored)."""

_CHOICE = {
    "token": TOKENS,
    "electra": TOKENS,
    "whole_word": NGRAMS,  # of one word each
    "ngram": NGRAMS,
    "span": SPANS,
}


@dataclass(frozen=True, slots=True)
class Masks:
    """One duplicate of the masks of n rows: ragged columns as flat values and n + 1 offsets."""

    positions: npt.NDArray[np.uint8]
    """Bitmaps, ceil(tokens / 8) bytes per row, bit i (LSB first) set if position i is predicted."""
    position_offsets: npt.NDArray[np.int32]
    actions: npt.NDArray[np.uint8]
    """2-bit codes of the predicted positions in order, LSB first, zero-padded to a byte."""
    action_offsets: npt.NDArray[np.int32]
    random_ids: Ids
    """The ids of the code-1 positions in order."""
    random_offsets: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    """[n] predicted tokens of each row."""
    swapped: npt.NDArray[np.bool_] | None
    """[n] whether this duplicate shows B before A; None without sentence order prediction."""

    @property
    def predictions(self) -> int:
        """Predicted tokens of all rows."""
        return int(self.counts.sum())


@dataclass(frozen=True, kw_only=True)
class Masking:
    """A masking scheme with its parameters, for one vocabulary and one seed."""

    scheme: str
    """token, electra, whole_word, ngram or span."""
    rate: float
    """Share of the text tokens that is predicted."""
    mask_share: float
    """Share of the choices that give [MASK]."""
    random_share: float
    """Share of the choices that give a random id."""
    lengths: tuple[float, ...]
    """Probabilities of 1, 2, ... words for ngram and span; empty for other schemes."""
    special: npt.NDArray[np.bool_]
    """[vocabulary] ids that are never predicted and never drawn."""
    word_starts: npt.NDArray[np.bool_]
    """[vocabulary] ids that start a word."""
    seed: int
    """The recipe's data seed."""
    swaps: bool = False
    """True if masks have coins for sentence order prediction."""
    counts: npt.NDArray[np.uint64] | None = None
    """[vocabulary] how often each id occurs, which random ids follow; None: all alike."""

    @classmethod
    def of(
        cls,
        data: DataSettings,
        special: npt.NDArray[np.bool_],
        word_starts: npt.NDArray[np.bool_],
        counts: npt.NDArray[np.uint64] | None = None,
    ) -> Masking:
        """The masking of a data section; special and word_starts: of the vocabulary.

        counts: of the tokens, which data.masks.random_ids=unigram needs and uniform ignores.
        """
        unigram = data.masks.random_ids == "unigram"
        assert not unigram or counts is not None
        return cls(
            scheme=data.masking,
            rate=data.masks.rate,
            mask_share=data.masks.mask_share,
            random_share=data.masks.random_share,
            lengths=_word_lengths(data),
            special=special,
            word_starts=word_starts,
            seed=data.seed,
            swaps=data.segments.label == "order",
            counts=counts if unigram else None,
        )

    @classmethod
    def described(
        cls,
        description: Mapping[str, Any],
        special: npt.NDArray[np.bool_],
        word_starts: npt.NDArray[np.bool_],
        seed: int,
        counts: npt.NDArray[np.uint64] | None = None,
    ) -> Masking:
        """The inverse of `describe`; counts: if it describes random ids by frequency."""
        return cls(
            scheme=description["scheme"],
            rate=description["rate"],
            mask_share=description["split"][0],
            random_share=description["split"][1],
            lengths=tuple(description.get("lengths", ())),
            special=special,
            word_starts=word_starts,
            seed=seed,
            swaps=description.get("swaps", False),
            counts=counts,
        )

    def describe(self) -> dict[str, Any]:
        """The entry of the manifest."""
        described = {
            "scheme": self.scheme,
            "rate": self.rate,
            "generator": GENERATOR_VERSION,
            "split": [self.mask_share, self.random_share],
        }
        if self.lengths:
            described["lengths"] = list(self.lengths)
        if self.swaps:
            described["swaps"] = True
        if self.counts is not None:
            described["random_ids"] = "unigram"
        return described

    def draw(
        self,
        ids: Ids,
        row_offsets: npt.NDArray[np.int64],
        corpus: str,
        sequences: npt.NDArray[np.uint64],
        duplicate: int,
    ) -> Masks:
        """Masks of n rows.

        ids: concatenated tokens of all rows, special tokens included; row_offsets: [n + 1]
        positions in ids; sequences: [n] sequence ids; duplicate: counted from 0.
        """
        return next(self.draw_duplicates(ids, row_offsets, corpus, sequences, (duplicate,)))

    def draw_duplicates(
        self,
        ids: Ids,
        row_offsets: npt.NDArray[np.int64],
        corpus: str,
        sequences: npt.NDArray[np.uint64],
        duplicates: range | tuple[int, ...],
    ) -> Iterator[Masks]:
        """`draw_masks` for several duplicates, one at a time; shared work is done once."""
        ids = np.ascontiguousarray(ids)
        memory = Memory(
            ids.ctypes.data + row_offsets[:-1] * ids.itemsize,
            np.diff(row_offsets),
            ids.itemsize == 4,
        )
        root = corpus_root(self.seed, corpus)
        yield from self.draw_in_memory(memory, stream_keys(root, sequences), duplicates)

    def draw_in_memory(
        self, memory: Memory, keys: npt.NDArray[np.uint64], duplicates: range | tuple[int, ...]
    ) -> Iterator[Masks]:
        """`draw_duplicates` of rows anywhere in memory; keys: [n] of `stream_keys`.

        The caller keeps the memory of the rows alive.
        """
        flags, law = self._tables
        upwards = law.choice == SPANS
        text = mask_positions.find_text(memory, flags, parts_per_million(self.rate), upwards)
        by_words = law.choice != TOKENS
        words = (
            mask_positions.find_words(memory, flags, text)
            if by_words
            else mask_positions.no_words()
        )
        for duplicate in duplicates:
            masks = _draw_masks(memory, text, words, law, keys, duplicate)
            yield replace(masks, swapped=_toss(keys, np.uint64(duplicate))) if self.swaps else masks

    @cached_property
    def _tables(self) -> tuple[Flags, MaskLaw]:
        """The flags of ids and the parameters of the scheme, for compiled code."""
        ordinary = np.flatnonzero(~self.special)
        first, last = (int(ordinary[0]), int(ordinary[-1])) if len(ordinary) else (1, 0)
        if last - first + 1 != len(ordinary):  # special ids in between: look up every id
            first, last = 1, 0
        flags = Flags(self.special, self.word_starts, np.uint32(first), np.uint32(last))
        shares = np.cumsum(self.lengths or (1.0,))
        mask_threshold = round(self.mask_share * 65536)
        pool = ordinary.astype(np.uint16 if len(self.special) <= 1 << 16 else np.uint32)
        limits, others = _alias_table(self.counts[ordinary] if self.counts is not None else [])
        law = MaskLaw(
            choice=_CHOICE[self.scheme],
            sixteenths=parts_per_million(self.rate) * 16 // 1_000_000,
            thresholds=np.round(shares / shares[-1] * 2.0**32).astype(np.uint64),
            mask_threshold=mask_threshold,
            random_threshold=mask_threshold + round(self.random_share * 65536),
            pool=pool,
            limits=limits,
            aliases=pool[others],
        )
        return flags, law


def _alias_table(
    counts: npt.NDArray[np.uint64] | Sequence[int],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Walker's alias table: limits [n] of a 32-bit draw, and the item [n] that is drawn from it on.

    A uniformly drawn item i stays if the draw is below limits[i]. counts: [n], not all 0. In whole
    numbers (Vose 1991), so rounding is below 2**-32 of an item's 1/n, and 0 is never drawn.
    """
    size = len(counts)
    limits, others = np.full(size, 1 << 32, np.uint64), np.arange(size)
    # Python's integers: the shift below passes 64 bits
    left = [int(count) * size for count in counts]
    full = sum(left) // max(1, size)  # exact: the sum is size times all counts
    small = [index for index, weight in enumerate(left) if weight < full]
    large = [index for index, weight in enumerate(left) if weight >= full]
    while small and large:
        index, donor = small.pop(), large[-1]
        limits[index], others[index] = (left[index] << 32) // full, donor
        left[donor] -= full - left[index]
        if left[donor] < full:
            small.append(large.pop())
    return limits, others  # items left over weigh exactly `full`, and keep the limit 2^32


def corpus_root(seed: int, corpus: str) -> np.uint64:
    """Hash that separates the random streams of corpora."""
    # a hash, not seed + id, where runs with neighbouring seeds share masks (Megatron's BERT)
    root: np.uint64 = np.uint64(xxhash.xxh3_64_intdigest(f"{seed}/{corpus}".encode()))
    return root


def stream_keys(
    root: np.uint64 | npt.NDArray[np.uint64], sequences: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """The random-stream key of every sequence [n], shared by its duplicates.

    root: `corpus_root` of all, or [n] of each.
    """
    return _mix_all(sequences.astype(np.uint64) ^ root)


def _word_lengths(data: DataSettings) -> tuple[float, ...]:
    """`Masking.lengths` of a recipe's data section."""
    if data.masking == "ngram":
        likely = [1 / count for count in range(1, data.masks.max_ngram + 1)]
    elif data.masking == "span":
        likely = [(1 - data.masks.span_p) ** more for more in range(data.masks.max_span)]
    else:
        return ()
    return tuple(value / sum(likely) for value in likely)


def _draw_masks(
    memory: Memory,
    text: Text,
    words: Words,
    law: MaskLaw,
    keys: npt.NDArray[np.uint64],
    duplicate: int,
) -> Masks:
    rows, most = len(keys), int(text.budgets.sum())
    position_offsets = np.zeros(rows + 1, np.int32)
    np.cumsum((memory.tokens + 7) // 8, out=position_offsets[1:])
    # The action and random-id columns are allocated at their largest size, then trimmed.
    action_room = int(((text.budgets + 3) // 4).sum())
    masks = Masks(
        positions=np.empty(position_offsets[-1] + 7, np.uint8),  # the kernel stores whole words
        position_offsets=position_offsets,
        actions=np.zeros(action_room, np.uint8),  # spans set their codes by OR
        action_offsets=np.zeros(rows + 1, np.int32),
        random_ids=np.empty(most + 2, law.pool.dtype),  # the kernel writes at least two per row
        random_offsets=np.zeros(rows + 1, np.int32),
        counts=np.zeros(rows, np.int64),
        swapped=None,
    )
    draw_masks(
        memory.tokens,
        text,
        words,
        law,
        keys,
        np.uint64(duplicate),
        masks.positions,
        masks.position_offsets,
        masks.actions,
        masks.action_offsets,
        masks.random_ids,
        masks.random_offsets,
        masks.counts,
    )
    return replace(
        masks,
        positions=masks.positions[: position_offsets[-1]],
        actions=masks.actions[: masks.action_offsets[-1]],
        # a view would keep the room for a random id at every prediction
        random_ids=masks.random_ids[: masks.random_offsets[-1]].copy(),
    )


@numba.njit(cache=True, nogil=True)
def _toss(keys: npt.NDArray[np.uint64], duplicate: np.uint64) -> npt.NDArray[np.bool_]:
    """[n] a coin per row, from the random word before those of its masks."""
    coins = np.empty(len(keys), np.bool_)
    for row in range(len(keys)):
        stream = mix(keys[row] + (duplicate + np.uint64(1)) * GOLDEN)
        coins[row] = mix(stream) >> np.uint64(63) != 0
    return coins


@numba.njit(cache=True, nogil=True)
def _mix_all(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """[n] `mix` of each word."""
    mixed = np.empty_like(words)
    for index in range(len(words)):
        mixed[index] = mix(words[index])
    return mixed
