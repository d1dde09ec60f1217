"""Rows in memory -> a micro-batch of torch tensors, as the trainer takes it.

Legend: T tokens, R rows, P pieces and K slots of predictions of a micro-batch: on a CPU as many as
there are, and at least one; on a GPU the same in every micro-batch, see `placement.Capacity`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch

from pipeline.config.formats import PAIR_FORMATS, SEPARATORS, Attention
from pipeline.data.shards.manifest import Manifest
from pipeline.kernels.addresses import load_uint8, load_uint16, load_uint32
from pipeline.kernels.bits import GOLDEN, mix
from pipeline.kernels.permutation import IntArray
from pipeline.loading import decode
from pipeline.loading.order import Located
from pipeline.loading.placement import Capacity
from pipeline.loading.resolve import StructArray

DROPOUT_STREAM = np.uint64(0xD509)
"""Changes the seed, so that dropout's bits are not those of `draw_bits`."""
DEAD_TOKENS = 2
"""Tokens of a micro-batch without rows on a CPU."""


class LossCounts(NamedTuple):
    """The counts that the parts of a loss are averaged over."""

    predictions: int
    """Predicted tokens."""
    tokens: int
    """Tokens of all sequences, with special tokens."""
    pairs: int
    """Sequences of two segments with a label."""
    boundaries: int = 0
    """Predicted tokens with a span boundary target; 0 where they are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One micro-batch of one rank. Integers are int64 unless noted; weights are float32."""

    step: int
    micro_batch: int
    input_ids: torch.Tensor
    """[T] the encoder's input: masked rows one after another, then dead tokens, the pad id."""
    cu_seqlens: torch.Tensor
    """int32 [P + 1], from 0 to T: bounds of the pieces that attention stays within, dead tokens
    included; on a GPU filled up with T."""
    longest: int
    """Most tokens of a piece."""
    row_starts: torch.Tensor
    """[R] first token of each sequence; on a GPU filled up with 0."""
    positions: torch.Tensor
    """[K] predicted tokens; used slots first, the rest 0."""
    labels: torch.Tensor
    """[K] the original ids there; unused slots 0."""
    weights: torch.Tensor
    """[K] 1 for used slots, 0 for the rest: sum the loss with these, never divide by K."""
    counts: LossCounts
    samples: Located
    """Sources of the sequences."""
    segment_ids: torch.Tensor | None = None
    """[T] 1 in segment B; only for formats that pair segments."""
    pair_labels: torch.Tensor | None = None
    """[R] 0 in order, 1 random next or swapped, -1 none; only for formats that pair segments."""
    draws: torch.Tensor | None = None
    """[K] random bits, see `draw_bits`; only if the loader was asked for them."""
    dropout_keys: torch.Tensor | None = None
    """int32 [T] random bits, see `draw_keys`; only if the loader was asked for them."""

    @property
    def predictions(self) -> int:
        """Used slots."""
        return self.counts.predictions

    @property
    def tokens(self) -> int:
        """Tokens of all sequences, see `LossCounts`; those after them are dead."""
        return self.counts.tokens

    @property
    def rows(self) -> list[slice]:
        """The tokens of each sequence."""
        starts = self.row_starts[: len(self.samples)].tolist()
        return [slice(*pair) for pair in pairwise([*starts, self.tokens])]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name -> tensor, of those that there are."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: part for name, part in values.items() if isinstance(part, torch.Tensor)}

    def to(self, device: torch.device | str) -> MicroBatch:
        """The same batch on `device`; copies from pinned memory do not block."""
        moved: dict[str, Any] = {
            name: part.to(device, non_blocking=True) for name, part in self.tensors().items()
        }
        return replace(self, **moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Fields of a micro-batch that only some objectives need."""

    most_targets: int = 0
    """Most targets of a span, for `LossCounts.boundaries`; 0 counts none."""
    draws_seed: int | None = None
    """Seed of `MicroBatch.draws`; None for no draws."""
    dropout_seed: int | None = None
    """Seed of `MicroBatch.dropout_keys`; None for no keys."""


NO_EXTRAS = Extras()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchForm:
    """The form of a loader's micro-batches."""

    attention: Attention = "row"
    """See `BatchSettings`."""
    extras: Extras = NO_EXTRAS
    capacity: Capacity | None = None
    """The sizes of every micro-batch, for a GPU; None for as many tokens as `per_device` rows
    have."""
    pin_memory: bool = False
    """Pin memory for copies to a GPU."""


PLAIN = BatchForm()
"""Rows as they are, for a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBuilder:
    """Builds the micro-batches of some datasets."""

    length: int
    """Most tokens of a row."""
    special_ids: StructArray
    """SPECIAL_IDS [1]."""
    pairs: bool
    """Give `segment_ids` and `pair_labels`."""
    form: BatchForm

    @classmethod
    def of(cls, manifest: Manifest, form: BatchForm) -> BatchBuilder:
        """Builder for datasets prepared like the one of `manifest`."""
        tokenizer = manifest.tokenizer
        special_ids = np.zeros(1, decode.SPECIAL_IDS)
        for name in ("bos", "pad", "eos", "mask"):
            special_ids[name] = tokenizer[name]
        special_ids["separators"] = SEPARATORS[tokenizer["kind"]]
        special_ids["wide"] = tokenizer["size"] > 1 << 16
        return cls(
            length=manifest.sequence_length,
            special_ids=special_ids,
            pairs=manifest.data.get("format") in PAIR_FORMATS,
            form=form,
        )

    @property
    def documents(self) -> bool:
        """True if documents are pieces, not rows."""
        return self.form.attention == "document"

    @property
    def details(self) -> bool:
        """True if a micro-batch needs the documents and segments of its rows."""
        return self.documents or self.pairs

    def pieces(self, records: StructArray) -> IntArray:
        """Number of pieces of each of `records` [n]."""
        return decode.piece_counts(records, self.documents)

    def counts(self, records: StructArray) -> LossCounts:
        """The loss counts of `records` [n]."""
        tokens, pairs, boundaries = records["tokens"], 0, 0
        if self.pairs:
            pairs = int(((records["label"] >= 0) & (tokens > 0)).sum())
        if self.form.extras.most_targets:
            boundaries = boundary_targets(records, self.special_ids, self.form.extras.most_targets)
        return LossCounts(int(records["predictions"].sum()), int(tokens.sum()), pairs, boundaries)

    def batch(
        self, step: int, micro_batch: int, records: StructArray, samples: Located
    ) -> MicroBatch:
        """The micro-batch of `records` [R], each with tokens; without any, all its tokens are
        dead."""
        counts = self.counts(records)
        ends = records["tokens"].cumsum()
        starts = ends - records["tokens"]
        tokens = max(counts.tokens, DEAD_TOKENS)
        slots = max(1, counts.predictions)
        if self.form.capacity:
            tokens, slots = self.form.capacity.tokens, self.form.capacity.predictions
        integers = self._empty(tokens + 2 * slots, torch.int64)
        input_ids, positions, labels = integers.split_with_sizes((tokens, slots, slots))
        weights = self._empty(slots, torch.float32)
        # Views: the kernel writes into the tensors.
        outputs = [tensor.numpy() for tensor in (input_ids, positions, labels, weights)]
        decode.decode(records, starts, self.special_ids, *outputs)
        bounds = decode.pieces(records, starts, tokens, self.length, self.documents)
        draws = None
        if self.form.extras.draws_seed is not None:
            bits = draw_bits(self.form.extras.draws_seed, samples, starts, positions.numpy())
            draws = self._fill(bits, slots, 0)
        dropout_keys = None
        if self.form.extras.dropout_seed is not None:
            dropout_keys = self._empty(tokens, torch.int32)
            draw_keys(
                self.form.extras.dropout_seed, samples, starts, counts.tokens, dropout_keys.numpy()
            )
        return MicroBatch(
            step=step,
            micro_batch=micro_batch,
            input_ids=input_ids,
            cu_seqlens=self._fill(bounds, self._most_pieces(len(bounds) - 1) + 1, tokens),
            # Not the longest piece here: shapes depend on this, and a GPU needs the same at every
            # step.
            longest=self.length,
            row_starts=self._fill(starts, self._rows(len(records)), 0),
            positions=positions,
            labels=labels,
            weights=weights,
            counts=counts,
            samples=samples,
            draws=draws,
            dropout_keys=dropout_keys,
            **(self._pairs(records, starts, tokens) if self.pairs else {}),
        )

    def _pairs(
        self, records: StructArray, starts: IntArray, tokens: int
    ) -> dict[str, torch.Tensor]:
        """The fields of a batch that only pairs of segments have."""
        rows = self._rows(len(records))
        integers = self._empty(tokens + rows, torch.int64)
        segment_ids, pair_labels = integers.split_with_sizes((tokens, rows))
        decode.segments(records, starts, self.special_ids, segment_ids.numpy(), pair_labels.numpy())
        return {"segment_ids": segment_ids, "pair_labels": pair_labels}

    def _rows(self, count: int) -> int:
        """Entries for this many rows."""
        return self.form.capacity.rows if self.form.capacity else max(1, count)

    def _most_pieces(self, count: int) -> int:
        """Entries for this many pieces."""
        if self.form.capacity is None:
            return count
        return self.form.capacity.pieces + self.form.capacity.dead_pieces(self.length)

    def _empty(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=self.form.pin_memory)

    def _fill(self, values: np.ndarray, size: int, rest: int) -> torch.Tensor:
        """The values, then `rest`."""
        given = torch.from_numpy(values)
        if size == values.size and not self.form.pin_memory:
            return given
        filled = self._empty(size, given.dtype)
        out = filled.numpy()
        out[: values.size] = values
        out[values.size :] = rest
        return filled


@numba.njit(cache=True, nogil=True)
def boundary_targets(records: StructArray, special_ids: StructArray, most: int) -> int:
    """Targets in the rows of `records` [n]: the words of each span, up to `most` per span.

    `model.objectives.span_boundary` decides which positions have one, from the masked spans and the
    ids next to them. Here they are counted from the stored bits, before a micro-batch is decoded,
    for the step's loss denominators over all ranks. special_ids: `decode.SPECIAL_IDS` [1].

    A span next to bos or eos has no target. Swapped segments make no difference, because special
    tokens enclose both of them.
    """
    found = 0
    bos, eos, wide = special_ids[0].bos, special_ids[0].eos, special_ids[0].wide != 0
    for row in range(records.size):
        ids, bitmap = records[row].ids, records[row].bitmap
        size = 0
        for place in range(records[row].tokens):
            if (load_uint8(bitmap + (place >> 3)) >> (place & 7)) & 1:
                size += 1
            elif size:
                # Special tokens are never predicted, so each span ends before its row does.
                if not (
                    _is_edge(ids, place - size - 1, wide, bos, eos)
                    or _is_edge(ids, place, wide, bos, eos)
                ):
                    found += min(size, most)
                size = 0
    return found


@numba.njit(cache=True, nogil=True)
def _is_edge(ids: int, place: int, wide: bool, bos: int, eos: int) -> bool:
    """True if token `place` of the row whose ids are at address `ids` is bos or eos."""
    token = (
        np.int64(load_uint32(ids + 4 * place)) if wide else np.int64(load_uint16(ids + 2 * place))
    )
    edge: bool = token in (bos, eos)
    return edge


def draw_bits(seed: int, samples: Located, starts: IntArray, positions: IntArray) -> IntArray:
    """64 random bits for each slot [K], for ELECTRA's generator.

    They are a function of the seed, the row, the pass over the data and the column in the row. So
    the number of ranks or micro-batches does not change the samples, a resumed run samples the same
    tokens, and a validation row always gets the same ones.

    samples: where the batch's rows come from; starts: the first token of each row [R], ascending;
    positions: predicted tokens [K], 0 in unused slots.
    """
    drawn = np.zeros(len(positions), np.int64)
    if len(samples):
        # Unused slots point at token 0 and draw its bits; their weight is 0.
        row = np.searchsorted(starts, positions, side="right") - 1
        _fill_bits(np.uint64(seed), *_origins(samples[row]), positions - starts[row], drawn)
    return drawn


def draw_keys(
    seed: int, samples: Located, starts: IntArray, tokens: int, keys: npt.NDArray[np.int32]
) -> None:
    """Fill `keys` [T] with 32 random bits per token, for dropout.

    As in `draw_bits`, they are a function of the seed, the dataset, the pass, the row and the
    column, so any number of ranks drops the same numbers. samples, starts: as there; tokens: of all
    rows. The dead tokens after them get 0.
    """
    _fill_keys(np.uint64(seed) ^ DROPOUT_STREAM, *_origins(samples), starts, tokens, keys)


def _origins(samples: Located) -> tuple[IntArray, IntArray, IntArray]:
    return samples.dataset, samples.pass_number, samples.row


@numba.njit(cache=True, nogil=True, inline="always")
def _absorb(word: np.uint64, part: np.int64) -> np.uint64:
    """The hash `word`, extended by one number."""
    absorbed: np.uint64 = mix(word + (np.uint64(part) + np.uint64(1)) * GOLDEN)
    return absorbed


@numba.njit(cache=True, nogil=True)
def _fill_bits(
    seed: np.uint64,
    dataset: IntArray,
    pass_number: IntArray,
    rows: IntArray,
    places: IntArray,
    drawn: IntArray,
) -> None:
    """Fill `drawn` [K]; the other arrays [K] hold each slot's origin."""
    for slot in range(len(drawn)):
        word = mix(seed + GOLDEN)
        for part in (dataset[slot], pass_number[slot], rows[slot], places[slot]):
            word = _absorb(word, part)
        drawn[slot] = np.int64(word)


@numba.njit(cache=True, nogil=True)
def _fill_keys(
    seed: np.uint64,
    dataset: IntArray,
    pass_number: IntArray,
    rows: IntArray,
    starts: IntArray,
    tokens: int,
    keys: npt.NDArray[np.int32],
) -> None:
    """Fill `keys` [T]; the other arrays [R] hold each row's origin and first token."""
    for row in range(len(starts)):
        word = mix(seed + GOLDEN)
        for part in (dataset[row], pass_number[row], rows[row]):
            word = _absorb(word, part)
        stop = starts[row + 1] if row + 1 < len(starts) else tokens
        for token in range(starts[row], stop):
            keys[token] = np.int32(_absorb(word, token - starts[row]) >> np.uint64(32))
    keys[tokens:] = 0
