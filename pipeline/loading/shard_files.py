"""The sizes of prepared files on the disk, against those of the manifest: one stat per file.

Ranks share the work, see `cluster.shared_shards`: rank r of W asks for the sizes of files r, r + W,
... of the list that the manifest gives to all of them. The sizes of all ranks are added up, and
each rank compares all of them. So every rank finds the same damage, in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.base.files import MISSING, size_of
from pipeline.data.shards.manifest import Shard, check_size

IntArray = npt.NDArray[np.int64]


def file_sizes(
    directory: Path, shards: Sequence[Shard], rank: int = 0, world_size: int = 1
) -> IntArray:
    """`size_of` each shard's files [shards x files]; 0 for files of other ranks."""
    names = [file.file for shard in shards for file in shard.files()]
    sizes = np.zeros(len(names), np.int64)
    for number in range(rank, len(names), world_size):
        sizes[number] = size_of(directory / names[number])
    return sizes


def find_damage(
    directory: Path, shards: Sequence[Shard], sizes: IntArray
) -> Iterator[tuple[Shard, DataError]]:
    """Each file that is missing or has another size, as its shard and an error; rows first.

    sizes: `file_sizes` of all ranks. A duplicate may lack all of its files.
    """
    expected = np.array([[file.bytes for file in shard.files()] for shard in shards])
    # Kind 0 are the rows, kind k the masks of duplicate k - 1.
    by_kind = sizes.reshape(expected.shape).T
    for kind, (found, needed) in enumerate(zip(by_kind, expected.T, strict=True)):
        if kind and (found == MISSING).all():
            continue
        for number in np.flatnonzero(found != needed).tolist():
            file = shards[number].files()[kind]
            try:
                check_size(directory, file.file, file.bytes, int(found[number]))
            except DataError as error:
                yield shards[number], error
