"""Batches equal a slow decode, for any ranks, readers and seeks; damaged files are named."""

import dataclasses
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.base.errors import ConfigError, DataError
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchBuilder, BatchForm, MicroBatch
from pipeline.loading.order import Order, Share
from tests.pipeline.loading.conftest import MASK, PAD, drawing, prepare_directory


def loader(
    directories: Path | list[Path],
    sequences: int = 48,
    per_device: int = 8,
    *,
    kind: Any = "global",
    world: tuple[int, int] = (1, 0),
    weights: tuple[float, ...] = (),
    window: int = 2,
    **options: Any,
) -> Loader:
    """A loader of `directories` for rank world[1] of world[0]."""
    listed = directories if isinstance(directories, list) else [directories]
    datasets = [Dataset.open(directory) for directory in listed]
    rows = tuple(dataset.piece_rows for dataset in datasets)
    order = Order(kind=kind, seed=3, piece_rows=rows, weights=weights, window=window)
    share = Share(sequences=sequences, per_device=per_device, world_size=world[0], rank=world[1])
    return Loader(datasets, order, share, **options)


def drawn(directory: Path, **options: Any) -> Loader:
    """As `loader`, but the masks are drawn instead of read."""
    source = loader(directory, **options)
    return Loader([drawing(directory)], source.order, source.share, reader=source.reader)


def take(source: Loader, count: int, consumed: int = 0, number: int = 0) -> list[MicroBatch]:
    found = [batch for _, batch in zip(range(count), source.micro_batches(consumed, number))]
    source.close()
    return found


@cache
def stored(path: Path) -> list[Any]:
    """The rows of a shard file."""
    return arrow_files.read_table(path).to_pylist()


