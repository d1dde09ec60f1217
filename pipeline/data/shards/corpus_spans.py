"""The shards of a split that each corpus has, from the manifest: no file is opened.

A shard has rows of one corpus, and the shards come in the order of the corpora.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.data.shards.manifest import MANIFEST, TRAIN, Manifest, Shard


def corpus_spans(directory: Path, manifest: Manifest, shards: Sequence[Shard]) -> dict[str, slice]:
    """The part of `shards`, all those of one split, that each corpus has; corpora without any are
    absent.

    Raises DataError if the shards do not end where the corpora do, by their numbers of rows.
    """
    ends = [0, *accumulate(shard.sequences for shard in shards)]
    found, begin, rows = dict[str, slice](), 0, 0
    for corpus, about in manifest.corpora.items():
        held_out = about["validation_sequences"]
        rows += about["sequences"] - held_out if shards[0].split == TRAIN else held_out
        end = bisect_right(ends, rows) - 1  # running sums, so sorted
        if ends[end] != rows:
            break
        if end > begin:
            found[corpus] = slice(begin, end)
        begin = end
    if rows != ends[-1]:
        raise DataError(
            f"{directory / MANIFEST} is damaged: its corpora have other rows than its shards; copy "
            "it again"
        )
    return found
