"""(seed, pass, position) -> (dataset, row): the order of samples, computed and never stored.

A run reads positions 0, 1, 2, ... without end; `Order.locate` gives the dataset and the row at
each. It is a pure function, so the state of a loader is one integer and a seek costs nothing:

- `global`: every pass is a keyed bijection of all rows.
- `blocks`: record batches are permuted, `window` neighbours in that order form a window, and rows
  are permuted inside it. A reader needs two windows of record batches at a time.
- `sequential`: file order, one pass; for validation.

Several datasets mix by size (one concatenation: one pass counter for all) or by weight. By weight,
every dataset counts its own passes, so that its rows show their masks in turn however often they
are read:

1. How many of the first n samples each dataset has follows from n (proportions.py).
2. A cycle of 4,096 samples has the difference of these counts at its two ends as quotas.
3. A keyed bijection of the cycle's slots shuffles the datasets; each has its own order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numba
import numpy as np

from pipeline.base.errors import ConfigError
from pipeline.data.shards.arrow_files import BATCH_ROWS
from pipeline.kernels.permutation import MAX_COUNT, ROUNDS, IntArray, image, round_keys, sides
from pipeline.loading.proportions import Proportions, shares_of

ORDER_VERSION, MIXTURE_VERSION = 1, 2
"""Versions of an order by size and by weight, raised when the same seed gives another order. A
resumed run needs the same version."""
CYCLE = 4096
"""Samples of a mixture by weight that are shuffled together."""

Kind = Literal["global", "blocks", "sequential"]

# Uses of a bijection; each has its own keys.
_ROWS, _BLOCKS, _WINDOW, _MIX = 0, 1, 2, 3


@numba.njit(cache=True, nogil=True)
def _permute_rows(
    positions: IntArray, passes: IntArray, count: int, seed: int, stream: int
) -> IntArray:
    """Global order: the rows at `positions` [n] of passes `passes` [n].

    count: rows of a pass; seed, stream: parts of the key.
    """
    rows = np.empty_like(positions)
    keys = np.empty(ROUNDS, np.uint64)
    tall, wide = sides(count)
    keyed = np.int64(-1)  # no pass yet
    for item in range(positions.size):
        # Positions ascend, so keys change only where a pass ends.
        if passes[item] != keyed:
            keyed = passes[item]
            round_keys(keys, seed, _ROWS, stream, keyed, 0)
        rows[item] = image(positions[item], count, tall, wide, keys)
    return rows


@numba.njit(cache=True, nogil=True)
def _block_span(block: int, block_starts: IntArray, row_starts: IntArray) -> tuple[int, int]:
    """First row and number of rows of a block; starts: first block and row of each piece, and the
    totals [pieces + 1]."""
    piece = np.searchsorted(block_starts, block, side="right") - 1
    first = row_starts[piece] + (block - block_starts[piece]) * BATCH_ROWS
    return first, min(BATCH_ROWS, row_starts[piece + 1] - first)  # a piece's last block is short


@numba.njit(cache=True, nogil=True)
def _window_starts(
    block_starts: IntArray, row_starts: IntArray, window: int, seed: int, stream: int, number: int
) -> IntArray:
    """The position at which each window of pass `number` starts, and the end of the last one.

    block_starts, row_starts: [pieces + 1]; window: in blocks; seed, stream: parts of the key.
    """
    blocks = block_starts[-1]
    starts = np.empty((blocks + window - 1) // window + 1, np.int64)
    keys = np.empty(ROUNDS, np.uint64)
    round_keys(keys, seed, _BLOCKS, stream, number, 0)
    tall, wide = sides(blocks)
    position = np.int64(0)
    # Blocks differ in size, so a window's start depends on every block before it.
    for index in range(blocks):
        if index % window == 0:
            starts[index // window] = position
        block = image(index, blocks, tall, wide, keys)
        position += _block_span(block, block_starts, row_starts)[1]
    starts[-1] = position
    return starts


@numba.njit(cache=True, nogil=True)
def _permute_in_windows(
    positions: IntArray,
    starts: IntArray,
    block_starts: IntArray,
    row_starts: IntArray,
    window: int,
    seed: int,
    stream: int,
    number: int,
) -> IntArray:
    """Blocks order: the rows at `positions` [n] of pass `number`.

    starts: from `_window_starts` [windows + 1]; other arguments: as there. A window's blocks are
    kept until a position is in another window.
    """
    rows = np.empty_like(positions)
    keys = np.empty(ROUNDS, np.uint64)
    firsts = np.empty(window, np.int64)
    ends = np.empty(window, np.int64)
    current = np.int64(-1)
    size = tall = wide = used = np.int64(0)
    for item in range(positions.size):
        position = positions[item]
        if current < 0 or position < starts[current] or position >= starts[current + 1]:
            current = np.searchsorted(starts, position, side="right") - 1
            # `keys` serves two bijections: of the blocks here, of the window's rows below.
            round_keys(keys, seed, _BLOCKS, stream, number, 0)
            blocks = block_starts[-1]
            block_tall, block_wide = sides(blocks)
            used = min(window, blocks - current * window)  # the last window may have fewer
            size = np.int64(0)
            for slot in range(used):
                block = image(current * window + slot, blocks, block_tall, block_wide, keys)
                span = _block_span(block, block_starts, row_starts)
                firsts[slot] = span[0]
                size += span[1]
                ends[slot] = size
            round_keys(keys, seed, _WINDOW, stream, number, current)
            tall, wide = sides(size)
        index = image(position - starts[current], size, tall, wide, keys)
        holder = np.searchsorted(ends[:used], index, side="right")
        rows[item] = firsts[holder] + index - (ends[holder - 1] if holder > 0 else 0)
    return rows


@numba.njit(cache=True, nogil=True)
def _cycle_slots(quotas: IntArray, seed: int, number: int) -> IntArray:
    """[CYCLE, 2]: each slot's dataset, and how many earlier slots of the cycle have the same."""
    slots = np.empty((CYCLE, 2), np.int64)
    keys = np.empty(ROUNDS, np.uint64)
    round_keys(keys, seed, _MIX, 0, number, 0)
    tall, wide = sides(CYCLE)
    ends = np.cumsum(quotas)  # dataset d has the images [ends[d - 1], ends[d])
    seen = np.zeros(quotas.size, np.int64)
    for slot in range(CYCLE):
        dataset = np.searchsorted(ends, image(slot, CYCLE, tall, wide, keys), side="right")
        slots[slot, 0] = dataset
        slots[slot, 1] = seen[dataset]
        seen[dataset] += 1
    return slots


