"""A split of a prepared directory: missing, damaged, skipped and unsuitable files are named."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pipeline.base.errors import DataError
from pipeline.config.settings import override
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.evaluation.held_out import validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from tests.pipeline.data.small_shards import with_column
from tests.pipeline.loading.conftest import LENGTH, drawing, prepare_directory
from tests.pipeline.preparing import rewrite


def test_a_missing_or_cut_file_is_named_or_its_shard_skipped(
    random_shards: Path, damaged: Path
) -> None:
    path = damaged / "mask-3/train-00001.arrow"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"mask-3/train-00001\.arrow is damaged"):
        Dataset.open(damaged)
    path.unlink()
    with pytest.raises(DataError, match=r"mask-3/train-00001\.arrow is missing"):
        Dataset.open(damaged)
    assert Dataset.open(damaged, skip_damaged=True).damaged == {"train-00001.arrow"}
    for path in damaged.glob("mask-3/*.arrow"):
        path.unlink()
    dataset = Dataset.open(damaged)  # a duplicate that was not staged
    with pytest.raises(DataError, match=r"no masks of duplicate 3 .* copy duplicate 3 too"):
        dataset.records(np.arange(2), 3)
    with pytest.raises(DataError, match="no validation rows"):
        Dataset.open(random_shards, split="validation")


def test_skipped_shards_are_not_read(random_shards: Path, tmp_path: Path) -> None:
    dataset = Dataset.open(random_shards)
    rows = np.array([0, 1500, 1499, 2600])
    assert dataset.read_of(rows, slice(None)) == slice(None)
    dataset.exclude({"train-00001.arrow"})
    assert np.asarray(dataset.read_of(rows, slice(None))).tolist() == [0, 2, 3]
    assert np.asarray(dataset.read_of(rows, np.array([1, 2]))).tolist() == [2]
    assert not dataset.is_excluded
    pieces = Dataset.open(prepare_directory(tmp_path / "news", (10, (20, 30), 5), duplicates=1))
    pieces.exclude({"train-00001.arrow"})
    rows = np.array([9, 10, 29, 30, 59, 60, 64])
    assert np.asarray(pieces.read_of(rows, slice(None))).tolist() == [0, 5, 6]
    mask = random_shards / "mask-4/train-00001.arrow"
    assert dataset.shard_with(mask) == "train-00001.arrow"
    assert dataset.shard_with(None) == dataset.shard_with(Path("rows/train-00001.arrow")) == ""


def test_numbers_do_not_depend_on_how_many_pieces_share_a_file(tmp_path: Path) -> None:
    apart, together = (
        Dataset.open(prepare_directory(tmp_path / str(len(rows)), rows, duplicates=2))
        for rows in ((40, 1500, 7), ((40, 1500), 7))
    )
    assert apart.piece_rows.tolist() == together.piece_rows.tolist() == [40, 1500, 7]
    assert apart.rows == together.rows == 1547 and apart.tokens == together.tokens
    assert np.array_equal(apart.some_lengths(), together.some_lengths())
    assert apart.mean_predictions == together.mean_predictions
    drawn = [drawing(own.directory).mean_predictions for own in (apart, together)]
    assert drawn[0] == drawn[1]
    assert [shard.sequences for shard in together.shards] == [1540, 7]


def plant(path: Path, column: str, row: int, value: object) -> None:
    """Replace a value of an uncompressed shard file, which keeps its size."""
    table, size = arrow_files.read_table(path), path.stat().st_size
    values = table[column].to_pylist()
    values[row] = value
    rewrite(path, with_column(table, column, values))
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    ("file", "column", "value"),
    [("rows", "second_segment", 60_000), ("mask-0", "positions", b"\xff")],
)
def test_impossible_values_are_refused_with_their_file_and_row(
    file: str, column: str, value: object, tmp_path: Path
) -> None:
    """Mapped and read; test_resolve.py has all values that are impossible."""
    directory = prepare_directory(tmp_path / "news", (1500,), duplicates=1)
    path = directory / file / "train-00000.arrow"
    stored = arrow_files.read_table(path)[column].to_pylist()
    row = next(row for row in range(1024, 1500) if file == "rows" or len(stored[row]) == 1)
    plant(path, column, row, value)
    said = rf"{file}/train-00000\.arrow is damaged: row {row} "
    rows = np.arange(1500)
    with pytest.raises(DataError, match=said) as mapped:
        Dataset.open(directory).records(rows, 0, details=True)
    assert mapped.value.file == path
    with pytest.raises(DataError, match=said), ThreadPoolExecutor(2) as pool:
        Dataset.open(directory).read_records(rows, 0, pool, 0, details=True)


def test_drawn_masks_fit_the_vocabulary_and_the_manifest(tmp_path: Path) -> None:
    """Ids would be looked up in tables of the vocabulary's size, and micro-batches have room for as
    many predictions as the manifest allows; more were written beyond their memory."""
    directory = prepare_directory(tmp_path / "news", duplicates=0)
    assert read_manifest(directory).max_predictions == 10
    dataset = drawing(directory, max_predictions=9)
    with pytest.raises(DataError, match=r"allows 9 .* draws 10 "):
        dataset.records(np.arange(1500), 0)
    path = directory / "rows/train-00000.arrow"
    lengths = arrow_files.read_table(path)["input_ids"].combine_chunks().value_lengths()
    plant(path, "input_ids", 5, [0, *[1000] * (lengths[5].as_py() - 2), 2])
    with pytest.raises(DataError, match=r"train-00000\.arrow is damaged: row 5"):
        assert drawing(directory).mean_predictions


def held_out_masks(dataset: Dataset, rows: int) -> list[list[int]]:
    """Ids and labels of the first rows as a model sees them, with the predicted positions."""
    (batch,) = islice(validation_loader([dataset], rows).micro_batches(), 1)
    count = batch.predictions
    found = batch.input_ids, batch.positions[:count], batch.labels[:count]
    return [part.tolist() for part in found]


@pytest.mark.parametrize("scheme", ["token", "whole_word", "ngram", "span"])
def test_held_out_masks_at_another_rate(scheme: str, prepared: Path) -> None:
    """As many as the formula of the scheme says, and the stored ones at their own rate."""
    stored = Dataset.open(prepared, "validation")
    lengths = {"ngram": [0.6, 0.4], "span": [0.5, 0.5]}.get(scheme)
    law = stored.manifest.masking | {"scheme": scheme} | ({"lengths": lengths} if lengths else {})
    stored.manifest = replace(stored.manifest, masking=law)
    assert stored.at_rate(0) is stored and stored.at_rate(0.15) is stored
    other, rows = stored.at_rate(0.4), np.arange(200)
    table = arrow_files.read_table(prepared / stored.shards[0].file)
    ids, offsets = arrow_files.ragged(table["input_ids"])
    special = read_vocabulary(prepared / "tokenizer").special
    text = np.add.reduceat(~special[ids], offsets[:-1])[:200]
    counts = other.records(rows, 0).fields["predictions"]
    budgets = np.maximum(1, np.floor(text * 0.4 + 0.5).astype(int))
    if scheme == "token":
        assert counts.tolist() == budgets.tolist()
        assert held_out_masks(other.at_rate(0.15), 200) == held_out_masks(stored, 200)
    elif scheme == "span":
        assert counts.tolist() == np.ceil(text * 0.4 - 1e-9).tolist()
    else:
        assert (counts <= budgets).all() and counts.mean() > 0.9 * budgets.mean()
    assert counts.max() <= other.manifest.max_predictions > stored.manifest.max_predictions
    assert held_out_masks(other, 50) == held_out_masks(stored.at_rate(0.4), 50)


def test_a_pipe_in_place_of_a_shard_is_refused(damaged: Path) -> None:
    """To open one would wait forever; test_shard_files.py has one that is there at the start."""
    for file in ("rows", "mask-0"):
        path = damaged / file / "train-00000.arrow"
        path.unlink()
        os.mkfifo(path)
    said = r"rows/train-00000\.arrow is damaged"
    manifest = read_manifest(damaged)
    dataset = Dataset(damaged, manifest, manifest.of("train"))
    with pytest.raises(DataError, match=said):
        dataset.records(np.arange(2), 0)
    with pytest.raises(DataError, match=said), ThreadPoolExecutor(2) as pool:
        dataset.read_records(np.arange(2), 0, pool, 0)


def test_numbers_of_a_dataset(random_shards: Path, compressed: Path) -> None:
    dataset = Dataset.open(random_shards)
    assert (dataset.stored, dataset.cycle) == (10, 10)
    assert dataset.piece_rows.tolist() == [1500, 1024, 300]
    lengths = dataset.some_lengths()  # few record batches here, so all of them
    assert lengths.size == 2824 and lengths.min() >= 3 and lengths.max() == LENGTH
    drawn = sum(mask.predictions for shard in dataset.shards for mask in shard.masks)
    assert dataset.mean_predictions == drawn / 28_240
    assert dataset.by_corpus() == {"news": dataset}
    plain = dataset.records(np.arange(9), 2).fields
    assert (plain["documents"] == 0).all()  # unless details are requested
    plain, packed = (drawing(each).mean_predictions for each in (random_shards, compressed))
    assert plain == packed > 0


def test_the_corpora_of_a_directory_are_parts_of_it(prepared: Path) -> None:
    """With the same rows, masks and excluded shards; a part has no further parts."""
    whole = Dataset.open(prepared)
    parts = whole.by_corpus()
    assert [*parts] == ["articles", "books", "news", "web", "stories"] == [*whole.manifest.corpora]
    begin = 0
    for name, part in parts.items():
        about = whole.manifest.corpora[name]
        assert part.rows == about["sequences"] - about["validation_sequences"]
        assert part.by_corpus() == {name: part} and part.part == part.shards[0].name
        assert part.manifest.totals["documents"] == about["documents"]
        rows = np.array([0, part.rows - 1])
        for duplicate in (0, 9):
            one, other = part.records(rows, duplicate), whole.records(begin + rows, duplicate)
            for field in ("tokens", "predictions", "sequence"):
                assert np.array_equal(one.fields[field], other.fields[field])
        begin += part.rows
    assert begin == whole.rows == sum(part.rows for part in parts.values())
    assert whole.tokens == sum(part.tokens for part in parts.values())
    whole.exclude({parts["news"].shards[0].name})
    again = whole.by_corpus()
    for news in (parts["news"], again["news"]):
        assert np.asarray(news.read_of(np.arange(5), slice(None))).size == 0
    assert parts["books"].read_of(np.arange(5), slice(None)) == slice(None)


def test_other_masks_are_drawn_from_the_same_rows(tmp_path: Path) -> None:
    """As many as the settings ask for; excluded shards stay excluded for both."""
    stored = drawing(prepare_directory(tmp_path / "anew", duplicates=0))
    data = override(recipe("roberta_base"), ["data.masks.rate=0.4", "data.sequence_length=70"]).data
    other = stored.drawing(data)
    assert other.manifest.max_predictions == 27 and stored.manifest.max_predictions == 10
    rows = np.arange(1500)
    tokens = stored.records(rows, 0).fields["tokens"] - 2
    for dataset, rate in ((stored, 0.15), (other, 0.4)):
        text = dataset.records(rows, 3).fields["predictions"] / tokens
        assert text[tokens == 68].tolist() == [round(68 * rate) / 68] * int((tokens == 68).sum())
    again = stored.drawing(replace(data, masks=replace(data.masks, rate=0.15)))
    counts = [own.records(rows, 3).fields["predictions"] for own in (again, stored)]
    assert np.array_equal(*counts)
    stored.exclude({shard.name for shard in stored.shards})
    assert other.is_excluded
