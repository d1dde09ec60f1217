"""Rows in lines: none overlap, few tokens stay empty, and a packed batch holds the same rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.loading.dataset import Dataset
from pipeline.loading.line_packing import fit_rows, place_in_order, place_packed
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import MicroBatch
from pipeline.loading.order import Order, Share
from tests.pipeline.loading.conftest import LENGTH, PAD, SLOTS

Prepare = Callable[..., Path]


def slow_best_fit(tokens: list[int], length: int) -> list[list[int]]:
    """Rows of each line: the longest first, each into the line with the least room for it."""
    lines: list[list[int]] = []
    rooms: list[int] = []
    for row in sorted(range(len(tokens)), key=lambda row: -tokens[row]):
        fits = [line for line, room in enumerate(rooms) if room >= tokens[row]]
        if not fits:
            lines.append([])
            rooms.append(length)
            fits = [len(lines) - 1]
        best = min(fits, key=lambda line: rooms[line])
        lines[best].append(row)
        rooms[best] -= tokens[row]
    return lines


@pytest.mark.parametrize("seed", range(4))
def test_lines_are_those_of_a_slow_best_fit(seed: int) -> None:
    """As many lines, equally full: ties between lines may be broken either way."""
    rng = np.random.default_rng(seed)
    tokens = rng.choice([rng.integers(3, 20, 300), rng.integers(3, 71, 300)][seed % 2], 300)
    line, place, used = fit_rows(tokens, 70)
    ends = [
        sorted((place[row], place[row] + tokens[row]) for row in np.flatnonzero(line == number))
        for number in range(used)
    ]
    for own in ends:
        assert own[0][0] == 0 and own[-1][1] <= 70
        assert all(first[1] == second[0] for first, second in pairwise(own))
    expected = [sum(tokens[row] for row in rows) for rows in slow_best_fit(tokens.tolist(), 70)]
    assert sorted(own[-1][1] for own in ends) == sorted(expected)


def test_short_rows_fill_their_lines() -> None:
    """Like sentence pairs: 54 tokens, standard deviation 25; under 0.3 % of 512 stays empty."""
    tokens = np.random.default_rng(0).gamma(4.6, 11.7, 20_000).astype(np.int64).clip(6, 512)
    _, _, used = fit_rows(tokens, 512)
    assert tokens.sum() / (used * 512) > 0.997


def test_micro_batches_have_equal_lines_and_missing_ones_are_filled() -> None:
    tokens = np.array([5, 0, 9, 2, 2, 10, 7, 0])
    first, second = place_packed(tokens, 3, 10)
    assert first.rows.tolist() == [5, 2, 6, 3]  # 10 | 9 | 7 2
    assert first.starts.tolist() == [0, 10, 20, 27]
    assert second.rows.tolist() == [0, 4, -1, -1]  # 5 2 | filling | filling
    assert second.starts.tolist() == [0, 5, 10, 20]
    (empty,) = place_packed(np.zeros(4, np.int64), 2, 10)
    assert empty.rows.tolist() == [-1, -1] and empty.starts.tolist() == [0, 10]
    last = place_in_order(6, 3, 10)[-1]
    assert last.rows == slice(3, 6) and last.starts.tolist() == [0, 10, 20]


def loader(directory: Path, world: tuple[int, int] = (1, 0), lines: int = 6, **more: Any) -> Loader:
    dataset = Dataset.open(directory)
    order = Order(kind="global", seed=3, shard_rows=(dataset.shard_rows,))
    share = Share(sequences=48, per_device=lines, world_size=world[0], rank=world[1])
    return Loader([dataset], order, share, **more)


def rows_of(batch: MicroBatch) -> dict[Any, tuple[Any, ...]]:
    """By row: ids, segments, label, and its predictions by place."""
    found = {}
    length = batch.input_ids.shape[1]
    slots = zip(batch.positions.tolist(), batch.labels.tolist(), batch.weights.tolist())
    labels = {place: label for place, label, weight in slots if weight}
    ends = batch.cu_seqlens
    assert len(batch.samples) == int(batch.row_weights.sum())
    for row, start in enumerate(batch.row_starts.tolist()[: len(batch.samples)]):
        if ends is None:
            stop = start + int(batch.lengths[row])
        else:
            stop = int(ends[torch.searchsorted(ends, start, right=True)])
        assert start % length + stop - start <= length
        own = {place - start: labels.pop(place) for place in range(start, stop) if place in labels}
        segments = batch.segment_ids
        key = int(batch.samples.pass_number[row]), int(batch.samples.row[row])
        found[key] = (
            batch.input_ids.flatten()[start:stop].tolist(),
            None if segments is None else segments.flatten()[start:stop].tolist(),
            None if batch.pair_labels is None else int(batch.pair_labels[row]),
            own,
        )
    assert not labels
    return found


@pytest.mark.parametrize("label", ["", "next", "order"])
@pytest.mark.parametrize("world", [1, 2])
def test_packed_steps_hold_the_same_rows(
    label: str, world: int, prepare: Prepare, tmp_path: Path
) -> None:
    directory = prepare(tmp_path / "news", (300,), label=label)
    lines = 0
    for rank in range(world):
        plain = loader(directory, (world, rank)).steps(48 * 5, 5)
        several = loader(directory, (world, rank), packing="rows", prefetch=3).steps(48 * 5, 5)
        for step, short, _ in zip(plain, several, range(6), strict=False):
            assert step.counts == short.counts
            rows: list[dict[Any, tuple[Any, ...]]] = [{}, {}]
            for own, batches in zip(rows, (step.batches, short.batches), strict=True):
                for batch in batches:
                    own |= rows_of(batch)
                    assert batch.input_ids.shape == (6, LENGTH)
                    assert len(batch.positions) == 6 * SLOTS
            lines += short.accumulation * 6
            assert rows[0] == rows[1] and len(rows[0]) == 48 // world
    assert lines < 0.9 * 6 * 48


def test_space_without_rows_is_padding_and_filling(prepare: Prepare, tmp_path: Path) -> None:
    directory = prepare(tmp_path / "news", (300,), label="next")
    source = loader(directory, lines=32, packing="rows")
    step = source.pad_micro_batches(next(source.steps()), 3)
    *_, last, filling = step.batches
    for batch in (last, filling):
        lines, used = batch.input_ids.tolist(), batch.lengths.tolist()
        assert all(set(ids[size:]) <= {PAD} for ids, size in zip(lines, used, strict=True))
        rows = len(batch.samples)
        assert batch.row_weights.tolist() == [1.0] * rows + [0.0] * (len(batch.row_weights) - rows)
        assert batch.pair_labels is not None and set(batch.pair_labels[rows:].tolist()) <= {-1}
        assert batch.cu_seqlens is not None and batch.cu_seqlens[-1] == batch.input_ids.numel()
        assert batch.cu_seqlens.diff().min() > 0
    assert filling.lengths.tolist() == [2] * 32 and filling.predictions == 0
    assert (filling.micro_batch, step.accumulation) == (2, 3)
