"""Noise for ELECTRA's generator depends on the row and the place in it, not on other rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.loading.micro_batch import Extras
from pipeline.loading.order import Located
from pipeline.loading.sampling_noise import draws
from tests.pipeline.loading.test_loader import loader

LENGTH = 128


def samples(dataset: int, pass_number: int, rows: list[int]) -> Located:
    full = [np.full(len(rows), value) for value in (dataset, pass_number)]
    return Located(full[0], full[1], np.array(rows))


def starts(rows: int) -> np.ndarray:
    return np.arange(rows) * LENGTH


def all_places(rows: int) -> np.ndarray:
    return np.arange(rows * LENGTH)


def test_bits_are_fair_and_independent() -> None:
    drawn = draws(0, samples(0, 1, list(range(1000))), starts(1000), all_places(1000))
    assert drawn.dtype == np.int64 and len(np.unique(drawn)) == len(drawn)
    bits = np.unpackbits(drawn.view(np.uint8)).reshape(1000, LENGTH, 64) * 2.0 - 1
    assert np.abs(bits.mean((0, 1))).max() < 4.5 / len(drawn) ** 0.5
    for other in (bits[1:], bits[:, 1:]):  # the next row's, and the next place's
        near = bits[: other.shape[0], : other.shape[1]]
        assert np.abs((near * other).mean((0, 1))).max() < 4.5 / other[..., 0].size ** 0.5


def test_neither_micro_batches_nor_neighbours_change_them() -> None:
    whole = draws(7, samples(0, 3, [5, 9, 2, 8]), starts(4), all_places(4)).reshape(4, LENGTH)
    alone = draws(7, samples(0, 3, [2]), starts(1), np.array([17, 3, 0]))
    assert alone.tolist() == whole[2, [17, 3, 0]].tolist()


def test_seed_dataset_pass_and_row_each_change_them() -> None:
    variants = [(0, 0, 1, 4), (1, 0, 1, 4), (0, 1, 1, 4), (0, 0, 2, 4), (0, 0, 1, 5)]
    drawn = [draws(s, samples(d, p, [r]), starts(1), all_places(1)) for s, d, p, r in variants]
    for index, one in enumerate(drawn):
        for other in drawn[index + 1 :]:
            assert (one == other).mean() == 0


def test_without_rows_nothing_is_drawn() -> None:
    assert draws(0, samples(0, 1, []), starts(0), np.zeros(3, np.int64)).tolist() == [0, 0, 0]


def test_batches_include_the_noise(random_shards: Path) -> None:
    """The same for a row in any micro-batch, and only on request."""
    found = {}
    for rows in (8, 3):
        source = loader(random_shards, 24, rows, extras=Extras(draws_seed=5))
        for batch in next(source.steps()).batches:
            assert batch.draws is not None and len(batch.draws) == len(batch.positions)
            places = batch.positions[: batch.predictions].tolist()
            for position, drawn in zip(places, batch.draws.tolist()):
                row = max(n for n, own in enumerate(batch.rows) if own.start <= position)
                place = position - batch.rows[row].start
                found[rows, int(batch.samples.row[row]), place] = drawn
        source.close()
    assert len(found) > 200
    assert all(found[3, row, place] == drawn for (_, row, place), drawn in found.items())
    assert next(loader(random_shards).micro_batches()).draws is None
