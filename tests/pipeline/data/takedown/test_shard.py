"""Shards that hold none of the documents are linked; damaged ones are refused, not rewritten."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import inspect, takedown
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.takedown.shard import copy
from tests.pipeline.preparing import Call


def test_other_shards_are_the_same_files(prepared: Path, call: Call, tmp_path: Path) -> None:
    documents = pq.read_table(prepared / "documents.parquet").to_pylist()
    first = next(row for row in documents if row["corpus"] == "web")
    arguments = ["--data", prepared, "--documents", first["id"], "--output", tmp_path / "new"]
    call(takedown.main, *arguments, "--workers", 1)
    before, after = read_manifest(prepared), read_manifest(tmp_path / "new")
    changed = [new.name for old, new in zip(before.shards, after.shards) if old != new]
    assert len(changed) == 1
    for old in before.shards:
        for file in old.files():
            same = (tmp_path / "new" / file.file).samefile(prepared / file.file)
            assert same == (old.name not in changed)
    tokenizer = "tokenizer/tokenizer.json"  # may be edited by hand
    assert not (tmp_path / "new" / tokenizer).samefile(prepared / tokenizer)


def test_pieces_stay_where_they_are(
    apart_and_together: tuple[Path, Path], call: Call, tmp_path: Path
) -> None:
    """The rows and masks are those of a takedown from shards of one piece."""
    apart, together = apart_and_together
    ids = pq.read_table(together / "documents.parquet")["id"].to_pylist()
    for name, data in (("apart", apart), ("together", together)):
        arguments = ["--documents", ids[3], ids[150], "--output", tmp_path / name, "--workers", 1]
        call(takedown.main, "--data", data, *arguments)
    manifests = [read_manifest(tmp_path / name) for name in ("apart", "together")]
    before = read_manifest(together)
    assert [shard.pieces for shard in manifests[1].shards] == [
        shard.pieces for shard in before.shards
    ]
    assert manifests[0].takedowns == manifests[1].takedowns != ()
    for duplicate in range(11):
        one, other = (
            pa.concat_tables(
                arrow_files.read_table(tmp_path / name / shard.files()[duplicate].file)
                for shard in manifest.of("train")
            )
            for name, manifest in zip(("apart", "together"), manifests)
        )
        assert one.equals(other)
        assert [*map(len, one.to_batches())] == [*map(len, other.to_batches())]
    assert "masks match their keys" in call(inspect.main, tmp_path / "together", "--verify")


def test_a_damaged_shard_is_not_rewritten(prepared: Path, call: Call, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "old")
    path = tmp_path / "old" / "mask-3" / "train-00002.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    documents = pq.read_table(prepared / "documents.parquet").to_pylist()
    id = next(row["id"] for row in documents if row["corpus"] == "news")
    arguments = ["--documents", id, "--output", tmp_path / "new", "--workers", 1]
    error = call(takedown.main, "--data", tmp_path / "old", *arguments, code=2)
    assert f"{path} is damaged" in error
    assert not (tmp_path / "new" / "manifest.json").exists()


def test_copies_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("text")

    def refuse(*_: object) -> None:
        raise OSError("links are not supported")

    monkeypatch.setattr(os, "link", refuse)
    copy(tmp_path / "a", tmp_path / "b", linked=True)
    assert (tmp_path / "b").read_text() == "text"
    assert not (tmp_path / "b").samefile(tmp_path / "a")
