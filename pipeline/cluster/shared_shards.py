"""Prepared directories, opened by all ranks of a run with one look at their files.

    first rank   reads each manifest and sends its bytes to the others
    every rank   asks for the sizes of its share of the files (loading/shard_files.py)
    all ranks    add up the sizes, and compare all of them with the manifest

If each rank looked at all files, a file server would be asked as often as there are files times
ranks, seven million times for 160 GB on 1,024 ranks; if one did, the others would wait for minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from pipeline.base.errors import DataError
from pipeline.cluster.ranks import RankGroup, agreed
from pipeline.data.shards.manifest import TRAIN, manifest_content, parse_manifest
from pipeline.loading.dataset import Dataset
from pipeline.loading.shard_files import file_sizes


def open_shards(
    directories: Sequence[Path],
    splits: Sequence[str],
    ranks: RankGroup,
    *,
    skip_damaged: bool = False,
) -> list[tuple[Dataset, ...]]:
    """The dataset of each directory, for each split. Collective.

    Raises the same DataError on all ranks, as `Dataset.open` does; skip_damaged: as there, for
    training shards.
    """
    with agreed(ranks, DataError):
        contents = [manifest_content(path) if ranks.rank == 0 else b"" for path in directories]
    shared = [ranks.from_first(content) for content in contents]
    with agreed(ranks, DataError):
        manifests = [parse_manifest(*both) for both in zip(directories, shared, strict=True)]
        wanted = [  # split by split, in the order of --data: all ranks sum up the same list
            (directory, manifest, split)
            for split in splits
            for directory, manifest in zip(directories, manifests, strict=True)
        ]
        own = [
            file_sizes(directory, manifest.of(split), ranks.rank, ranks.world_size)
            for directory, manifest, split in wanted
        ]
    # A file is 0 on all ranks but one, so the sum is its size; float64 is exact up to 9 petabytes.
    total = ranks.total(torch.from_numpy(np.concatenate(own))).to(torch.int64).numpy()
    sizes = np.split(total, np.cumsum([part.size for part in own])[:-1])
    with agreed(ranks, DataError):
        datasets = [
            Dataset.checked(*what, found, skip_damaged and what[-1] == TRAIN)
            for what, found in zip(wanted, sizes, strict=True)
        ]
    count = len(directories)
    # `wanted` lists all directories of one split, then those of the next.
    return [tuple(datasets[start : start + count]) for start in range(0, len(datasets), count)]
