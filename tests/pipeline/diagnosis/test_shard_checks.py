"""Shards that lack a file, are damaged or are prepared otherwise are found."""

import shutil
from pathlib import Path

from pipeline.config.settings import override
from pipeline.data.shards.manifest import read_manifest
from pipeline.diagnosis.checks import FAIL, OK, WARN, Check
from pipeline.diagnosis.own_rank import LaunchPlace
from pipeline.diagnosis.shard_checks import check_shard_files, check_staging, compare_fingerprints
from pipeline.recipes import recipe

TINY = recipe("roberta_tiny")
ALONE = LaunchPlace()


def check(directory: Path, *changes: str) -> list[Check]:
    return check_shard_files([directory], ALONE, override(TINY, list(changes)), 60.0)[0]


def test_whole_shards_and_other_settings(prepared: Path, tmp_path: Path) -> None:
    """The ranks of a node share the files."""
    found, prints = check_shard_files([prepared], ALONE, TINY, 60.0)
    assert [check.status for check in found] == [OK, OK]
    assert "files have their size" in found[0].value and len(prints[str(prepared)]) >= 16
    places = [LaunchPlace(local_rank=rank, local_size=3) for rank in range(3)]
    parts = [check_shard_files([prepared], place, None, 60.0)[0][0].value for place in places]
    assert sum(int(part.split()[0]) for part in parts) == int(found[0].value.split()[0])
    other = check(prepared, "data.duplicates=5")[1]
    assert other.status == FAIL and "data.duplicates=10" in other.value
    (room,) = check_staging([prepared], tmp_path / "not" / "there")
    assert sum(shard.bytes for shard in read_manifest(prepared).of("train")) > 0
    assert room.name == "room for --stage" and str(tmp_path) in room.value


def test_missing_and_damaged_files(prepared: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(prepared, tmp_path / "copy"))
    path = copy / "mask-3" / "train-00000.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert check(copy)[0].status == FAIL and "is damaged: xxh3_64" in check(copy)[0].value
    path.unlink()
    assert check(copy)[0].status == FAIL and f"{path} is missing" in check(copy)[0].value
    assert check(copy, "data.damaged=skip")[0].status == WARN
    (copy / "manifest.json").unlink()
    assert "pipeline.prepare has not finished" in check(copy)[0].value


def test_fingerprints_must_be_the_same() -> None:
    same = {"shards": "a" * 32}
    assert compare_fingerprints([same, same])[0].status == OK
    (other,) = compare_fingerprints([same, {"shards": "missing"}])
    assert other.status == FAIL and "missing on rank 1" in other.value
