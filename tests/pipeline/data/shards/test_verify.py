"""Verifying shards redraws their masks, reads each file once, and names all that are wrong."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import prepare
from pipeline.base.errors import DataError
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import hash_file, read_manifest
from pipeline.data.shards.token_counts import TOKEN_COUNTS
from pipeline.data.shards.verify import verify
from pipeline.execution.workers import local_executor
from tests.pipeline.data.parquet_reads import count_reads
from tests.pipeline.data.small_shards import edited, flip, with_column
from tests.pipeline.preparing import Call, rewrite, tiny, write_jsonl


def errors(directory: Path) -> tuple[str, ...]:
    """What `verify` says about damaged shards, one problem each."""
    with pytest.raises(DataError) as error:
        verify(directory, read_manifest(directory), local_executor(1))
    return error.value.problems or (str(error.value),)


def test_every_mask_derives_again(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """documents.parquet is opened once, and each shard reads the row groups of its own parts."""
    manifest = read_manifest(prepared)
    assert len(manifest.of("train")) == 5 and len(manifest.of("validation")) == 5
    assert all(len(shard.masks) == 10 for shard in manifest.shards)
    assert "documents.parquet" in manifest.files and "tokenizer/word_starts.bin" in manifest.files
    assert pq.read_metadata(prepared / "documents.parquet").num_row_groups == 5
    opened, groups = count_reads(monkeypatch)
    vocabulary = verify(prepared, manifest, local_executor(1))
    assert vocabulary.sha256 == manifest.tokenizer["sha256"]
    assert len(opened) == 1 and sorted(groups) == sorted([*range(5)] * 2)


def test_all_files_that_are_wrong_are_named_in_order(copy: Path) -> None:
    names = {
        "mask-2/train-00000.arrow": "is damaged: xxh3_64 ",
        "mask-7/train-00000.arrow": "is damaged: xxh3_64 ",
        "mask-0/train-00001.arrow": "is missing; ",
        "rows/train-00003.arrow": "is damaged: xxh3_64 ",
        "mask-1/validation-00004.arrow": "is damaged: ",
    }
    for name, said in names.items():
        if "xxh3" in said:
            flip(copy / name)
    (copy / "mask-0/train-00001.arrow").unlink()
    with (copy / "mask-1/validation-00004.arrow").open("ab") as file:
        file.write(b"more")
    for line, (name, said) in zip(errors(copy), names.items(), strict=True):
        assert line.startswith(f"{copy / name} {said}")
    # without the tokenizer shards cannot be read, but their hashes are compared
    flip(copy / "tokenizer/tokenizer.json")
    first, *others = errors(copy)
    assert first.startswith(f"{copy / 'tokenizer/tokenizer.json'} is damaged")
    assert [line.split()[0] for line in others] == [str(copy / name) for name in names]


@pytest.mark.parametrize(("name", "value"), [("mask", 50), ("pad", 9), ("size", 10**15)])
def test_a_manifest_with_other_ids_than_its_tokenizer(copy: Path, name: str, value: int) -> None:
    """Training takes them from the manifest."""
    with edited(copy) as manifest:
        own = manifest["tokenizer"][name]
        manifest["tokenizer"][name] = value
    (error,) = errors(copy)
    assert f"tokenizer.{name} is {value}, but the tokenizer has {own}; " in error


def test_rows_with_a_correct_hash_that_are_wrong(copy: Path) -> None:
    path = copy / "rows/train-00002.arrow"
    table = arrow_files.read_table(path)
    sequences = table["sequence"].to_numpy().copy()
    sequences[7] = sequences[5]
    with edited(copy) as manifest:
        manifest["shards"][2] |= rewrite(path, with_column(table, "sequence", sequences))
    assert errors(copy) == (f"{path}: sequence ids do not ascend; run pipeline.prepare again",)


def test_shards_of_several_pieces(apart_and_together: tuple[Path, Path], tmp_path: Path) -> None:
    """Each is verified piece by piece; other record batches or predictions are wrong."""
    together, copy = apart_and_together[1], tmp_path / "copy"
    verify(together, read_manifest(together), local_executor(1))
    shutil.copytree(together, copy)
    path = copy / "mask-3" / "train-00001.arrow"
    with edited(copy) as manifest:
        mask = manifest["shards"][1]["masks"][3]
        predictions = mask["predictions"]
        mask["predictions"] += 1
    (said,) = errors(copy)
    assert said.startswith(f"{path}: {predictions:,} predictions, the manifest says")
    with edited(copy) as manifest:
        as_one_piece = rewrite(path, arrow_files.read_table(path))
        manifest["shards"][1]["masks"][3] |= as_one_piece | {"predictions": predictions}
    (said,) = errors(copy)
    assert said.startswith(f"{path} is not cut into the record batches")


def test_counts_that_are_not_those_of_the_rows(
    call: Call, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Of a special token, which no mask depends on."""
    path = write_jsonl(tmp_path / "in.jsonl", [f"Text {n} is about {n * n}." for n in range(20)])
    given = ("--corpus", path, "--workers", 1, "--set", "data.masks.random_ids=unigram")
    directory = tmp_path / "out"
    call(prepare.main, *given, *tiny(tiny_tokenizer, directory))
    verify(directory, read_manifest(directory), local_executor(1))
    path = directory / TOKEN_COUNTS
    counts = np.fromfile(path, "<u8")
    counts[0] += 1
    counts.tofile(path)
    with edited(directory) as manifest:
        manifest["files"][TOKEN_COUNTS]["xxh3_64"] = hash_file(path)
    (said,) = errors(directory)
    assert said.startswith(f"{path} does not count the tokens of the rows")


def test_shards_of_a_takedown_of_an_earlier_version_are_hashed(copy: Path, show: Call) -> None:
    """Their rows have pads, and their masks cannot be drawn again."""
    taken = [{"parent": "a", "documents": {"news": 1}, "sequences": 1, "tokens": 1}]
    with edited(copy) as manifest:
        manifest["takedowns"] = taken
        shard = manifest["shards"][0]
        path = copy / shard["file"]
        rows = arrow_files.read_table(path)
        ids = rows["input_ids"].to_pylist()
        ids[0][1] = manifest["tokenizer"]["pad"]
        shard |= rewrite(path, with_column(rows, "input_ids", ids))
    assert read_manifest(copy).takedowns == tuple(taken)
    assert "match their hashes, but documents were taken down by 0.2.0" in show(copy, "--verify")
    flip(path)
    (said,) = errors(copy)
    assert f"{path} is damaged" in said
