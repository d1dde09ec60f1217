"""Shards that are damaged or gone -> shards that all ranks leave out (`data.damaged=skip`).

The order of samples stays as it is: where a row of such a shard stands, a step has a row of weight
0. So the steps before read what they would have read, the sequences of a step keep their places at
any number of ranks, and the names in state.json are all that a resume needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.errors import DataError
from pipeline.loading.dataset import Dataset, LeftOut, leave_out
from pipeline.training.cluster.ranks import Cluster
from pipeline.training.progress import Progress


def without(
    progress: Progress, datasets: Sequence[Dataset], new: LeftOut, cluster: Cluster
) -> Progress:
    """Leave out these shards with those that `progress` left out before; the first rank names each.

    Collective; DataError on all ranks when nothing would be left.
    """
    left_out = tuple(sorted({*progress.left_out, *new}))
    with cluster.agreed():
        leave_out(datasets, left_out)
    for index, file in left_out if cluster.rank == 0 else ():
        print(
            f"warning: from step {progress.step + 1:,} on no row of "
            f"{datasets[index].directory / file} is read (data.damaged=skip)",
            file=sys.stderr,
        )
    return replace(progress, left_out=left_out)


def found_at_start(datasets: Sequence[Dataset], cluster: Cluster) -> LeftOut:
    """The shards that any rank found damaged when it opened them. Collective."""
    found = [(index, file) for index, dataset in enumerate(datasets) for file in dataset.damaged]
    return _of_all(found, cluster)


def found_by(
    mistake: DataError | None, datasets: Sequence[Dataset], cluster: Cluster
) -> tuple[LeftOut, bool]:
    """The shards to blame for any rank's `mistake`, and whether one is to blame for this rank's.

    Collective.
    """
    file = mistake.file if mistake else None
    owned = [(index, dataset.shard_with(file)) for index, dataset in enumerate(datasets)]
    found = [(index, shard) for index, shard in owned if shard]
    return _of_all(found, cluster), bool(found)


def _of_all(found: Iterable[tuple[int, str]], cluster: Cluster) -> LeftOut:
    texts = cluster.gather(json.dumps(sorted(found)))
    return tuple(sorted({(index, file) for text in texts for index, file in json.loads(text)}))
