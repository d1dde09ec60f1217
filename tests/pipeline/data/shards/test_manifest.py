"""The manifest: what is written is what is read, and damage is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, check_size, read_manifest
from pipeline.errors import DataError


def test_the_manifest_comes_back(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    assert json.loads(manifest.to_json()) == json.loads((prepared / MANIFEST).read_bytes())
    assert manifest.sequence_length == 32 and manifest.duplicates == 10
    assert manifest.totals["sequences"] == sum(shard.sequences for shard in manifest.shards)


def test_damage_is_named(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory"):
        read_manifest(tmp_path / "nothing")
    with pytest.raises(DataError, match="has not finished"):
        read_manifest(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(prepared, copy)
    text = (copy / MANIFEST).read_text()
    (copy / MANIFEST).write_text(text[:500])
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        read_manifest(copy)
    (copy / MANIFEST).write_text(text.replace('"schema_version": 2', '"schema_version": 1'))
    with pytest.raises(DataError, match=r"layout 1 of shards.*run the same pipeline\.prepare"):
        read_manifest(copy)
    (copy / MANIFEST).write_text(text.replace('"schema_version": 2', '"schema_version": 9'))
    with pytest.raises(DataError, match="schema version 9"):
        read_manifest(copy)
    file = read_manifest(prepared).shards[0].file
    (copy / file).write_bytes((copy / file).read_bytes()[:1000])
    with pytest.raises(DataError, match=rf"{file} is damaged: 1,000 bytes"):
        check_size(copy, file, (prepared / file).stat().st_size)
    with pytest.raises(DataError, match=f"{file} is damaged"):
        arrow_files.read_table(copy / file)
    (copy / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        check_size(copy, file, 1)