def slow_decode(directory: Path, row: int, duplicate: int) -> tuple[list[int], dict[int, int]]:
    """The encoder's input of a row, and its labels by position, token by token."""
    for shard in read_manifest(directory).shards:
        if row < shard.sequences:
            break
        row -= shard.sequences
    masks = stored(directory / shard.masks[duplicate].file)[row]
    seen, labels = list(stored(directory / shard.file)[row]["input_ids"]), {}
    randoms = iter(masks["random_ids"])
    for position in range(len(seen)):
        if masks["positions"][position // 8] >> position % 8 & 1:
            number = len(labels)
            action = masks["actions"][number // 4] >> 2 * (number % 4) & 3
            labels[position] = seen[position]
            seen[position] = [MASK, None, seen[position]][action] if action != 1 else next(randoms)
    return seen, labels


def assert_decoded(directory: Path, batch: MicroBatch) -> None:
    labels: dict[int, int] = {}
    for row, (number, pass_number) in enumerate(zip(batch.samples.row, batch.samples.pass_number)):
        seen, expected = slow_decode(directory, int(number), (int(pass_number) - 1) % 10)
        assert batch.input_ids[batch.rows[row]].tolist() == seen
        start = batch.rows[row].start
        labels |= {start + position: label for position, label in expected.items()}
    assert batch.predictions == len(labels)
    assert batch.tokens == len(batch.input_ids)
    assert batch.positions.tolist() == list(labels)
    assert batch.labels.tolist() == list(labels.values())
    assert batch.weights.tolist() == [1] * len(labels)


def assert_same(ones: list[MicroBatch], others: list[MicroBatch]) -> None:
    for one, other in zip(ones, others, strict=True):
        for field in dataclasses.fields(MicroBatch):
            left, right = getattr(one, field.name), getattr(other, field.name)
            if isinstance(left, torch.Tensor):
                assert torch.equal(left, right), field.name
            elif field.name == "samples":
                assert np.array_equal(left.row, right.row)
            else:
                assert left == right, field.name


def test_pieces_are_read_as_if_each_were_a_shard(tmp_path: Path) -> None:
    """In the same order with the same masks, from the start and from the middle of any pass."""
    readings = {"none": ("global mmap", "blocks mmap", "blocks read"), "zstd": ("blocks read",)}
    for compression, options in readings.items():
        apart, together = (
            prepare_directory(tmp_path / compression / str(len(rows)), rows, duplicates=2,
                    compression=compression)
            for rows in ((1500, 30, 1024, 300), ((1500, 30), (1024, 300)))
        )  # fmt: skip
        for kind, reader in map(str.split, options):
            for of, count, consumed in (
                (loader, 12, 0), (loader, 12, 2820), (loader, 12, 4000), (drawn, 6, 5000),
            ):  # fmt: skip
                one, other = (of(path, kind=kind, reader=reader) for path in (apart, together))
                assert_same(take(one, count, consumed), take(other, count, consumed))


@pytest.mark.parametrize(("vocabulary", "label"), [(1000, ""), (70_000, ""), (1000, "order")])
def test_drawn_masks_are_those_of_stored_duplicates(
    vocabulary: int, label: str, tmp_path: Path
) -> None:
    """Epoch e draws the masks of duplicate e - 1, from any position and across ends of passes; and
    the coins of pairs."""
    directory = prepare_directory(
        tmp_path / "news", (300, 100), duplicates=3, vocabulary=vocabulary, label=label
    )
    for consumed in (0, 384, 800):
        assert_same(take(loader(directory), 12, consumed), take(drawn(directory), 12, consumed))


def test_drawn_masks_never_repeat(tmp_path: Path) -> None:
    directory = prepare_directory(tmp_path / "news", (48,), duplicates=2)
    epochs = [take(drawn(directory), 6, 48 * epoch) for epoch in range(12)]
    masked = {tuple(int(batch.positions.sum()) for batch in batches) for batches in epochs}
    assert len(masked) == 12


def test_a_batch_equals_a_slow_decode(random_shards: Path, tmp_path: Path) -> None:
    """Also of ids that are stored as uint32, and if one step spans many passes: all ten duplicates
    of a toy corpus are in use at once."""
    large = prepare_directory(tmp_path / "news", (200,), vocabulary=70_000)
    toy = prepare_directory(tmp_path / "toy", (5,))
    steps: dict[str, Any] = {"sequences": 128, "per_device": 32}
    for source, count in (
        (loader(random_shards), 3), (loader(large), 1), (loader(toy, **steps), 6),
        (loader(toy, **steps, reader="read", kind="blocks"), 6),
    ):  # fmt: skip
        for batch in take(source, count):
            assert_decoded(source.datasets[0].directory, batch)
            integers = batch.input_ids, batch.positions, batch.labels
            assert {own.dtype for own in integers} == {torch.int64}
            assert batch.weights.dtype == torch.float32
            assert (batch.labels.max() > 65_536) == (source.datasets[0].directory == large)


def test_a_step_holds_the_same_sequences_on_any_ranks(random_shards: Path) -> None:
    def step_rows(world: int, per_device: int) -> list[list[int]]:
        sources = [
            loader(random_shards, 48, per_device, world=(world, rank)) for rank in range(world)
        ]
        iterators = [source.steps() for source in sources]
        found = []
        for _ in range(4):
            parts = [next(iterator) for iterator in iterators]
            rows = [batch.samples.row for part in parts for batch in part.batches]
            found.append(np.concatenate(rows).tolist())
            assert sum(len(part.samples) for part in parts) == parts[0].sequences == 48
        return found

    alone = step_rows(1, 48)
    assert alone == step_rows(3, 5) == step_rows(8, 2) == step_rows(8, 4)


def test_a_rank_without_rows_has_dead_tokens(random_shards: Path) -> None:
    """And every rank has the same number of micro-batches."""
    source = loader(random_shards, sequences=10, per_device=4, world=(2, 1))
    full, rest = take(source, 2)
    assert (len(full.rows), len(rest.rows)) == (4, 1)
    assert rest.tokens == len(rest.input_ids) == rest.rows[0].stop
    (empty,) = take(loader(random_shards, sequences=1, per_device=2, world=(4, 1)), 1)
    assert empty.input_ids.tolist() == [PAD] * 2 and not empty.rows


@pytest.mark.parametrize("prefetch", [0, 5])
def test_a_batch_that_grows(random_shards: Path, prefetch: int) -> None:
    """Steps of 8, 8, 24, then 48 sequences in micro-batches of 8; the same from a seek on."""
    source = loader(random_shards, prefetch=prefetch)
    even = [row for batch in take(source, 12) for row in batch.samples.row.tolist()]
    source.share = dataclasses.replace(source.share, growth=((8, 2), (24, 3)))
    for number, consumed, sizes in ((0, 0, [8, 8, 24, 48]), (2, 16, [24, 48])):
        steps = source.steps(consumed, number)
        for size, step in zip(sizes, steps):
            found = [row for batch in step.batches for row in batch.samples.row.tolist()]
            assert (step.number, step.consumed, step.sequences) == (number, consumed, size)
            assert step.accumulation == size / 8
            assert found == even[consumed : consumed + size]
            number, consumed = number + 1, consumed + size
        source.close()


def test_a_seek_equals_reading_up_to_it(random_shards: Path) -> None:
    for kind, reader in (("global", "mmap"), ("blocks", "mmap"), ("blocks", "read")):
        source = loader(random_shards, sequences=40, per_device=40, kind=kind, reader=reader)
        whole = take(source, 150)  # two passes of 2,824 rows
        for step in (1, 70, 71, 149):
            assert_same(take(source, 1, consumed=step * 40, number=step), [whole[step]])
        halved = loader(random_shards, sequences=20, per_device=20, kind=kind, reader=reader)
        batch = take(halved, 1, consumed=40 * 70 + 20)[0]  # from here on with another batch size
        assert batch.samples.row.tolist() == whole[70].samples.row[20:].tolist()


def test_a_mixture_reads_each_dataset_by_its_own_pass(random_shards: Path, tmp_path: Path) -> None:
    small = prepare_directory(tmp_path / "books", (100,), seed=1)
    source = loader([random_shards, small], 512, 512, weights=(3.0, 1.0))
    found = take(source, 8)
    dataset = np.concatenate([batch.samples.dataset for batch in found])
    assert np.bincount(dataset).tolist() == [3072, 1024]
    assert found[-1].samples.pass_number[found[-1].samples.dataset == 1].max() == 11
    for batch in (found[0], found[-1]):
        for row in range(0, 512, 37):
            origin = (random_shards, small)[batch.samples.dataset[row]]
            duplicate = int(batch.samples.pass_number[row] - 1) % 10
            seen, _ = slow_decode(origin, int(batch.samples.row[row]), duplicate)
            assert batch.input_ids[batch.rows[row]].tolist() == seen


def test_neither_compression_nor_prefetching_changes_a_batch(
    random_shards: Path, compressed: Path
) -> None:
    """Nor does drawing masks of compressed rows."""
    blocks: dict[str, Any] = {"kind": "blocks", "reader": "read"}
    plain = take(loader(random_shards, kind="blocks", reader="mmap"), 400)
    assert_same(take(loader(random_shards, **blocks), 400), plain)
    assert_same(take(loader(compressed, **blocks, prefetch=3), 400), plain)
    assert_same(take(drawn(compressed, **blocks), 12), plain[:12])
    assert_same(take(loader(random_shards, prefetch=4), 60), take(loader(random_shards), 60))


def test_contradictory_options_are_named(random_shards: Path, compressed: Path) -> None:
    for directory, options, error, said in (
        (compressed, {}, DataError, r"data\.order=blocks"),
        (compressed, {"kind": "blocks"}, DataError, r"data\.reader=read"),
        (random_shards, {"reader": "read"}, ConfigError, r"data\.order=blocks, .*\.reader=mmap"),
    ):
        with pytest.raises(error, match=said):
            loader(directory, **options)


def test_validation_ends_after_one_pass_of_duplicate_0(random_shards: Path) -> None:
    for options in ({}, {"reader": "read", "prefetch": 2}):
        source = loader(random_shards, sequences=1000, per_device=500, kind="sequential", **options)
        found = list(source.micro_batches())
        rows = [batch.samples.row.tolist() for batch in found]
        assert rows == [[*range(2824)][start : start + 500] for start in range(0, 2824, 500)]
        assert [step.sequences for step in source.steps()] == [1000, 1000, 824]
        assert len(found[-1].rows) == 324
        assert set(found[-1].samples.pass_number.tolist()) == {1}


def test_documents_come_as_pieces(random_shards: Path) -> None:
    batch = take(loader(random_shards, 10, 8, form=BatchForm(attention="document")), 2)[0]
    expected = [0]
    for row in batch.rows:
        length = row.stop - row.start
        ends = {20, 41, length} if length > 60 else {length}
        expected += [row.start + end for end in sorted(ends)]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.cu_seqlens.tolist() == expected


def test_a_thread_ends_with_its_iteration_and_hands_over_errors(
    random_shards: Path, damaged: Path
) -> None:
    before = threading.active_count()
    source = loader(random_shards, prefetch=2, kind="blocks", reader="read")
    iteration = source.micro_batches()
    next(iteration)
    assert threading.active_count() > before
    next(source.micro_batches())  # another iteration ends the one before
    with pytest.raises(StopIteration):
        while True:
            next(iteration)
    source.close()
    assert threading.active_count() == before

    for path in damaged.glob("mask-1/*.arrow"):
        path.unlink()
    with pytest.raises(DataError, match=r"no masks of duplicate 1"):
        for _ in loader(damaged, prefetch=2).micro_batches():
            pass
    assert threading.active_count() == before


@pytest.mark.parametrize("label", ["next", "order"])
@pytest.mark.parametrize("options", [{}, {"kind": "blocks", "reader": "read", "window": 1}])
def test_pairs_show_their_segments(label: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Two passes: ids, slots, segments and labels of every row."""
    directory = prepare_directory(tmp_path / "pairs", (100,), duplicates=2, label=label)
    shard = read_manifest(directory).shards[0]
    source = loader(directory, 10, 8, form=BatchForm(attention="document"), **options)
    seen = set()
    for batch in take(source, 40):
        labels: dict[int, int] = {}
        assert batch.segment_ids is not None and batch.pair_labels is not None
        assert batch.cu_seqlens.tolist() == [0, *(row.stop for row in batch.rows)]
        for row in range(len(batch.samples)):
            number, duplicate = int(batch.samples.row[row]), int(batch.samples.pass_number[row]) - 1
            ids, answers = slow_decode(directory, number, duplicate)
            about = stored(directory / shard.file)[number]
            second, answer = about["second_segment"], about["pair_label"]
            mask = stored(directory / shard.masks[duplicate].file)[number]
            kept = list(range(len(ids)))  # places in the stored row of the tokens shown
            if mask.get("swapped") and second:
                a, b = kept[1 : second - 2], kept[second:-1]
                kept = [0, *b, second - 2, second - 1, *a, len(ids) - 1]
                second, answer = 1 + len(b) + 2, 1
            own = batch.rows[row]
            assert batch.input_ids[own].tolist() == [ids[place] for place in kept]
            expected = [int(0 < second <= place) for place in range(len(ids))]
            assert batch.segment_ids[own].tolist() == expected
            assert batch.pair_labels[row] == (answer if second else -1)
            shown = {own.start + to: place for to, place in enumerate(kept) if place in answers}
            labels |= {to: answers[place] for to, place in shown.items()}
            seen.add((bool(second), int(batch.pair_labels[row])))
        slots = zip(batch.positions.tolist()[: len(labels)], batch.labels.tolist())
        assert list(slots) == sorted(labels.items())
        assert len(batch.pair_labels) == len(batch.samples)
        assert batch.counts.pairs == int((batch.pair_labels >= 0).sum())
    assert seen == {(False, -1), (True, 0), (True, 1)}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_steps_know_their_counts_before_their_batches(random_shards: Path, prefetch: int) -> None:
    steps = loader(random_shards, prefetch=prefetch).steps()
    step = next(steps)
    for following in (next(steps), next(steps), next(steps)):
        found = list(step.batches)
        assert step.counts.predictions == sum(batch.predictions for batch in found) > 0
        assert step.counts.tokens == sum(batch.tokens for batch in found)
        assert {batch.step for batch in found} == {step.number}
        step = following
    next(step.batches)  # of which the others are skipped
    assert [batch.step for batch in next(steps).batches] == [4] * 6


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_step_before_damaged_rows_is_whole(damaged: Path, prefetch: int) -> None:
    """All ranks can then end together, after that step."""
    steps = loader(damaged, kind="sequential", prefetch=prefetch).steps(29 * 48, 29)
    (damaged / "mask-0/train-00001.arrow").unlink()  # from row 1,500 on, in the step after 30
    first, second = next(steps), next(steps)
    assert len(list(first.batches)) == 6
    with pytest.raises(DataError, match=r"mask-0/train-00001\.arrow is missing"):
        next(steps)
    assert [batch.step for batch in second.batches] == [30] * 6


@pytest.mark.parametrize("reader", ["mmap", "read"])
@pytest.mark.parametrize("name", ["rows/train-00001.arrow", "mask-0/train-00001.arrow"])
def test_damaged_bytes_end_in_an_error(damaged: Path, name: str, reader: str) -> None:
    path = damaged / name
    content = np.fromfile(path, np.uint8)
    content[: len(content) // 2] = 255
    content.tofile(path)
    with pytest.raises(DataError, match=name):
        take(loader(damaged, kind="blocks", reader=reader), 360)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_micro_batches_are_decoded_as_they_are_read(
    random_shards: Path, prefetch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even in a large step: at most `prefetch` wait, one is being read and one is ready."""
    built, build = [], BatchBuilder.batch

    def counted(self: BatchBuilder, *arguments: Any) -> MicroBatch:
        built.append(arguments[:2])
        return build(self, *arguments)

    monkeypatch.setattr(BatchBuilder, "batch", counted)
    source = loader(random_shards, sequences=1024, prefetch=prefetch)
    read = 0
    for step, _ in zip(source.steps(), range(2)):
        for batch in step.batches:
            read += 1
            assert batch.micro_batch == (read - 1) % 128
            assert len(built) <= read + (prefetch + 1 if prefetch else 0)
    source.close()
    assert read == 256 and built[:256] == [(i // 128, i % 128) for i in range(256)]


def test_padding_adds_micro_batches_without_rows(random_shards: Path) -> None:
    source = loader(random_shards, prefetch=2)
    steps = source.steps()
    step = source.pad_micro_batches(next(steps), 8)
    found = list(step.batches)
    assert [batch.micro_batch for batch in found] == list(range(8)) and step.accumulation == 8
    assert sum(batch.predictions for batch in found[:6]) == step.counts.predictions
    for batch in found[6:]:
        assert not batch.weights.any() and not batch.rows and not len(batch.samples)
    assert next(steps).number == 1
    source.close()
