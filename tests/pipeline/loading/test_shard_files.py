"""Sizes of files: each rank asks for its share, and all find the same damage."""

import os
import shutil
from pathlib import Path

import numpy as np

from pipeline.base.files import MISSING, NOT_A_FILE
from pipeline.data.shards.manifest import read_manifest
from pipeline.loading.shard_files import file_sizes, find_damage


def test_the_shares_of_all_ranks_are_all_files(random_shards: Path) -> None:
    shards = read_manifest(random_shards).of("train")
    shares = [file_sizes(random_shards, shards, rank, 4) for rank in range(4)]
    assert [np.count_nonzero(share) for share in shares] == [9, 8, 8, 8]
    whole = file_sizes(random_shards, shards)
    assert np.array_equal(sum(shares), whole)
    assert whole.tolist() == [file.bytes for shard in shards for file in shard.files()]
    assert list(find_damage(random_shards, shards, whole)) == []


def test_damage_is_found_rows_first(damaged: Path) -> None:
    (damaged / "mask-0/train-00000.arrow").write_bytes(b"short")
    (damaged / "mask-1/train-00002.arrow").unlink()
    (damaged / "rows/train-00001.arrow").unlink()
    os.mkfifo(damaged / "rows/train-00001.arrow")
    shutil.rmtree(damaged / "mask-2")  # a duplicate that was not copied
    shards = read_manifest(damaged).of("train")
    sizes = file_sizes(damaged, shards)
    assert sizes.tolist().count(MISSING) == 4 and sizes.tolist().count(NOT_A_FILE) == 1
    found = [(shard.name, str(error)) for shard, error in find_damage(damaged, shards, sizes)]
    for (name, message), (number, said) in zip(found, (
        (1, "it is not a plain file"), (0, "is damaged: 5 bytes, the manifest says"),
        (2, "is missing; copy"),
    ), strict=True):  # fmt: skip
        assert name == f"train-0000{number}.arrow" and said in message
