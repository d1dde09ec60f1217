"""Placing rows: nothing exceeds a capacity, little is dead, and no row changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.loading.micro_batch import BatchForm, MicroBatch
from pipeline.loading.placement import Capacity, expected_tokens, place
from tests.pipeline.loading.conftest import LENGTH, SLOTS, prepare_directory
from tests.pipeline.loading.test_loader import loader


def slow_first_fit(sizes: list[tuple[int, ...]], capacity: Capacity) -> list[list[int]]:
    """Rows of each micro-batch: each goes to the first that has room for all that it takes."""
    batches: list[list[int]] = []
    for row, own in enumerate(sizes):
        if own[0] == 0:
            continue
        for batch in batches:
            taken = [sum(part) for part in zip(*(sizes[other] for other in batch), own)]
            if all(size <= most for size, most in zip(taken, capacity, strict=True)):
                batch.append(row)
                break
        else:
            batches.append([row])
    return batches


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "capacity",
    [Capacity(300, 1000, 99, 99), Capacity(300, 41, 99, 99), Capacity(999, 999, 7, 99),
     Capacity(999, 999, 99, 11)],
    ids=["tokens", "predictions", "rows", "pieces"],
)  # fmt: skip
def test_rows_are_those_of_a_slow_first_fit(seed: int, capacity: Capacity) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(3, 71, 300) * (rng.random(300) < 0.95)  # some are excluded
    predictions, pieces = tokens // 7 + (tokens > 0), rng.integers(1, 5, 300)
    found = [own.tolist() for own in place(tokens, predictions, pieces, capacity)]
    sizes = list(zip(tokens.tolist(), predictions.tolist(), [1] * 300, pieces.tolist()))
    assert found == slow_first_fit(sizes, capacity)
    assert sorted(row for own in found for row in own) == np.flatnonzero(tokens).tolist()


def test_rows_of_one_limit_stay_in_order_and_missing_micro_batches_are_empty() -> None:
    tokens = np.array([5, 0, 9, 2, 2, 10])
    ones = np.ones(6, np.int64)
    by_rows = place(tokens, ones, ones, Capacity(1000, 1000, 2, 1000), least=4)
    assert [own.tolist() for own in by_rows] == [[0, 2], [3, 4], [5], []]
    (empty,) = place(np.zeros(4, np.int64), *[np.zeros(4, np.int64)] * 2, Capacity(9, 9, 9, 9))
    assert empty.tolist() == []


def test_full_sentences_leave_less_than_a_hundredth_dead() -> None:
    """A thousand rows a rank like those of FULL-SENTENCES at 512, which hold 494 tokens."""
    rng = np.random.default_rng(0)
    lengths = (512 - rng.exponential(18, 20_000)).astype(np.int64).clip(300, 512)
    mean, most = expected_tokens(lengths, np.ones(20_000), 1024, 8)
    parts = 16
    capacity = Capacity(64 * -(-round(most / parts + 128) // 64), 1 << 20, 80, 80)
    used = []
    for _ in range(50):
        rows = rng.choice(lengths, 1024)
        used.append(len(place(rows, rows, np.ones_like(rows), capacity)))
    assert max(used) == parts
    assert 1 - mean / (parts * capacity.tokens) < 0.01


def test_expected_tokens_are_those_of_many_draws() -> None:
    rng = np.random.default_rng(1)
    lengths, weights = np.array([10, 40, 70]), np.array([1.0, 2.0, 1.0])
    mean, most = expected_tokens(lengths, weights, 500, 4)
    drawn = rng.choice(lengths, (4000, 4, 500), p=weights / 4).sum(-1)
    assert drawn.mean() == pytest.approx(mean, rel=1e-3)
    assert (drawn.max(-1) > most).mean() == pytest.approx(0.01, abs=0.006)  # 3.8 deviations
    assert expected_tokens(np.array([70]), np.ones(1), 3, 8) == (210, 210)


def rows_of(batch: MicroBatch) -> dict[Any, tuple[Any, ...]]:
    """By row: ids, segments, label, and its predictions by place."""
    found = {}
    slots = zip(batch.positions.tolist(), batch.labels.tolist(), batch.weights.tolist())
    labels = {place: label for place, label, weight in slots if weight}
    for number, row in enumerate(batch.rows):
        own = {
            place - row.start: labels.pop(place)
            for place in range(row.start, row.stop)
            if place in labels
        }
        segments = batch.segment_ids
        key = int(batch.samples.pass_number[number]), int(batch.samples.row[number])
        found[key] = (
            batch.input_ids[row].tolist(),
            None if segments is None else segments[row].tolist(),
            None if batch.pair_labels is None else int(batch.pair_labels[number]),
            own,
        )
    assert not labels
    return found


@pytest.mark.parametrize("label", ["", "next", "order"])
@pytest.mark.parametrize("world", [1, 2])
def test_a_capacity_changes_no_row(label: str, world: int, tmp_path: Path) -> None:
    """Steps of fixed sizes hold the same rows, in fewer micro-batches where rows are short."""
    directory = prepare_directory(tmp_path / "news", (300,), label=label)
    form, parts = BatchForm(capacity=Capacity(6 * LENGTH, 6 * SLOTS + 12, 12, 12)), 0
    for rank in range(world):
        options: dict[str, Any] = {"per_device": 6, "world": (world, rank)}
        plain = loader(directory, **options).steps(48 * 5, 5)
        fixed = loader(directory, **options, form=form, prefetch=3).steps(48 * 5, 5)
        for step, short, _ in zip(plain, fixed, range(6), strict=False):
            assert step.counts == short.counts
            rows: dict[Any, tuple[Any, ...]] = {}
            fixed_rows: dict[Any, tuple[Any, ...]] = {}
            for batch in step.batches:
                rows |= rows_of(batch)
                assert batch.input_ids.shape == (batch.tokens,)
            for batch in short.batches:
                fixed_rows |= rows_of(batch)
                assert batch.input_ids.shape == (6 * LENGTH,)
                assert len(batch.positions) == 6 * SLOTS + 12
            parts += short.accumulation
            assert rows == fixed_rows and len(rows) == 48 // world
    assert parts < 0.9 * 48
