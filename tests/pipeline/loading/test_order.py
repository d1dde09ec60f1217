"""Sample order: passes are permutations, windows keep their blocks, mixtures keep their quotas."""

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from pipeline.base.errors import ConfigError
from pipeline.loading.order import CYCLE, Order, Share, places_by_key

SHARDS = (np.array([2500, 1024, 7, 1500]), np.array([3000, 100]))
SIZES = (5031, 3100)


def order_of(kind: Any = "global", seed: int = 0, pieces: Any = SHARDS, **more: Any) -> Order:
    return Order(kind=kind, seed=seed, piece_rows=pieces, **more)


def locate(order: Order, start: int, stop: int) -> np.ndarray:
    """[n, 3] dataset, pass and row."""
    found = order.locate(np.arange(start, stop))
    return np.stack([found.dataset, found.pass_number, found.row], axis=1)


@pytest.mark.parametrize("kind", ["global", "blocks"])
def test_every_pass_has_every_row_once_in_another_order(kind: str) -> None:
    order, count = order_of(kind, 3, SHARDS[:1], window=2), SIZES[0]
    passes = [locate(order, number * count, (number + 1) * count) for number in range(3)]
    for number, found in enumerate(passes, start=1):
        assert set(found[:, 0]) == {0} and set(found[:, 1]) == {number}
        assert np.array_equal(np.sort(found[:, 2]), np.arange(count))
    assert (passes[0][:, 2] == passes[1][:, 2]).mean() < 0.01
    other = order_of(kind, 4, SHARDS[:1], window=2)
    assert (passes[0][:, 2] == locate(other, 0, count)[:, 2]).mean() < 0.01


@pytest.mark.parametrize("weights", [(), (0.7, 0.3)])
@pytest.mark.parametrize("kind", ["global", "blocks"])
def test_any_seek_equals_reading_up_to_it(kind: str, weights: tuple[float, ...]) -> None:
    fresh = partial(order_of, kind, 9, weights=weights, window=3)
    whole = locate(fresh(), 0, 40_000)
    for start in (1, 4095, 4096, 5031, 8131, 16_263, 39_000):
        assert np.array_equal(locate(fresh(), start, start + 1000), whole[start : start + 1000])
    scattered = np.random.default_rng(0).permutation(40_000)
    found = fresh().locate(scattered)
    assert np.array_equal(found.row, whole[scattered, 2])
    assert np.array_equal(found.pass_number, whole[scattered, 1])


def test_sizes_mix_as_one_concatenation() -> None:
    order = order_of()
    assert order.total_rows == sum(SIZES)
    found = locate(order, 0, sum(SIZES))
    assert set(found[:, 1]) == {1}
    for dataset, size in enumerate(SIZES):
        assert np.array_equal(np.sort(found[found[:, 0] == dataset, 2]), np.arange(size))
    share = (found[:1000, 0] == 0).mean()
    assert abs(share - SIZES[0] / sum(SIZES)) < 0.08  # 5 standard deviations of 1,000 draws


