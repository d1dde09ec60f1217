"""Prepared datasets -> optimizer steps of torch tensors, the same at any number of ranks.

An optimizer step reads the next G positions of the order (see order.py), which are split evenly:
rank r of W takes positions [G r / W, G (r + 1) / W) of the step, in micro-batches of at most
`per_device` rows, or of what a GPU's micro-batch holds (see placement.py). The state is one
integer, the number of sequences consumed: to seek, pass another number. The batch or the world size
may change there. While the batch grows, the step's number is needed too.

The stream runs in one direction. For each step:

1. Locate its rows in the order.
2. With `data.reader=read`, request their record batches; some steps wait while threads read.
3. Resolve the addresses of rows and masks, which checks their values.
4. Place the rows in micro-batches, and count what the losses are divided by.
5. Decode the micro-batches one by one, at most `prefetch` ahead of the reader.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

import numpy as np

from pipeline.base.errors import ConfigError, DataError
from pipeline.data.shards.arrow_files import BATCH_ROWS
from pipeline.kernels.permutation import IntArray
from pipeline.loading.dataset import READ_THREADS, Dataset
from pipeline.loading.micro_batch import PLAIN, BatchBuilder, BatchForm, LossCounts, MicroBatch
from pipeline.loading.order import Located, Order, Share, places_by_key
from pipeline.loading.placement import Capacity, place
from pipeline.loading.prefetch import in_background
from pipeline.loading.resolve import RECORD, StructArray, put_records

MOST = 1 << 32
"""A bound that no row's tokens, predictions or pieces reach."""
READ_AHEAD = 1 / 4
"""Share of a window whose record batches are read ahead; two steps at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rank's part of an optimizer step; known before its micro-batches are decoded."""

    number: int
    """Counted from 0 at the start of the run; a growing batch depends on it."""
    consumed: int
    """Sequences of all steps before this one."""
    sequences: int
    """Sequences of this step over all ranks; fewer than G only in the last step of validation."""
    counts: LossCounts
    """Counts of this rank's part, for `training.step_count`."""
    samples: Located
    """Sources of this rank's sequences, in the order of the samples."""
    accumulation: int
    """Micro-batches of this step on this rank; other ranks may have more, see
    `Loader.pad_micro_batches`."""
    batches: Iterator[MicroBatch]
    """The micro-batches, decoded as they are read. Read them before taking the next step: unread
    ones otherwise stay in memory until this step is dropped."""


NO_STEP = Step(
    number=0, consumed=0, sequences=0, counts=LossCounts(0, 0, 0),
    samples=Located(*(np.empty(0, np.int64) for _ in range(3))), accumulation=0, batches=iter(()),
)  # fmt: skip
"""Stands for a step that cannot be read; it is never trained on."""


