"""Shards -> how often each token occurs in their text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from pipeline.base.errors import DataError
from pipeline.data.shards.manifest import TRAIN, check_size
from pipeline.loading.dataset import Dataset

MOST_TOKENS = 10_000_000
"""Tokens per dataset: the frequencies of words in test sentences are known well from these."""


def count_tokens(datasets: Iterable[Dataset], size: int) -> npt.NDArray[np.int64]:
    """Occurrences of each id [size] in the first training rows of each dataset.

    Special tokens are counted too; no sentence has them where a token is scored.
    """
    counts = np.zeros(size, np.int64)
    for dataset in datasets:
        counted = 0
        for shard in dataset.manifest.of(TRAIN):
            path = check_size(dataset.directory, shard.file, shard.bytes)
            try:
                with pa.memory_map(str(path)) as source:
                    reader = pa.ipc.open_file(source)
                    for number in range(reader.num_record_batches):
                        ids = reader.get_batch(number).column("input_ids").flatten().to_numpy()
                        counts += np.bincount(ids, minlength=size)
                        counted += len(ids)
                        if counted >= MOST_TOKENS:
                            break
            except (pa.ArrowInvalid, OSError, KeyError) as error:
                raise DataError(f"{path} is damaged: {error}; copy it again") from error
            if counted >= MOST_TOKENS:
                break
    return counts
