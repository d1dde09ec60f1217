"""Prepared datasets -> batches of torch tensors, the same sequences in a step on any ranks.

An optimizer step reads the next G positions of the order (see order.py). They are dealt evenly:
rank r of W takes positions [G r / W, G (r + 1) / W) of the step, in `accumulation` micro-batches
of `per_device` rows; what does not divide is filled with rows of weight 0. State is one integer,
the sequences consumed: a seek is an argument, and a run may change batch or world size there. A
batch that grows asks for the step's number too. Rows that are packed share lines, of which a
micro-batch has `per_device` then; how many micro-batches that makes is known with the step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

import numpy as np

from pipeline.config.formats import Attention
from pipeline.data.kernels.permutation import IntArray
from pipeline.data.shards.arrow_files import BATCH_ROWS
from pipeline.errors import ConfigError, DataError
from pipeline.loading import decode
from pipeline.loading.dataset import READ_THREADS, Dataset
from pipeline.loading.line_packing import Laid, one_a_line, packed
from pipeline.loading.micro_batch import NO_EXTRAS, Batch, Extras, Form, LossCounts
from pipeline.loading.order import Located, Order, Share
from pipeline.loading.prefetch import in_background

READ_AHEAD = 1 / 4
"""Share of a window whose record batches are read ahead, and two steps at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rank's part of an optimizer step; known before its batches are decoded."""

    number: int
    """From 0 at the run's beginning; what a batch that grows goes by."""
    consumed: int
    """Sequences of all steps before this one."""
    sequences: int
    """Sequences of this step over all ranks; fewer than G only in the last step of one pass."""
    counts: LossCounts
    """Of this rank, for `training.step_count`."""
    samples: Located
    """This rank's sequences, in the order of the samples."""
    accumulation: int
    """Micro-batches of this step: as many on every rank, but for rows that are packed."""
    batches: Iterator[Batch]
    """They; to be used up before the next step's."""


NO_STEP = Step(
    number=0, consumed=0, sequences=0, counts=LossCounts(0, 0, 0),
    samples=Located(*(np.empty(0, np.int64) for _ in range(3))), accumulation=0, batches=iter(()),
)  # fmt: skip
"""Stands for a step that cannot be read; it is never made."""


