"""inspect shows a sequence with its masks as the files contain them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline import inspect
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.conftest import Command
from tests.pipeline.preparing import Call, tiny, write_jsonl

Inspect = Callable[..., str]


@pytest.fixture
def show(call: Call) -> Inspect:
    return functools.partial(call, inspect.main)


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


def test_a_missing_sequence(prepared: Path, show: Inspect) -> None:
    assert "--sequence 9999999" in show(prepared, "--sequence", 9999999, code=2)


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
