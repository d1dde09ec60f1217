"""A micro-batch as the trainer takes it: torch tensors out of rows in memory.

Legend: R rows of a micro-batch, L lines that they lie in (R where a row has a line to itself), S
tokens of a line, K = L x max_predictions slots or, where very short rows need them, more.
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
from pipeline.loading.sampling_noise import draws


class LossCounts(NamedTuple):
    """What there is to learn from; each part of a loss is a mean over one of these."""

    predictions: int
    """Predicted tokens."""
    tokens: int
    """Tokens of all sequences, special tokens included, without filling and padding."""
    pairs: int
    """Sequences of two segments with a label."""
    boundaries: int = 0
    """Predicted tokens with a span boundary question; 0 where these are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of one rank. All integers are int64, all weights float32."""

    step: int
    micro_batch: int
    input_ids: torch.Tensor
    """[L, S] what the encoder sees: masked, padded with the pad id."""
    lengths: torch.Tensor
    """[L] tokens of each line; a filling row has two, <s> </s>."""
    row_starts: torch.Tensor
    """[R] where the first token of each row is, line x S + place."""
    positions: torch.Tensor
    """[K] predicted positions, line x S + place; used slots first, the rest 0."""
    labels: torch.Tensor
    """[K] the original ids there, unused slots 0."""
    weights: torch.Tensor
    """[K] 1 for used slots, 0 for the rest: sum the loss with these, never divide by K."""
    row_weights: torch.Tensor
    """[R] 1 for sequences, 0 for filling."""
    counts: LossCounts
    samples: Located
    """Where the sequences come from; filling is left out."""
    cu_seqlens: torch.Tensor | None = None
    """int32 [pieces + 1]: where the pieces that attention stays in begin and end in the flattened
    lines, pads being pieces too; only for rows that share lines, or documents isolated in rows."""
    segment_ids: torch.Tensor | None = None
    """[L, S] 1 in segment B; only for formats that pair segments."""
    pair_labels: torch.Tensor | None = None
    """[R] 0 in order, 1 random next or swapped, -1 none; only for formats that pair segments."""
    draws: torch.Tensor | None = None
    """[K] random bits, see `draws`; only when the loader was told to draw."""

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
        """Ids of the tokens that begin and end a row, bos and eos: those of the first row."""
        stop = int(self.lengths[0])
        if len(self.row_starts) > 1:
            stop = min(stop, int(self.row_starts[1]))
        ids = self.input_ids[0]
        return int(ids[0]), int(ids[stop - 1])

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; copies from pinned memory do not wait."""
        always = ("input_ids", "lengths", "row_starts", "positions", "labels", "weights")
        optional = ("cu_seqlens", "segment_ids", "pair_labels", "draws")
        named = (*always, "row_weights", *optional)
        present = [name for name in named if getattr(self, name) is not None]
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in present}
        return replace(self, **moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What only some objectives ask of a loader."""

    most_targets: int = 0
    """Of a span, so that `LossCounts.boundaries` is counted; 0 counts none."""
    draws_seed: int | None = None
    """Of `Batch.draws`; None for no draws."""


NO_EXTRAS = Extras()


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the batches of some datasets look like."""

    length: int
    """S."""
    max_predictions: int
    wide: bool
    """Ids are uint32."""
    specials: IntArray
    """Ids of bos, pad, eos and mask."""
    pairs: bool
    """Give `segment_ids` and `pair_labels`."""
    separators: int
    """How many eos part two segments."""
    packed: bool
    """Rows may share lines: give `cu_seqlens`."""
    documents: bool
    """Documents are isolated in rows: give `cu_seqlens`."""
    extras: Extras
    pin_memory: bool
    """For copies to a GPU."""

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
    ) -> Form:
        """Of datasets like that of `manifest`."""
        names = ("bos", "pad", "eos", "mask")
        return cls(
            length=manifest.sequence_length,
            max_predictions=max_predictions,
            wide=manifest.tokenizer["size"] > 1 << 16,
            specials=np.array([manifest.tokenizer[name] for name in names], np.int64),
            pairs=manifest.data.get("format") in PAIR_FORMATS,
            separators=SEPARATORS[manifest.tokenizer["kind"]],
            packed=packed,
            documents=documents,
            extras=extras,
            pin_memory=pin_memory,
        )

    @property
    def details(self) -> bool:
        """Whether a batch needs what `batches.resolve` calls details."""
        return self.documents or self.pairs

    def counts(self, records: IntArray) -> LossCounts:
        """What there is to learn from `records` [n, RECORD_FIELDS]."""
        tokens = records[:, decode.TOKENS]
        labelled = (records[:, decode.LABEL] >= 0) & (tokens > 0) if self.pairs else tokens[:0]
        return LossCounts(
            predictions=int(records[:, decode.PREDICTIONS].sum()),
            tokens=int(tokens.sum()),
            pairs=int(labelled.sum()),
            boundaries=boundary_targets(
                records, self.wide, *self.edge_ids, self.extras.most_targets
            ),
        )

    @property
    def edge_ids(self) -> tuple[int, int]:
        """Ids of bos and eos."""
        return int(self.specials[0]), int(self.specials[2])

    def batch(
        self, step: int, micro_batch: int, lines: int, records: IntArray, starts: IntArray,
        samples: Located,
    ) -> Batch:  # fmt: skip
        """The micro-batch of `records` [R, RECORD_FIELDS] that begin at `starts` [R] in `lines`."""
        rows, length = len(records), self.length
        slots = lines * self.max_predictions
        if self.packed:
            slots = max(slots, int(records[:, decode.PREDICTIONS].sum()))
        # One block of memory for all integers and one for all weights: allocations cost as much as
        # locating the rows.
        ends = (lines * length, lines * (length + 1), lines * (length + 1) + slots)
        integers = torch.empty(ends[2] + slots, dtype=torch.int64, pin_memory=self.pin_memory)
        weights = torch.empty(slots + rows, dtype=torch.float32, pin_memory=self.pin_memory)
        decode.decode(
            records, starts, self.wide, self.specials, self.separators, length, integers.numpy(),
            weights.numpy(),
        )  # fmt: skip
        batch = Batch(
            step=step,
            micro_batch=micro_batch,
            input_ids=integers[: ends[0]].view(lines, length),
            lengths=integers[ends[0] : ends[1]],
            row_starts=self._tensor(starts),
            positions=integers[ends[1] : ends[2]],
            labels=integers[ends[2] :],
            weights=weights[:slots],
            row_weights=weights[slots:],
            counts=self.counts(records),
            samples=samples,
        )
        if self.extras.draws_seed is not None:
            places = batch.positions.numpy()
            if self.packed:  # as if each row had a line of its own
                row = np.searchsorted(starts, places, side="right") - 1
                places = row * length + places - starts[row]
            found = draws(self.extras.draws_seed, samples, places, length)
            batch = replace(batch, draws=torch.from_numpy(found))
        if self.packed or self.documents:
            pieces = decode.pieces(records, starts, lines * length, self.documents)
            batch = replace(batch, cu_seqlens=self._tensor(pieces))
        return self._with_segments(batch, records, starts) if self.pairs else batch

    def _with_segments(self, batch: Batch, records: IntArray, starts: IntArray) -> Batch:
        rows, size = len(records), batch.input_ids.numel()
        integers = torch.empty(size + rows, dtype=torch.int64, pin_memory=self.pin_memory)
        segment_ids, labels = integers[:size], integers[size:]
        decode.segments(records, starts, self.separators, segment_ids.numpy(), labels.numpy())
        shaped = segment_ids.view(batch.input_ids.shape)
        return replace(batch, segment_ids=shaped, pair_labels=labels)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        return tensor.pin_memory() if self.pin_memory else tensor
