"""inspect shows what the files contain, and --verify finds every kind of damage."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline import inspect
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.conftest import Command
from tests.pipeline.preparing import Call, rewrite, tiny, write_jsonl

Inspect = Callable[..., str]


@pytest.fixture
def show(call: Call) -> Inspect:
    return functools.partial(call, inspect.main)


@pytest.fixture
def copy(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared, tmp_path / "copy")
    return tmp_path / "copy"


def test_the_grid_shows_the_ten_masks(prepared: Path, show: Inspect) -> None:
    out = show(prepared, "--sequence", 3, "--tokens", 0)
    shard = read_manifest(prepared).of("train")[0]
    row = arrow_files.read_table(prepared / shard.file).slice(3, 1).to_pylist()[0]
    lines = [line for line in out.splitlines() if line[:7].strip().isdigit() and "'" in line]
    grid = [line.rsplit("'", 1)[1].split() for line in lines[-len(row["input_ids"]) :]]
    assert len(grid) == len(row["input_ids"]) and all(len(cells) == 10 for cells in grid)
    assert set(grid[0]) == {"·"} == set(grid[-1]), "<s> and </s> are never predicted"
    for duplicate, mask in enumerate(shard.masks):
        stored = arrow_files.read_table(prepared / mask.file).slice(3, 1).to_pylist()[0]
        bitmap = np.unpackbits(np.frombuffer(stored["positions"], np.uint8), bitorder="little")
        assert [cells[duplicate] != "·" for cells in grid] == bitmap[: len(grid)].astype(
            bool
        ).tolist()
        assert sum(cells[duplicate] == "R" for cells in grid) == len(stored["random_ids"])


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


def test_document_ends_are_shown(prepared: Path, show: Inspect) -> None:
    shard = read_manifest(prepared).of("train")[2]  # news: short documents
    first = sum(s.sequences for s in read_manifest(prepared).of("train")[:2])
    marks = arrow_files.read_table(prepared / shard.file)["document_starts"].to_pylist()
    crossing = next(row for row, starts in enumerate(marks) if len(starts) > 1)
    out = show(prepared, "--sequence", first + crossing, "--tokens", 0)
    assert "document 1:" in out
    start = marks[crossing][1]
    assert any(line.split()[:2] == [str(start), "|"] for line in out.splitlines())


def test_validation_rows_can_be_shown(prepared: Path, show: Inspect) -> None:
    assert "rows/validation-00000.arrow row 0" in show(prepared, "--split", "validation")


def test_verify(prepared: Path, show: Inspect) -> None:
    assert "verified: 115 files" in show(prepared, "--verify")


def test_a_missing_sequence(prepared: Path, show: Inspect) -> None:
    assert "--sequence 9999999" in show(prepared, "--sequence", 9999999, code=2)


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


@pytest.mark.parametrize("arguments", [["--tokens", -5], ["--sequence", "x"], []])
def test_bad_arguments_are_one_line(arguments: list[object], prepared: Path, show: Inspect) -> None:
    given = [prepared, *arguments] if arguments else []
    error = show(*given, code=2)
    assert error.startswith("error: ") and error.count("\n") == 1


def test_the_mask_is_the_tokenizers(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path, show: Inspect, command: Command
) -> None:
    save_vocabulary(word_vocabularies["wordpiece-uncased"], tmp_path / "tokenizer", 64)
    corpus = write_jsonl(tmp_path / "in.jsonl", ["The river is long. It is cold, too."] * 60)
    given = ("data.tokenizer=wordpiece", "data.lower_case=true", "encoder.position_offset=1")
    settings = [word for setting in given for word in ("--set", setting)]
    arguments = ("--corpus", corpus, "--workers", 1, *settings)
    result = command("prepare", *arguments, *tiny(tmp_path / "tokenizer", tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    out = show(tmp_path / "out")
    assert "% [MASK], " in out and "M [MASK]  R random id" in out and "<mask>" not in out
