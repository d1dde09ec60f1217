"""inspect shows what the shards contain, and --verify finds every kind of damage."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline import inspect
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from tests.pipeline.preparing import Call, rewrite

Inspect = Callable[..., str]


@pytest.fixture
def show(call: Call) -> Inspect:
    return functools.partial(call, inspect.main, "--workers", 1)


@pytest.fixture
def copy(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared, tmp_path / "copy")
    return tmp_path / "copy"


def test_statistics_are_counted_from_the_files(prepared: Path, show: Inspect) -> None:
    out = show(prepared)
    manifest = read_manifest(prepared)
    assert f"{manifest.totals['documents']:,} documents" in out
    predictions = sum(mask.predictions for shard in manifest.shards for mask in shard.masks)
    text = 0
    for shard in manifest.shards:
        for row in arrow_files.read_table(prepared / shard.file).to_pylist():
            text += len(row["input_ids"]) - 1 - len(row["document_starts"])
    assert f"predicted    {predictions / text / 10:.4%} of text tokens" in out


def test_verify(prepared: Path, show: Inspect) -> None:
    assert "verified: 115 files" in show(prepared, "--verify")


def test_a_missing_or_truncated_file_is_named(copy: Path, show: Inspect) -> None:
    (copy / "mask-4/train-00001.arrow").unlink()
    assert "mask-4/train-00001.arrow is missing" in show(copy, code=2)


def test_every_flipped_bit_is_found(copy: Path, show: Inspect) -> None:
    path = copy / "mask-2/train-00000.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    error = show(copy, "--verify", code=2)
    assert "mask-2/train-00000.arrow is damaged" in error and error.count("\n") == 1


def test_shards_of_another_tokenizer(copy: Path, show: Inspect) -> None:
    path = copy / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    ids = content["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    assert len(text) == len(path.read_text()), "of the same size"
    path.write_text(text)
    assert "not the tokenizer these shards were made with" in show(copy, code=2)


@pytest.mark.parametrize("column", ["positions", "actions", "random_ids"])
def test_a_wrong_mask_with_a_correct_hash_is_found(column: str, copy: Path, show: Inspect) -> None:
    """From another generator: complete files, correct hashes, wrong masks."""
    path = copy / "mask-2/train-00000.arrow"
    table = arrow_files.read_table(path)
    values = table[column].to_pylist()
    row = next(index for index, value in enumerate(values) if value)
    if column == "random_ids":
        values[row][0] ^= 1
    else:
        values[row] = bytes([values[row][0] ^ 2]) + values[row][1:]
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    table = table.set_column(index, field, pa.array(values, field.type))
    entry = rewrite(path, table)
    manifest = json.loads((copy / MANIFEST).read_bytes())
    manifest["shards"][0]["masks"][2] |= entry
    (copy / MANIFEST).write_text(json.dumps(manifest))
    error = show(copy, "--verify", code=2)
    assert f"mask-2/train-00000.arrow: {column} are not what its key draws" in error


def test_the_other_files_are_verified_too(copy: Path, show: Inspect) -> None:
    path = copy / "documents.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert "documents.parquet is damaged" in show(copy, "--verify", code=2)
    path.unlink()
    assert "documents.parquet is missing" in show(copy, code=2)


@pytest.mark.parametrize("position", range(0, 40_000, 1999))
def test_a_flipped_bit_in_the_rows_is_never_a_traceback(
    position: int, copy: Path, show: Inspect
) -> None:
    path = copy / "rows/train-00001.arrow"
    content = bytearray(path.read_bytes())
    content[position] ^= 128
    path.write_bytes(content)
    assert "rows/train-00001.arrow is damaged" in show(copy, "--verify", code=2)
