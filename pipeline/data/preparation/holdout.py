"""Which documents are held out: chosen by what they say, before anything is packed or duplicated.

A document goes to validation when the hash of its text is below its corpus's threshold, so copies
of a document in a corpus are on the same side, and no worker needs to know what another one holds.
Of a small corpus a larger share is held out: a copy of such a document in another corpus may be in
train there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.config.run import DataSettings
from pipeline.data.documents.records import with_line
from pipeline.data.execution.tasks import SplitTask
from pipeline.data.selection.decisions import read_kept
from pipeline.data.text.documents import DocumentCounts
from pipeline.errors import DataError

MINIMUM_DOCUMENTS = 10
"""Held out of a corpus with ten times as many; a smaller one gives a tenth, at least one."""
VALIDATION_VERSION = 1
"""Goes into the fingerprint of shards."""
_HOPELESS = 1000
"""Records in a row without one that can be used."""


def validation_thresholds(tasks: list[SplitTask], data: DataSettings) -> dict[str, int]:
    """Per corpus, the hash below which a document is held out, of those that stay in.

    Reads a corpus until `MINIMUM_DOCUMENTS` of its documents fall under `data.validation_fraction`:
    then the fraction will do (about 2,000 documents at 0.005). A corpus that ends before is small,
    and has a threshold of its own. DataError for a corpus without text.
    """
    corpora = dict.fromkeys(task.corpus for task in tasks)
    return {
        corpus: _threshold([task for task in tasks if task.corpus == corpus], data)
        for corpus in corpora
    }


def _threshold(tasks: list[SplitTask], data: DataSettings) -> int:
    fraction = int(data.validation_fraction * 2.0**64)
    counts = DocumentCounts()
    seen: list[npt.NDArray[np.uint64]] = []
    below = 0
    for task in tasks:
        for batch in read_kept(task.pieces, task.decisions, data.seed, counts):
            seen.append(batch.hashes)
            below += int((batch.hashes < np.uint64(fraction)).sum())
            if below >= MINIMUM_DOCUMENTS:
                return fraction
        if not seen and sum(counts.bad.values()) >= _HOPELESS:
            break
    if not seen:
        raise DataError(_why_no_text(tasks, counts))
    hashes = np.concatenate(seen)
    wanted = min(MINIMUM_DOCUMENTS, max(1, len(hashes) // 10))
    distinct = np.unique(hashes)
    if len(distinct) == 1:
        return 0  # a corpus of one document is for training
    threshold = max(fraction, int(distinct[min(wanted, len(distinct) - 1) - 1]) + 1)
    return min(threshold, int(distinct[-1]))  # one is always left to train on


def _why_no_text(tasks: list[SplitTask], counts: DocumentCounts) -> str:
    sources = list(dict.fromkeys(piece.source for task in tasks for piece in task.pieces))
    first, files = sources[0], {source.path for source in sources}
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.dropped.items())
    if counts.left_out:
        return (
            f"corpus {first.corpus}: all documents of {len(files)} file(s) are left out: "
            f"{reasons}; leave the corpus out, or ask for less (--dedup, --filter)"
        )
    example = with_line(counts.bad_example, sources)
    what = example or reasons or f"{first.name}: nothing but white space"
    has_fields = first.format in ("jsonl", "wiki_jsonl", "parquet")
    advice = "name the field with --text-field" if has_fields else "give other files"
    return f"corpus {first.corpus} has no text in {len(files)} file(s): {what}; {advice}"
