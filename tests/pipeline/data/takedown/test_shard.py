"""Shards that hold none of the documents are linked; damaged ones are refused, not rewritten."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.data.shards.manifest import read_manifest
from pipeline.data.takedown.shard import copy as copy_file
from tests.pipeline.data.small_shards import batch_lengths, flip, train_tables
from tests.pipeline.preparing import Call


def first_id(directory: Path, corpus: str) -> str:
    rows = pq.read_table(directory / "documents.parquet").to_pylist()
    return next(row["id"] for row in rows if row["corpus"] == corpus)


def test_other_shards_are_the_same_files(prepared: Path, take: Call, tmp_path: Path) -> None:
    new = tmp_path / "new"
    take(prepared, first_id(prepared, "web"))
    before, after = read_manifest(prepared).shards, read_manifest(new).shards
    changed = [shard.name for old, shard in zip(before, after) if old != shard]
    assert len(changed) == 1
    for old in before:
        for file in old.files():
            same = (new / file.file).samefile(prepared / file.file)
            assert same == (old.name not in changed)
    tokenizer = "tokenizer/tokenizer.json"  # may be edited by hand
    assert not (new / tokenizer).samefile(prepared / tokenizer)


def test_pieces_stay_where_they_are(
    apart_and_together: tuple[Path, Path], take: Call, show: Call, tmp_path: Path
) -> None:
    """The rows and masks are those of a takedown from shards of one piece."""
    ids = pq.read_table(apart_and_together[1] / "documents.parquet")["id"].to_pylist()
    for data in apart_and_together:
        take(data, ids[3], ids[150], output=data.name)
    apart, together = (read_manifest(tmp_path / data.name) for data in apart_and_together)
    before = read_manifest(apart_and_together[1]).shards
    assert [shard.pieces for shard in together.shards] == [shard.pieces for shard in before]
    assert apart.takedowns == together.takedowns != ()
    tables = (train_tables(tmp_path / data.name) for data in apart_and_together)
    for one, other in zip(*tables, strict=True):
        assert one.equals(other) and batch_lengths(one) == batch_lengths(other)
    assert "masks match their keys" in show(tmp_path / "together", "--verify")


def test_a_damaged_shard_is_not_rewritten(copy: Path, take: Call, tmp_path: Path) -> None:
    path = copy / "mask-3" / "train-00002.arrow"
    flip(path)
    assert f"{path} is damaged" in take(copy, first_id(copy, "news"), code=2)
    assert not (tmp_path / "new" / "manifest.json").exists()


def test_copies_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("text")

    def refuse(*_: object) -> None:
        raise OSError("links are not supported")

    monkeypatch.setattr(os, "link", refuse)
    copy_file(tmp_path / "a", tmp_path / "b", linked=True)
    assert (tmp_path / "b").read_text() == "text"
    assert not (tmp_path / "b").samefile(tmp_path / "a")
