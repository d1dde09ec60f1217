"""inspect shows a sequence with its masks as the files contain them."""

from pathlib import Path

import numpy as np

from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.preparing import Call


def test_the_grid_shows_the_ten_masks(prepared: Path, show: Call) -> None:
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
        shown = [cells[duplicate] for cells in grid]
        assert [cell != "·" for cell in shown] == [bit == 1 for bit in bitmap[: len(grid)]]
        assert shown.count("R") == len(stored["random_ids"])


def test_ends_of_documents_and_held_out_rows_are_shown(prepared: Path, show: Call) -> None:
    trained = read_manifest(prepared).of("train")
    first = sum(shard.sequences for shard in trained[:2])  # then news: short documents
    marks = arrow_files.read_table(prepared / trained[2].file)["document_starts"].to_pylist()
    crossing = next(row for row, starts in enumerate(marks) if len(starts) > 1)
    out = show(prepared, "--sequence", first + crossing, "--tokens", 0)
    assert "document 1:" in out
    assert out.count("  documents.parquet: ") == len(marks[crossing])
    start = str(marks[crossing][1])
    assert any(line.split()[:2] == [start, "|"] for line in out.splitlines())
    assert "rows/validation-00000.arrow row 0" in show(prepared, "--split", "validation")
    count = sum(shard.sequences for shard in trained)
    assert f"--sequence {count}" in show(prepared, "--sequence", count, code=2)