@dataclass(frozen=True, slots=True)
class Located:
    """The rows at n positions."""

    dataset: IntArray
    """Index of the dataset [n]."""
    pass_number: IntArray
    """The pass over its dataset (mixed by size: over all), from 1 [n]; selects the duplicate."""
    row: IntArray
    """Row of the dataset's split [n]."""

    def __len__(self) -> int:
        return self.row.size

    def __getitem__(self, part: slice | IntArray) -> Located:
        return Located(self.dataset[part], self.pass_number[part], self.row[part])


@dataclass(frozen=True, eq=False)
class _SampleStream:
    """Datasets that share a pass counter: the pieces of their shards in sequence."""

    number: int
    first_dataset: int
    dataset_starts: IntArray
    row_starts: IntArray
    block_starts: IntArray
    windows: dict[int, IntArray] = field(default_factory=dict)

    def rows(self, order: Order, indices: IntArray) -> Located:
        """The samples at running indices `indices` [n] of this stream."""
        count = int(self.row_starts[-1])
        earlier, positions = np.divmod(indices, count)
        passes = earlier + 1
        if order.kind == "sequential":
            rows = positions
        elif order.kind == "global":
            rows = _permute_rows(positions, passes, count, order.seed, self.number)
        else:
            rows = np.empty_like(positions)
            for number in np.unique(passes).tolist():  # seldom more than two
                chosen = passes == number
                rows[chosen] = self._in_windows(order, positions[chosen], number)
        if self.dataset_starts.size == 2:  # one dataset: no search for each row
            return Located(np.full_like(rows, self.first_dataset), passes, rows)
        dataset = np.searchsorted(self.dataset_starts, rows, side="right") - 1
        return Located(self.first_dataset + dataset, passes, rows - self.dataset_starts[dataset])

    def _in_windows(self, order: Order, positions: IntArray, number: int) -> IntArray:
        layout = (self.block_starts, self.row_starts, order.window, order.seed, self.number, number)
        if number not in self.windows:
            for passed in list(self.windows)[:-1]:  # the last pass stays: a step may cross its end
                del self.windows[passed]
            self.windows[number] = _window_starts(*layout)
        return _permute_in_windows(positions, self.windows[number], *layout)


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """The order of samples of one or more datasets. Raises ConfigError for invalid values."""

    kind: Kind
    """`global`, `blocks` or `sequential`."""
    seed: int
    """The run's seed, not that of the datasets' masks."""
    piece_rows: tuple[IntArray, ...]
    """Rows of each piece of each dataset's shards, in the manifest's order."""
    weights: tuple[float, ...] = ()
    """Relative rate at which each dataset is read; empty: by size."""
    before: tuple[int, ...] = ()
    """Samples of each dataset that earlier orders read, if mixed by weight: this order
    continues after them. Empty: none."""
    window: int = 64
    """Record batches in a window, for `blocks`."""
    skipped: tuple[tuple[int, int], ...] = ()
    """[start, end) of places in the order that are skipped, sorted and disjoint: position p is the
    p-th of the other places."""

    def __post_init__(self) -> None:
        if not self.piece_rows or min(int(rows.sum()) for rows in self.piece_rows) == 0:
            raise ConfigError("a dataset without rows cannot be read; remove it")
        if self.total_rows > MAX_COUNT:
            raise ConfigError(f"{self.total_rows} rows are more than 2^62")
        if self.window < 1:
            raise ConfigError(f"batch.order_window={self.window} must be at least 1")
        for name, given in (("mixture weights", self.weights), ("numbers read", self.before)):
            if given and len(given) != len(self.piece_rows):
                raise ConfigError(
                    f"{len(given)} {name} for {len(self.piece_rows)} datasets; give one for each"
                )
        if self.weights and self.kind == "sequential":
            raise ConfigError(
                "sequential order reads datasets one after the other; remove the weights"
            )

    @cached_property
    def total_rows(self) -> int:
        """Rows of all datasets: one pass, if they mix by size."""
        return sum(int(rows.sum()) for rows in self.piece_rows)

    @cached_property
    def end(self) -> int | None:
        """Number of positions of a `sequential` order; None for the others, which have no end."""
        if self.kind != "sequential":
            return None
        return self.total_rows - sum(end - begin for begin, end in self.skipped)

    def locate(self, positions: IntArray) -> Located:
        """The samples at `positions` [n], each >= 0 and, for `sequential`, < end."""
        positions = places_of(positions, self.skipped)
        if not self.weights:
            return self._streams[0].rows(self, positions)
        cycles, slots = np.divmod(positions, CYCLE)
        found = Located(*(np.empty_like(positions) for _ in range(3)))
        indices = np.empty_like(positions)
        for cycle in np.unique(cycles).tolist():
            chosen = cycles == cycle
            earlier, table = self._cycle(cycle)
            found.dataset[chosen], seen = table[slots[chosen]].T
            indices[chosen] = seen + earlier[found.dataset[chosen]]
        for chosen in places_by_key(found.dataset):
            part = self._streams[found.dataset[chosen[0]]].rows(self, indices[chosen])
            found.pass_number[chosen], found.row[chosen] = part.pass_number, part.row
        return found

    def read_of(self, samples: int) -> IntArray:
        """Samples of each dataset [datasets] that are read by the end of the first `samples`, with
        those of earlier orders. By size they are whole passes: the next order begins a new one."""
        if not self.weights:
            passes = -(-samples // self.total_rows)
            return np.array([passes * int(rows.sum()) for rows in self.piece_rows], np.int64)
        cycle, slot = divmod(samples, CYCLE)
        earlier, table = self._cycle(cycle)
        return earlier + np.bincount(table[:slot, 0], minlength=earlier.size)

    @cached_property
    def _before(self) -> IntArray:
        return np.array(self.before or [0] * len(self.piece_rows), np.int64)

    @cached_property
    def _proportions(self) -> Proportions:
        return Proportions(shares_of(self.weights))

    @cached_property
    def _streams(self) -> tuple[_SampleStream, ...]:
        groups = [(rows,) for rows in self.piece_rows] if self.weights else [self.piece_rows]
        streams = []
        for number, group in enumerate(groups):
            pieces = np.concatenate(group).astype(np.int64)
            streams.append(
                _SampleStream(
                    number=number,
                    first_dataset=number,
                    dataset_starts=_starts(np.array([rows.sum() for rows in group])),
                    row_starts=_starts(pieces),
                    block_starts=_starts(-(-pieces // BATCH_ROWS)),
                )
            )
        return tuple(streams)

    @cached_property
    def _cycles(self) -> dict[int, tuple[IntArray, IntArray]]:
        return {}

    def _cycle(self, cycle: int) -> tuple[IntArray, IntArray]:
        """Samples of each dataset before a cycle, and its `_cycle_slots`; the last four stay."""
        if cycle not in self._cycles:
            while len(self._cycles) >= 4:  # a step of 8,192 meets three
                del self._cycles[next(iter(self._cycles))]
            # 1. Counts at both ends of the cycle; 2. their difference; 3. in `_cycle_slots`.
            begin, end = (self._proportions.counts((cycle + at) * CYCLE) for at in (0, 1))
            slots = _cycle_slots(end - begin, self.seed, cycle)
            self._cycles[cycle] = self._before + begin, slots
        return self._cycles[cycle]


def places_by_key(keys: IntArray) -> list[IntArray]:
    """The places of each distinct key among `keys` [n], in the order of the keys."""
    places = np.argsort(keys, kind="stable")  # stable: a key's places ascend
    return np.split(places, np.flatnonzero(np.diff(keys[places])) + 1) if keys.size else []


def places_of(positions: IntArray, skipped: tuple[tuple[int, int], ...]) -> IntArray:
    """The p-th place outside all [begin, end) of `skipped`, for each p of positions [n]."""
    for begin, end in skipped:  # in order: p is past earlier ones
        positions = positions + (positions >= begin) * (end - begin)
    return positions


def _starts(counts: IntArray) -> IntArray:
    """[n+1] running sums from 0."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The positions that one rank reads, and its micro-batch size."""

    sequences: int
    """G: sequences of an optimizer step over all ranks; fewer at first if the batch grows."""
    per_device: int
    """B: rows of a micro-batch."""
    world_size: int = 1
    rank: int = 0
    growth: tuple[tuple[int, int], ...] = ()
    """(sequences, first step with more), in order, while the batch grows."""

    def sequences_of(self, step: int) -> int:
        """G of the step with this number, from 0."""
        return next((sequences for sequences, end in self.growth if step < end), self.sequences)

    def accumulation_of(self, sequences: int) -> int:
        """Micro-batches of a step of `sequences` sequences, the same on every rank."""
        return -(-sequences // (self.world_size * self.per_device))

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step of full size."""
        return self.accumulation_of(self.sequences)

    def positions(self, consumed: int, sequences: int) -> IntArray:
        """Positions [about G / W] of this rank in the step of G that starts at `consumed`."""
        # Each position has one reader, also where W does not divide G.
        bounds = [sequences * rank // self.world_size for rank in (self.rank, self.rank + 1)]
        return np.arange(consumed + bounds[0], consumed + bounds[1])
