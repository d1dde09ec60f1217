"""All ranks open the same datasets, with one look at the files of their directories."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.cluster.ranks import ONE_PROCESS
from pipeline.cluster.shared_shards import open_shards
from pipeline.data.shards import manifest as manifests
from pipeline.loading import shard_files
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.training.toy_checkpoints import on_ranks


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two prepared directories, of 3 x 4 and 2 x 3 files."""
    folder = tmp_path_factory.mktemp("two")
    return [
        prepare_directory(folder / "news", (8, 8, 8), duplicates=3),
        prepare_directory(folder / "books", (8, 8), duplicates=2, seed=1),
    ]


def test_all_ranks_open_what_one_opens(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is looked at once, by one rank, and each manifest read once, by the first."""
    looked: list[Path] = []
    original = shard_files.size_of
    for each in (shard_files, manifests):
        monkeypatch.setattr(each, "size_of", lambda path: (looked.append(path), original(path))[1])
    (expected,) = open_shards(two, ("train",), ONE_PROCESS)
    once = sorted(looked)
    assert len(once) == len(set(once)) == 18 + 2
    looked.clear()
    opened = on_ranks(5, lambda ranks: open_shards(two, ("train",), ranks))
    assert sorted(looked) == once
    for (found,) in opened:
        assert [dataset.directory for dataset in found] == two
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.manifest == theirs.manifest and not mine.damaged


def test_all_ranks_raise_one_error_in_the_same_words(two: list[Path], tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(two[0], tmp_path / "damaged"))
    path = damaged / "mask-1/train-00002.arrow"
    size = path.stat().st_size
    path.write_bytes(b"short")

    def opened(directory: Path, **options: Any) -> list[Any]:
        return on_ranks(4, lambda ranks: open_shards([directory], ("train",), ranks, **options))

    errors = opened(damaged)
    assert all(isinstance(error, DataError) for error in errors)
    assert {str(error) for error in errors} == {
        f"{path} is damaged: 5 bytes, the manifest says {size:,}; copy it again"
    }
    for ((dataset,),) in opened(damaged, skip_damaged=True):
        assert dataset.damaged == {"train-00002.arrow"}
    (damaged / "manifest.json").write_bytes(b"\xff")
    assert len({str(error) for error in opened(damaged)}) == 1
    (damaged / "manifest.json").unlink()
    for error in opened(damaged):
        assert str(error).startswith(f"{damaged} has no manifest.json")


def test_a_split_without_rows_is_named(two: list[Path]) -> None:
    with pytest.raises(DataError, match="news has no validation rows"):
        open_shards(two, ("train", "validation"), ONE_PROCESS)