@pytest.mark.parametrize("kind", ["global", "blocks"])
def test_weights_give_exact_quotas_and_own_passes(kind: str) -> None:
    found = locate(order_of(kind, weights=(0.3, 0.7)), 0, 8 * CYCLE)
    for cycle in range(8):
        part = found[cycle * CYCLE : (cycle + 1) * CYCLE, 0]
        # 4,096 x 0.3 = 1,228.8, so 1,229 in four cycles of five
        assert np.bincount(part).tolist() == [1229 - (cycle in (2, 7)), 2867 + (cycle in (2, 7))]
    for dataset, size in enumerate(SIZES):
        mine = found[found[:, 0] == dataset]
        whole_passes = len(mine) // size
        assert whole_passes >= 1
        for number in range(whole_passes):
            part = mine[number * size : (number + 1) * size]
            assert set(part[:, 1]) == {number + 1}
            assert np.array_equal(np.sort(part[:, 2]), np.arange(size))
    # Slots of a dataset are spread over the cycle, not bunched.
    halves = np.bincount(found[: CYCLE // 2, 0]) / np.bincount(found[:CYCLE, 0])
    assert np.all(np.abs(halves - 0.5) < 0.07)
    assert not np.array_equal(found[:CYCLE, 0], found[CYCLE : 2 * CYCLE, 0])


def test_a_mixture_of_1833_languages_is_read_in_proportion() -> None:
    """Of rows that fall as 1 / rank^1.5, by their square roots: the smallest share is 1.6e-4, less
    than one sample in 4,096. Every row shows its masks in turn: its k-th reading is in pass k."""
    rows = np.maximum(1, (4e5 * np.arange(1, 1834) ** -1.5).astype(np.int64))
    weights = tuple(np.sqrt(rows).tolist())
    shares = np.array(weights) / sum(weights)
    assert shares.min() * CYCLE < 1
    total = 100 * CYCLE
    pieces = tuple(np.array([n]) for n in rows)
    found = locate(order_of("global", 1, pieces, weights=weights), 0, total)
    counts = np.bincount(found[:, 0], minlength=1833)
    # half a sample per level of a tree of 11 levels
    assert np.abs(counts - total * shares).max() < 5.5 and counts.min() > 50
    for end in (1, 777, CYCLE, 5 * CYCLE + 3):  # also inside a shuffled cycle, to its length
        part = np.bincount(found[:end, 0], minlength=1833)
        assert np.abs(part - end * shares).max() < 5.5 + 4 * np.sqrt(CYCLE * shares.max())
    for language in (0, 100, 1000, 1832):
        mine = found[found[:, 0] == language]
        readings: Counter[int] = Counter()
        for _, number, row in mine.tolist():
            readings[row] += 1
            assert number == readings[row]
        assert max(readings.values()) - min(readings.values()) <= 1 or len(mine) < rows[language]
    assert counts[1832] > 10 * rows[1832]  # it is repeated often


def test_a_later_mixture_continues_after_an_earlier_one() -> None:
    """Each dataset at its next sample, so that no row shows a mask twice."""
    first = order_of(weights=(1.0, 9.0))
    read = first.read_of(20_000)
    assert read.tolist() == np.bincount(locate(first, 0, 20_000)[:, 0]).tolist()
    assert read.tolist() == pytest.approx([2000, 18_000], abs=100)
    later = order_of(weights=(1.0, 1.0), before=tuple(read.tolist()))
    assert (later.read_of(2 * CYCLE) - read).tolist() == [CYCLE, CYCLE]
    both = np.concatenate([locate(first, 0, 20_000), locate(later, 0, 5 * CYCLE)])
    whole = locate(order_of(weights=(1.0, 1.0)), 0, 20 * CYCLE)
    for dataset in (0, 1):  # as without a boundary
        seen = both[both[:, 0] == dataset]
        assert np.array_equal(seen, whole[whole[:, 0] == dataset][: len(seen)])
    assert order_of().read_of(1).tolist() == [*SIZES]  # a pass that is begun is not continued


def test_places_by_key() -> None:
    keys = np.array([5, 2, 5, 2, 9])
    assert [places.tolist() for places in places_by_key(keys)] == [[1, 3], [0, 2], [4]]
    assert places_by_key(keys[:0]) == []


def test_a_window_holds_the_rows_of_its_blocks() -> None:
    rows = np.array([4096, 3000, 1024, 5000])
    order = order_of("blocks", 5, (rows,), window=4)
    sizes = np.array([1024] * 4 + [1024, 1024, 952] + [1024] + [1024] * 4 + [904])
    block_of = np.repeat(np.arange(len(sizes)), sizes)
    for number in range(2):
        found = locate(order, number * rows.sum(), (number + 1) * rows.sum())[:, 2]
        blocks = block_of[found]
        seen: set[int] = set()
        start = 0
        while start < len(blocks):
            window: list[int] = list(dict.fromkeys(blocks[start : start + 300].tolist()))
            assert len(window) == min(4, len(sizes) - len(seen)) and not seen & set(window)
            stop = start + int(sizes[window].sum())
            assert np.array_equal(np.unique(blocks[start:stop]), np.sort(window))
            assert np.abs(np.diff(found[start:stop])).mean() > 200  # rows are mixed, not in runs
            seen |= set(window)
            start = stop


def test_sequential_is_file_order_and_ends_earlier_if_rows_are_skipped() -> None:
    found = locate(order_of("sequential"), 5029, 5033)
    assert found.tolist() == [[0, 1, 5029], [0, 1, 5030], [1, 1, 0], [1, 1, 1]]
    skipped = ((2, 2500), (2500, 2500), (2502, 5031), (5033, 8131))
    order = order_of("sequential", skipped=skipped)
    assert order.end == 6 and order.total_rows == sum(SIZES)
    left = [[0, 0], [0, 1], [0, 2500], [0, 2501], [1, 0], [1, 1]]
    assert locate(order, 0, 6)[:, [0, 2]].tolist() == left
    assert order_of().end is None


@pytest.mark.parametrize(("kind", "rows"), [("global", 10**10), ("blocks", 43 * 10**8)])
def test_billions_of_rows_need_no_permutation(kind: str, rows: int) -> None:
    order = order_of(kind, 1, (np.full(rows // 20_000, 20_000),))
    found = order.locate(np.arange(rows - 5000, rows + 5000))
    assert np.bincount(found.pass_number).tolist() == [0, 5000, 5000]
    for half in (found.row[:5000], found.row[5000:]):
        assert len(np.unique(half)) == 5000 and half.min() >= 0 and half.max() < rows


def test_an_impossible_order_is_refused() -> None:
    halves = {"weights": (1.0, 1.0)}
    for options, said in (
        ({"pieces": (np.array([0]),)}, "without rows"),
        ({"weights": (1.0,)}, "1 mixture weights for 2 datasets"),
        (halves | {"before": (3,)}, "1 numbers read for 2 datasets"),
        (halves | {"kind": "sequential"}, "sequential"),
        ({"kind": "blocks", "window": 0}, "order_window=0"),
    ):
        with pytest.raises(ConfigError, match=said):
            order_of(**options)


@pytest.mark.parametrize("sequences", [1, 7, 64, 100])
@pytest.mark.parametrize(("world_size", "per_device"), [(1, 64), (3, 5), (8, 4), (16, 8)])
def test_ranks_share_all_positions_of_a_step(
    sequences: int, world_size: int, per_device: int
) -> None:
    shares = [
        Share(sequences=sequences, per_device=per_device, world_size=world_size, rank=rank)
        for rank in range(world_size)
    ]
    parts = [share.positions(1000, sequences) for share in shares]
    assert np.concatenate(parts).tolist() == list(range(1000, 1000 + sequences))
    assert max(map(len, parts)) <= shares[0].accumulation * per_device
    assert (shares[0].accumulation - 1) * per_device * world_size < sequences