class Loader:
    """Iterates one rank's steps or micro-batches, from any number of consumed sequences.

    One iteration at a time: starting another one, or `close`, ends the previous one.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        order: Order,
        share: Share,
        *,
        form: BatchForm = PLAIN,
        reader: Literal["mmap", "read"] = "mmap",
        prefetch: int = 0,
    ) -> None:
        """order: over `piece_rows` of the same datasets; prefetch: micro-batches that a thread
        decodes ahead, ideally those of two steps; 0 for no thread.

        Raises ConfigError or DataError if reader, order and compression contradict each other.
        """
        self.datasets = tuple(datasets)
        self.order = order
        self.share = share
        self.reader = reader
        self.prefetch = prefetch
        manifest = self.datasets[0].manifest
        self.sequence_length = manifest.sequence_length
        self.max_predictions = max(part.manifest.max_predictions for part in self.datasets)
        self._builder = BatchBuilder.of(manifest, form)
        self._running: Generator[tuple[Step, MicroBatch], None, None] | None = None
        self._check()

    def steps(self, consumed: int = 0, number: int = 0) -> Iterator[Step]:
        """This rank's steps after `consumed` sequences: endless, or one pass in sequential order.

        number: of the first of these steps, counted from 0.
        """
        self.close()
        decoded: Generator[tuple[Step, MicroBatch], None, None] = self._decode(consumed, number)
        if self.prefetch:
            # A thread is enough: kernels run without the interpreter's lock.
            decoded = in_background(decoded, self.prefetch)
        self._running = decoded
        return _group(decoded)

    def micro_batches(self, consumed: int = 0, number: int = 0) -> Iterator[MicroBatch]:
        """The micro-batches of `steps`, one after the other."""
        for step in self.steps(consumed, number):
            yield from step.batches

    def pad_micro_batches(self, step: Step, accumulation: int) -> Step:
        """The step with micro-batches without rows appended, up to `accumulation` in all."""
        empty = (
            self._builder.batch(step.number, number, np.zeros(0, RECORD), step.samples[:0])
            for number in range(step.accumulation, accumulation)
        )
        return replace(step, accumulation=accumulation, batches=chain(step.batches, empty))

    def close(self) -> None:
        """End the current iteration, its thread and its reads."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _check(self) -> None:
        for dataset in self.datasets:
            if dataset.id_type != self.datasets[0].id_type:
                raise DataError(
                    f"{dataset.directory} and {self.datasets[0].directory} have ids of different "
                    "sizes; prepare both with the same tokenizer"
                )
            if dataset.manifest.sequence_length != self.sequence_length:
                raise DataError(
                    f"{dataset.directory} has sequences of {dataset.manifest.sequence_length}, "
                    f"{self.datasets[0].directory} of {self.sequence_length}; prepare both with "
                    "one data.sequence_length"
                )
            if dataset.manifest.compression == "none":
                continue
            if self.order.kind == "global":
                raise DataError(
                    f"{dataset.directory} is compressed, data.order=global needs single rows; "
                    "add --set data.order=blocks --set data.reader=read, or prepare without "
                    "compression"
                )
            if self.reader == "mmap":
                raise DataError(
                    f"{dataset.directory} is compressed, data.reader=mmap needs plain files; "
                    "add --set data.reader=read, or prepare without compression"
                )
        if self.reader == "read" and self.order.kind == "global":
            raise ConfigError(
                "data.reader=read reads whole record batches, data.order=global needs single rows; "
                "add --set data.order=blocks, or --set data.reader=mmap"
            )

    def _decode(self, consumed: int, number: int) -> Generator[tuple[Step, MicroBatch], None, None]:
        """Every micro-batch in order, with its step; a step has at least one."""
        pool = ThreadPoolExecutor(READ_THREADS) if self.reader == "read" else None
        try:
            for step, rows in self._resolve_steps(consumed, number, pool):
                # 5. One at a time: memory holds few decoded micro-batches, not a whole step.
                for micro_batch, chosen in enumerate(rows.placed):
                    yield (
                        step,
                        self._builder.batch(
                            step.number,
                            micro_batch,
                            rows.records.take(chosen),
                            step.samples[chosen],
                        ),
                    )
        finally:  # also when the reader closes the generator in the middle
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def _resolve_steps(
        self, consumed: int, number: int, pool: ThreadPoolExecutor | None
    ) -> Iterator[tuple[Step, _StepRows]]:
        """Steps with their rows in memory; a pool reads `READ_AHEAD` steps ahead."""
        ahead = 0
        if pool is not None:
            rows_ahead = READ_AHEAD * self.order.window * BATCH_ROWS
            ahead = max(2, math.ceil(rows_ahead / self.share.sequences))
        waiting: deque[tuple[int, int, int, Located]] = deque()
        end = self.order.end
        start = consumed
        while waiting or end is None or start < end:
            while len(waiting) <= ahead and (end is None or start < end):
                # 1. Only the last step of a validation pass is short.
                sequences = self.share.sequences_of(number)
                positions = self.share.positions(start, sequences)
                samples = self.order.locate(
                    positions if end is None else positions[positions < end]
                )
                waiting.append((number, start, sequences, samples))
                # 2. The oldest step in the queue has had the longest time to be read.
                if pool is not None:
                    for dataset, duplicate, chosen in self._group_samples(samples):
                        dataset.request(samples.row[chosen], duplicate, pool)
                start, number = start + sequences, number + 1
            yield self._resolve_step(*waiting.popleft(), pool)

    def _group_samples(self, samples: Located) -> Iterator[tuple[Dataset, int, IntArray | slice]]:
        """The samples of each dataset and mask duplicate, without those of excluded shards."""
        cycles = np.array([dataset.cycle for dataset in self.datasets])
        duplicate = (samples.pass_number - 1) % cycles[samples.dataset]
        keys = samples.dataset * int(cycles.max()) + duplicate
        alike = keys.size > 0 and bool((keys == keys[0]).all())  # nearly always: then a slice
        for places in [np.zeros(1, np.int64)] if alike else places_by_key(keys):
            dataset, number = divmod(int(keys[places[0]]), int(cycles.max()))
            chosen = slice(None) if alike else places
            kept = self.datasets[dataset].read_of(samples.row, chosen)
            yield self.datasets[dataset], number, kept

    def _resolve_step(
        self, number: int, consumed: int, sequences: int, samples: Located,
        pool: ThreadPoolExecutor | None,
    ) -> tuple[Step, _StepRows]:  # fmt: skip
        records = np.zeros(len(samples), RECORD)
        held: list[object] = []
        # 3. Rows of excluded shards stay all zeros: they have no tokens.
        for dataset, duplicate, chosen in self._group_samples(samples):
            indices, details = samples.row[chosen], self._builder.details
            if dataset.staging and indices.size:
                # The earliest pass of the step: its masks and those of the next are kept.
                dataset.staging.follow(int(samples.pass_number[chosen].min()))
            if pool is None:
                found = dataset.records(indices, duplicate, details)
            else:
                # In `blocks` order a step may reach from one window into the next.
                keep = 2 * self.order.window
                found = dataset.read_records(indices, duplicate, pool, keep, details)
            put_records(records, chosen, found.fields)
            held.append(found.held)
        # 4. Before decoding: ranks exchange the counts of a step early.
        placed = self._place(records, sequences)
        if self.order.end is not None:
            sequences = min(sequences, self.order.end - consumed)
        step = Step(
            number=number,
            consumed=consumed,
            sequences=sequences,
            counts=self._builder.counts(records),
            samples=samples,
            accumulation=len(placed),
            batches=iter(()),
        )
        return step, _StepRows(records, placed, tuple(held))

    def _place(self, records: StructArray, sequences: int) -> list[IntArray]:
        """The rows of each micro-batch of a step of so many sequences; at least one micro-batch,
        and without capacity the same number on every rank."""
        capacity, least = self._builder.form.capacity, 1
        if capacity is None:
            rows, least = self.share.per_device, self.share.accumulation_of(sequences)
            # Only the number of rows counts on a CPU, so ranks have equally many micro-batches.
            capacity = Capacity(*(rows * most for most in (MOST, MOST, 1, MOST)))
        pieces = self._builder.pieces(records)
        return place(records["tokens"], records["predictions"], pieces, capacity, least)


@dataclass(frozen=True, slots=True)
class _StepRows:
    """A step's rows in memory."""

    records: StructArray
    """RECORD [rows]."""
    placed: list[IntArray]
    """The rows of each micro-batch."""
    held: tuple[object, ...]
    """Owners of the memory."""


class _MicroBatches:
    """The micro-batches of one step, taken from the stream as they are read."""

    def __init__(self, first: MicroBatch, rest: Iterator[tuple[Step, MicroBatch]]) -> None:
        self._taken = deque([first])
        self._rest = rest

    def __iter__(self) -> _MicroBatches:
        return self

    def __next__(self) -> MicroBatch:
        if not self._taken:
            self._taken.append(next(self._rest)[1])
        return self._taken.popleft()

    def take_rest(self) -> None:
        """Take the unread ones from the stream, whose next item then belongs to the next step."""
        self._taken.extend(batch for _, batch in self._rest)


def _group(decoded: Iterator[tuple[Step, MicroBatch]]) -> Iterator[Step]:
    """Each step once, with its micro-batches."""
    for step, first in decoded:
        batches = _MicroBatches(first, islice(decoded, step.accumulation - 1))
        yield replace(step, batches=batches)
        batches.take_rest()
