"""Chooses held-out documents by the hash of their text, before they are packed or duplicated.

A document goes to validation if its hash is below its corpus's threshold. So copies of a document
in one corpus are on the same side, and workers need not know each other's documents. A small corpus
has a higher threshold, so a copy of one of its held-out documents may be in another corpus's train
split.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.config.data_settings import DataSettings
from pipeline.data.documents.records import with_line
from pipeline.data.execution.tasks import SplitTask
from pipeline.data.selection.decisions import read_kept
from pipeline.data.text.documents import DocumentCounts
from pipeline.errors import DataError

EVERY_HASH = 1 << 64
"""The threshold that holds out all documents: `data.validation_fraction=1`."""
MINIMUM_DOCUMENTS = 10
"""Documents held out at least; of a corpus with less than ten times as many a tenth, at least 1."""
VALIDATION_VERSION = 1
"""Goes into the fingerprint of shards."""
_HOPELESS = 1000
"""Unusable records at the start of a corpus after which it is given up."""


def validation_thresholds(tasks: list[SplitTask], data: DataSettings) -> dict[str, int]:
    """Per corpus, the hash below which a kept document is held out.

    Reads a corpus until `data.validation_fraction` holds out `MINIMUM_DOCUMENTS` of its documents
    (after about 2,000 documents at 0.005): then the fraction is the threshold. A corpus that ends
    before that gets a higher one. Raises DataError for a corpus without text.
    """
    corpora = dict.fromkeys(task.corpus for task in tasks)
    return {
        corpus: _threshold([task for task in tasks if task.corpus == corpus], data)
        for corpus in corpora
    }


def are_below(hashes: npt.NDArray[np.uint64], threshold: int) -> npt.NDArray[np.bool_]:
    """Which documents are held out, by the hashes of their texts."""
    return hashes <= np.uint64(threshold - 1) if threshold else np.zeros(hashes.shape, np.bool_)


def _threshold(tasks: list[SplitTask], data: DataSettings) -> int:
    fraction = int(data.validation_fraction * EVERY_HASH)
    counts = DocumentCounts()
    seen: list[npt.NDArray[np.uint64]] = []
    below = 0
    for task in tasks:
        for batch in read_kept(task.pieces, task.decisions, data.seed, counts):
            seen.append(batch.hashes)
            below += int(are_below(batch.hashes, fraction).sum())
            if below >= MINIMUM_DOCUMENTS:
                return fraction
        if not seen and sum(counts.bad.values()) >= _HOPELESS:
            break
    if not seen:
        raise DataError(_why_no_text(tasks, counts))
    if fraction == EVERY_HASH:
        return fraction
    hashes = np.concatenate(seen)
    wanted = min(MINIMUM_DOCUMENTS, max(1, len(hashes) // 10))
    distinct = np.unique(hashes)
    if len(distinct) == 1:
        return 0  # the only document is for training
    threshold = max(fraction, int(distinct[min(wanted, len(distinct) - 1) - 1]) + 1)
    return min(threshold, int(distinct[-1]))  # at least one document stays in train


def _why_no_text(tasks: list[SplitTask], counts: DocumentCounts) -> str:
    sources = list(dict.fromkeys(piece.source for task in tasks for piece in task.pieces))
    first, files = sources[0], {source.path for source in sources}
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.dropped.items())
    if counts.left_out:
        return (
            f"corpus {first.corpus}: all documents of {len(files)} file(s) are dropped: "
            f"{reasons}; omit the corpus, or relax --dedup or --filter"
        )
    example = with_line(counts.bad_example, sources)
    what = example or reasons or f"{first.name}: only white space"
    has_fields = first.format in ("jsonl", "wiki_jsonl", "parquet")
    advice = "name the field with --text-field" if has_fields else "give other files"
    return f"corpus {first.corpus} has no text in {len(files)} file(s): {what}; {advice}"
