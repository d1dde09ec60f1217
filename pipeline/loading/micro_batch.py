"""Rows in memory -> a micro-batch of torch tensors, as the trainer takes it.

Legend: R rows of a micro-batch, L lines that hold them (R if each row has its own line), S tokens
of a line, K = L x max_predictions slots, or more where very short rows need them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from pipeline.config.formats import PAIR_FORMATS, SEPARATORS
from pipeline.data.kernels.permutation import IntArray
from pipeline.data.shards.manifest import Manifest
from pipeline.loading import decode
from pipeline.loading.boundary_counts import boundary_targets
from pipeline.loading.order import Located
from pipeline.loading.resolve import StructArray
from pipeline.loading.sampling_noise import draws


class LossCounts(NamedTuple):
    """The counts that the parts of a loss are averaged over."""

    predictions: int
    """Predicted tokens."""
    tokens: int
    """Tokens of all sequences, with special tokens, without filling and padding."""
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
    """[L, S] the encoder's input: masked, padded with the pad id."""
    lengths: torch.Tensor
    """[L] tokens of each line; a filling row has two, <s> </s>."""
    row_starts: torch.Tensor
    """[R] first token of each row, line x S + column."""
    positions: torch.Tensor
    """[K] predicted positions, line x S + column; used slots first, the rest 0."""
    labels: torch.Tensor
    """[K] the original ids there; unused slots 0."""
    weights: torch.Tensor
    """[K] 1 for used slots, 0 for the rest: sum the loss with these, never divide by K."""
    row_weights: torch.Tensor
    """[R] 1 for sequences, 0 for filling."""
    counts: LossCounts
    samples: Located
    """Where the sequences come from, without filling rows."""
    cu_seqlens: torch.Tensor | None = None
    """int32 [pieces + 1]: bounds of the pieces that attention stays within, in the flattened lines;
    pads are pieces too. Only for rows that share lines, or documents isolated in rows."""
    segment_ids: torch.Tensor | None = None
    """[L, S] 1 in segment B; only for formats that pair segments."""
    pair_labels: torch.Tensor | None = None
    """[R] 0 in order, 1 random next or swapped, -1 none; only for formats that pair segments."""
    draws: torch.Tensor | None = None
    """[K] random bits, see `sampling_noise.draws`; only if the loader was asked for them."""

    @property
    def predictions(self) -> int:
        """Used slots."""
        return self.counts.predictions

    @property
    def tokens(self) -> int:
        """Tokens of all sequences, see `LossCounts`."""
        return self.counts.tokens

    @property
    def edge_ids(self) -> tuple[int, int]:
        """Ids of the first and last token of a row, bos and eos, read from the first row."""
        stop = int(self.lengths[0])
        if len(self.row_starts) > 1:
            stop = min(stop, int(self.row_starts[1]))
        ids = self.input_ids[0]
        return int(ids[0]), int(ids[stop - 1])

    def to(self, device: torch.device | str) -> MicroBatch:
        """The same batch on `device`; copies from pinned memory do not block."""
        always = ("input_ids", "lengths", "row_starts", "positions", "labels", "weights")
        optional = ("cu_seqlens", "segment_ids", "pair_labels", "draws")
        named = (*always, "row_weights", *optional)
        present = [name for name in named if getattr(self, name) is not None]
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in present}
        return replace(self, **moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What only some objectives need from a loader."""

    most_targets: int = 0
    """Most targets of a span, for `LossCounts.boundaries`; 0 counts none."""
    draws_seed: int | None = None
    """Seed of `MicroBatch.draws`; None for no draws."""


NO_EXTRAS = Extras()


class _Arrays(NamedTuple):
    """The tensors that `decode.decode` writes, in the order of its arguments."""

    input_ids: torch.Tensor
    lengths: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    row_weights: torch.Tensor

    @classmethod
    def allocate(cls, lines: int, length: int, slots: int, rows: int, pin_memory: bool) -> _Arrays:
        """Unwritten memory: one block of integers and one of weights, because an allocation costs
        as much as locating the rows."""
        sizes = (lines * length, lines, slots, slots)
        integers = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=pin_memory)
        floats = torch.empty(slots + rows, dtype=torch.float32, pin_memory=pin_memory)
        input_ids, lengths, positions, labels = integers.split_with_sizes(sizes)
        weights, row_weights = floats.split_with_sizes((slots, rows))
        return cls(input_ids.view(lines, length), lengths, positions, labels, weights, row_weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBuilder:
    """Builds the micro-batches of some datasets."""

    length: int
    """S."""
    max_predictions: int
    special_ids: StructArray
    """SPECIAL_IDS [1]."""
    pairs: bool
    """Give `segment_ids` and `pair_labels`."""
    packed: bool
    """Rows may share lines: give `cu_seqlens`."""
    documents: bool
    """Documents are isolated in rows: give `cu_seqlens`."""
    extras: Extras
    pin_memory: bool
    """Pin memory for copies to a GPU."""

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        max_predictions: int,
        *,
        packed: bool,
        documents: bool,
        extras: Extras,
        pin_memory: bool,
    ) -> BatchBuilder:
        """For datasets prepared like the one of `manifest`."""
        tokenizer = manifest.tokenizer
        special_ids = np.zeros(1, decode.SPECIAL_IDS)
        for name in ("bos", "pad", "eos", "mask"):
            special_ids[name] = tokenizer[name]
        special_ids["separators"] = SEPARATORS[tokenizer["kind"]]
        special_ids["wide"] = tokenizer["size"] > 1 << 16
        return cls(
            length=manifest.sequence_length,
            max_predictions=max_predictions,
            special_ids=special_ids,
            pairs=manifest.data.get("format") in PAIR_FORMATS,
            packed=packed,
            documents=documents,
            extras=extras,
            pin_memory=pin_memory,
        )

    @property
    def details(self) -> bool:
        """Whether a micro-batch needs the documents and segments of its rows."""
        return self.documents or self.pairs

    def counts(self, records: StructArray) -> LossCounts:
        """The loss counts of `records` [n]."""
        tokens, pairs, boundaries = records["tokens"], 0, 0
        if self.pairs:
            pairs = int(((records["label"] >= 0) & (tokens > 0)).sum())
        if self.extras.most_targets:
            boundaries = boundary_targets(records, self.special_ids, self.extras.most_targets)
        return LossCounts(int(records["predictions"].sum()), int(tokens.sum()), pairs, boundaries)

    def batch(
        self, step: int, micro_batch: int, lines: int, records: StructArray, starts: IntArray,
        samples: Located,
    ) -> MicroBatch:  # fmt: skip
        """The micro-batch of `records` [R] that start at `starts` [R] in `lines` lines."""
        counts = self.counts(records)
        slots = lines * self.max_predictions
        if self.packed:
            slots = max(slots, counts.predictions)
        arrays = _Arrays.allocate(lines, self.length, slots, len(records), self.pin_memory)
        outputs = [tensor.numpy() for tensor in arrays]
        decode.decode(records, starts, self.special_ids, *outputs)
        return MicroBatch(
            step=step,
            micro_batch=micro_batch,
            input_ids=arrays.input_ids,
            lengths=arrays.lengths,
            row_starts=self._tensor(starts),
            positions=arrays.positions,
            labels=arrays.labels,
            weights=arrays.weights,
            row_weights=arrays.row_weights,
            counts=counts,
            samples=samples,
            **self._optional(records, starts, samples, arrays),
        )

    def _optional(
        self, records: StructArray, starts: IntArray, samples: Located, arrays: _Arrays
    ) -> dict[str, torch.Tensor]:
        """The fields of a batch that only some formats or objectives have."""
        found, size = {}, arrays.input_ids.numel()
        if self.extras.draws_seed is not None:
            places = arrays.positions.numpy()
            if self.packed:  # draws as if each row had its own line
                row = np.searchsorted(starts, places, side="right") - 1
                places = row * self.length + places - starts[row]
            bits = draws(self.extras.draws_seed, samples, places, self.length)
            found["draws"] = self._tensor(bits)
        if self.packed or self.documents:
            pieces = decode.pieces(records, starts, size, self.documents)
            found["cu_seqlens"] = self._tensor(pieces)
        if self.pairs:
            integers = torch.empty(
                size + len(records), dtype=torch.int64, pin_memory=self.pin_memory
            )
            segment_ids, pair_labels = integers.split_with_sizes((size, len(records)))
            decode.segments(
                records, starts, self.special_ids, segment_ids.numpy(), pair_labels.numpy()
            )
            found["segment_ids"] = segment_ids.view(arrays.input_ids.shape)
            found["pair_labels"] = pair_labels
        return found

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        return tensor.pin_memory() if self.pin_memory else tensor