class Loader:
    """Iterates one rank's steps or micro-batches, from any number of consumed sequences.

    One iteration at a time: starting another one, or `close`, ends the one before.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        order: Order,
        share: Share,
        *,
        reader: Literal["mmap", "read"] = "mmap",
        prefetch: int = 0,
        packing: Literal["none", "rows"] = "none",
        attention: Attention = "row",
        extras: Extras = NO_EXTRAS,
        pin_memory: bool = False,
    ) -> None:
        """order: over `shard_rows` of the same datasets; prefetch: micro-batches decoded ahead
        by a thread, 0 for none, best two steps' or more; packing, attention: see `run.Batch`;
        extras: what the objective asks for; pin_memory: for copies to a GPU.

        ConfigError or DataError when reader, order and compression do not go together.
        """
        self.datasets = tuple(datasets)
        self.order = order
        self.share = share
        self.reader = reader
        self.prefetch = prefetch
        manifest = self.datasets[0].manifest
        self.sequence_length = manifest.sequence_length
        self.max_predictions = max(part.manifest.max_predictions for part in self.datasets)
        self._form = Form.of(
            manifest,
            self.max_predictions,
            packed=packing == "rows",
            documents=attention == "document",
            extras=extras,
            pin_memory=pin_memory,
        )
        self._running: Generator[Step | Batch, None, None] | None = None
        self._check()

    def steps(self, consumed: int = 0, number: int = 0) -> Iterator[Step]:
        """This rank's steps from `consumed` sequences on; endless, but one pass in file order.

        number: of the first one of them, counted from 0.
        """
        self.close()
        events: Generator[Step | Batch, None, None] = self._events(consumed, number)
        if self.prefetch:
            events = in_background(events, self.prefetch)
        self._running = events
        return _Feed(events).steps()

    def micro_batches(self, consumed: int = 0, number: int = 0) -> Iterator[Batch]:
        """This rank's micro-batches from `consumed` sequences on, which step `number` begins."""
        for step in self.steps(consumed, number):
            yield from step.batches

    def stretched(self, step: Step, accumulation: int) -> Step:
        """A step with micro-batches of filling alone behind its own, until there are so many."""
        lines = self.share.per_device
        records = np.zeros((lines, decode.RECORD_FIELDS), np.int64)
        starts = np.arange(lines) * self.sequence_length
        more = (
            self._form.batch(step.number, number, lines, records, starts, step.samples[:0])
            for number in range(step.accumulation, accumulation)
        )
        return replace(step, accumulation=accumulation, batches=chain(step.batches, more))

    def close(self) -> None:
        """End the running iteration, its thread and its reads."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def _check(self) -> None:
        for dataset in self.datasets:
            if dataset.id_type != self.datasets[0].id_type:
                raise DataError(
                    f"{dataset.directory} and {self.datasets[0].directory} have ids of different "
                    "size; prepare both with one tokenizer"
                )
            if dataset.manifest.sequence_length != self.sequence_length:
                raise DataError(
                    f"{dataset.directory} has sequences of {dataset.manifest.sequence_length}, "
                    f"{self.datasets[0].directory} of {self.sequence_length}; prepare both alike"
                )
            if dataset.manifest.compression == "none":
                continue
            if self.order.kind == "global":
                raise DataError(
                    f"{dataset.directory} is compressed, data.order=global needs single rows; "
                    "set data.order=blocks and data.reader=read, or prepare without compression"
                )
            if self.reader == "mmap":
                raise DataError(
                    f"{dataset.directory} is compressed, data.reader=mmap needs it as it is; "
                    "set data.reader=read, or prepare without compression"
                )
        if self.reader == "read" and self.order.kind == "global":
            raise ConfigError(
                "data.reader=read reads whole record batches, data.order=global needs single rows; "
                "set data.order=blocks or data.reader=mmap"
            )

    def _events(self, consumed: int, number: int) -> Generator[Step | Batch, None, None]:
        """Every step, then the next one (for its count), then the first one's micro-batches."""
        pool = ThreadPoolExecutor(READ_THREADS) if self.reader == "read" else None
        waiting: list[_Part] = []
        try:
            for part in self._parts(consumed, number, pool):
                yield part.step
                yield from self._decode(waiting)
                waiting = [part]
            yield from self._decode(waiting)
        except DataError:  # the step before is whole: all ranks can end together after it
            yield from self._decode(waiting)
            raise
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def _parts(
        self, consumed: int, number: int, pool: ThreadPoolExecutor | None
    ) -> Iterator[_Part]:
        """Steps with their rows in memory; with a pool, reading runs `READ_AHEAD` of them."""
        ahead = 0
        if pool is not None:
            rows_ahead = READ_AHEAD * self.order.window * BATCH_ROWS
            ahead = max(2, math.ceil(rows_ahead / self.share.sequences))
        waiting: deque[tuple[int, int, int, Located]] = deque()
        end = self.order.total_rows if self.order.kind == "sequential" else None
        start = consumed
        while waiting or end is None or start < end:
            while len(waiting) <= ahead and (end is None or start < end):
                sequences = self.share.sequences_of(number)
                positions = self.share.positions(start, sequences)
                samples = self.order.locate(
                    positions if end is None else positions[positions < end]
                )
                waiting.append((number, start, sequences, samples))
                if pool is not None:
                    for dataset, duplicate, chosen in self._groups(samples):
                        dataset.request(samples.row[chosen], duplicate, pool)
                start, number = start + sequences, number + 1
            yield self._resolve(*waiting.popleft(), pool)

    def _groups(self, samples: Located) -> Iterator[tuple[Dataset, int, IntArray | slice]]:
        """The samples of each dataset and mask duplicate, but those of shards left out."""
        cycles = np.array([dataset.cycle for dataset in self.datasets])
        duplicate = (samples.pass_number - 1) % cycles[samples.dataset]
        keys = samples.dataset * int(cycles.max()) + duplicate
        alike = keys.size > 0 and bool((keys == keys[0]).all())
        found = keys[:1].tolist() if alike else np.unique(keys).tolist()
        for key in found:
            dataset, number = divmod(key, int(cycles.max()))
            chosen = slice(None) if alike else np.flatnonzero(keys == key)
            kept = self.datasets[dataset].read_of(samples.row, chosen)
            yield self.datasets[dataset], number, kept

    def _resolve(
        self, number: int, consumed: int, sequences: int, samples: Located,
        pool: ThreadPoolExecutor | None,
    ) -> _Part:  # fmt: skip
        lines, length = self.share.per_device, self.sequence_length
        rows = self.share.accumulation_of(sequences) * lines
        records = np.zeros((max(rows, len(samples) + 1), decode.RECORD_FIELDS), np.int64)
        held: list[object] = []
        for dataset, duplicate, chosen in self._groups(samples):
            if pool is None:
                part = dataset.records(samples.row[chosen], duplicate, self._form.details)
            else:
                keep = 2 * self.order.window
                part = dataset.read_records(
                    samples.row[chosen], duplicate, pool, keep, self._form.details
                )
            records[: len(samples)][chosen] = part.fields
            held.append(part.held)
        if self.order.kind == "sequential":
            sequences = min(sequences, self.order.total_rows - consumed)
        if self._form.packed:
            laid = packed(records[: len(samples), decode.TOKENS], lines, length)
        else:
            laid = one_a_line(rows, lines, length)
        step = Step(
            number=number,
            consumed=consumed,
            sequences=sequences,
            counts=self._form.counts(records),
            samples=samples,
            accumulation=len(laid),
            batches=iter(()),
        )
        return _Part(step, records, tuple(laid), tuple(held))

    def _decode(self, parts: list[_Part]) -> Iterator[Batch]:
        for part in parts:
            for micro_batch, laid in enumerate(part.laid):
                records, samples = part.records[laid.rows], part.step.samples
                read = laid.rows if isinstance(laid.rows, slice) else laid.rows[laid.rows >= 0]
                yield self._form.batch(
                    part.step.number, micro_batch, self.share.per_device, records, laid.starts,
                    samples[read],
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """A step's rows in memory: records [rows or more, fields], the last one empty where rows are
    packed; where they lie in each micro-batch; and who owns them."""

    step: Step
    records: IntArray
    laid: tuple[Laid, ...]
    held: tuple[object, ...]


class _Feed:
    """Parts the one stream of events into steps and the micro-batches of each."""

    def __init__(self, events: Generator[Step | Batch, None, None]) -> None:
        self.events = events
        self.waiting_steps: deque[Step] = deque()
        self.waiting_batches: deque[Batch] = deque()

    def steps(self) -> Iterator[Step]:
        while self.waiting_steps or self._advance():
            if self.waiting_steps:
                step = self.waiting_steps.popleft()
                yield replace(step, batches=self._batches(step))

    def _batches(self, step: Step) -> Iterator[Batch]:
        left = step.accumulation
        while left and (self.waiting_batches or self._advance()):
            # An earlier step's batches are here when its reader left them unused.
            if (
                self.waiting_batches
                and (batch := self.waiting_batches.popleft()).step == step.number
            ):
                left -= 1
                yield batch

    def _advance(self) -> bool:
        """Take one event; False when there are no more."""
        event = next(self.events, None)
        if isinstance(event, Step):
            self.waiting_steps.append(event)
        elif event is not None:
            self.waiting_batches.append(event)
        return event is not None
