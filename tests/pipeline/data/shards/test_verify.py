"""Verifying a shard redraws its masks and finds malformed rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.base.errors import DataError
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.verify import verify_files, verify_shard
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.preparing import rewrite


def test_every_mask_derives_again(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    vocabulary = read_vocabulary(prepared / "tokenizer")
    assert len(manifest.of("train")) == 5 and len(manifest.of("validation")) == 5
    verify_files(prepared, manifest)
    assert "documents.parquet" in manifest.files and "tokenizer/word_starts.bin" in manifest.files
    for shard in manifest.shards:
        assert len(shard.masks) == 10
        verify_shard(prepared, manifest, shard, vocabulary)


@pytest.fixture(scope="module")
def rows(prepared: Path) -> pa.Table:
    manifest = read_manifest(prepared)
    return arrow_files.read_table(prepared / manifest.of("train")[2].file)


def changed(table: pa.Table, column: str, row: int, change: Callable[[Any], Any]) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = change(values[row])
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(values, field.type))


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("input_ids", lambda ids: [ids[1], *ids[1:]], "does not start and end with its special"),
        ("input_ids", lambda ids: [*ids[:-1], ids[1]], "does not start and end with its special"),
        ("input_ids", lambda ids: [ids[0], ids[0], *ids[2:]], "a start token inside"),
        ("input_ids", lambda ids: [ids[0], 4, *ids[2:]], "a mask, padding or unknown token"),
        (
            "input_ids",
            lambda ids: [ids[0], 2048, *ids[2:]],
            "has id 2048, but the tokenizer has 2048",
        ),
        ("input_ids", lambda ids: ids[:-1], "tokens, the manifest says 6,260 and"),
        ("sequence", lambda sequence: sequence - 5, "sequence ids do not ascend"),
        ("document_starts", lambda starts: [1, *starts[1:]], "does not start at 0"),
        ("document_starts", lambda starts: [0, 3, 2], "do not ascend inside a row"),
        ("pair_label", lambda _: 7, "a pair label is -1 or 7"),
        ("pair_label", lambda _: 1, "a row of one segment has a pair label"),
        ("second_segment", lambda _: 1, "is outside its row"),
    ],
)
def test_rows_that_are_not_well_formed(
    column: str, change: Callable[[Any], Any], message: str,
    prepared: Path, rows: pa.Table, tmp_path: Path,
) -> None:  # fmt: skip
    """The hash is correct, so only the rows show it."""
    manifest = read_manifest(prepared)
    shutil.copytree(prepared, tmp_path / "copy")
    shard = manifest.of("train")[2]
    entry = rewrite(tmp_path / "copy" / shard.file, changed(rows, column, 3, change))
    entry["file"] = shard.file
    vocabulary = read_vocabulary(prepared / "tokenizer")
    assert vocabulary.mask == 4 and vocabulary.size == 2048
    with pytest.raises(DataError, match=f"{shard.file}: .*{message}"):
        verify_shard(tmp_path / "copy", manifest, replace(shard, **entry), vocabulary)
